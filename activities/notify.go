package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// Search attributes that a Service begins with.
var (
	attrApplication = temporal.NewSearchAttributeKeyKeyword(protocol.AttrApplication)
	attrService     = temporal.NewSearchAttributeKeyKeyword(protocol.AttrService)
)

// Notify records incarnations under their numbers and notifies the services whose spec differs between
// two manifests. It goes through them in order and heartbeats the last one, so that another worker goes
// on where this one died; notifying a service twice does no harm.
func (a *Activities) Notify(ctx context.Context, r protocol.NotifyRequest) (protocol.NotifyAnswer, error) {
	for _, i := range append(r.Passed, r.Newest) {
		if err := a.Store.PutNumber(ctx, r.Application, i); err != nil {
			return protocol.NotifyAnswer{}, err
		}
	}
	from, to, err := a.manifests(ctx, r)
	if err != nil {
		return protocol.NotifyAnswer{}, err
	}
	changed, removed := to.Since(from)
	changed = append(changed, removed...)
	slices.Sort(changed)
	var last string
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &last) // unreadable: begin with the first
	}
	answer := protocol.NotifyAnswer{}
	for _, service := range changed {
		if service <= last {
			continue
		}
		if err := a.notify(ctx, r, service, to[service]); err != nil {
			return answer, fmt.Errorf("notify %s/%s: %w", r.Application, service, err)
		}
		answer.Notified++
		activity.RecordHeartbeat(ctx, service)
	}
	return answer, nil
}

func (a *Activities) manifests(ctx context.Context, r protocol.NotifyRequest) (from, to incarnation.Manifest, err error) {
	if r.From != "" {
		// A store that lost what all knew: then all are notified again, which does no harm.
		if from, err = a.Store.Manifest(ctx, r.From); err != nil && !store.IsNotFound(err) {
			return nil, nil, err
		}
	}
	to, err = a.Store.Manifest(ctx, r.To)
	return from, to, err
}

// notify signals one service, starting it when it is new. A service that is no longer declared is
// notified of that, but never started for it.
func (a *Activities) notify(ctx context.Context, r protocol.NotifyRequest, service, digest string) error {
	id := protocol.ServiceID(r.Application, service)
	message := protocol.ServicePublish{
		Incarnation: r.Newest.Number, Hash: r.Newest.Hash, Spec: digest, Store: r.Store, By: r.Newest.By,
		Pinned: r.Pinned, At: r.At,
	}
	if digest == "" {
		var gone *serviceerror.NotFound
		if err := a.Client.SignalWorkflow(ctx, id, "", protocol.Publish, message); err != nil && !errors.As(err, &gone) {
			return err
		}
		return nil
	}
	spec, err := a.Store.Spec(ctx, digest)
	if err != nil {
		return err
	}
	_, err = a.Client.SignalWithStartWorkflow(ctx, id, protocol.Publish, message, client.StartWorkflowOptions{
		TaskQueue:             protocol.TaskQueue,
		StaticSummary:         r.Application + "/" + service,
		StaticDetails:         details(spec, r),
		TypedSearchAttributes: temporal.NewSearchAttributes(attrApplication.ValueSet(r.Application), attrService.ValueSet(service)),
	}, protocol.ServiceWorkflow, protocol.ServiceInput{Application: r.Application, Service: service, Logic: protocol.Logic})
	return err
}

// details is the fixed text that the Temporal UI shows of a service.
func details(spec entities.Spec, r protocol.NotifyRequest) string {
	var b strings.Builder
	if spec.Description != "" {
		b.WriteString(spec.Description + "\n\n")
	}
	var channels []string
	for _, c := range spec.Channels {
		channels = append(channels, c.Name)
	}
	fmt.Fprintf(&b, "Channels in order: %s\n\nFrom %s\n\nWhy it is as it is: `converge explain %s/%s`",
		strings.Join(channels, " → "), r.Newest.Origin.Path, spec.Application, spec.Service)
	return b.String()
}
