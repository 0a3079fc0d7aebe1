package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// Initial search attributes of a Service.
var (
	attrApplication = temporal.NewSearchAttributeKeyKeyword(protocol.AttrApplication)
	attrService     = temporal.NewSearchAttributeKeyKeyword(protocol.AttrService)
)

// Notify records incarnations under their numbers and notifies the services whose spec differs between two manifests. A service that
// cannot be notified is skipped and listed in the answer.
func (a *Activities) Notify(ctx context.Context, r protocol.NotifyRequest) (protocol.NotifyAnswer, error) {
	r, err := r.Whole()
	if err != nil {
		return protocol.NotifyAnswer{}, refuse("notify services: %s", err)
	}
	for _, i := range append(r.Skipped, r.Newest) {
		if err := a.Store.PutNumber(ctx, r.Application, i); err != nil {
			return protocol.NotifyAnswer{}, err
		}
	}
	if err := a.renewReferenced(ctx, r); err != nil {
		return protocol.NotifyAnswer{}, err
	}
	from, to, err := a.manifests(ctx, r)
	if err != nil {
		return protocol.NotifyAnswer{}, err
	}
	if later, err := a.record(ctx, r); err != nil || later != (entities.NoticeOrder{}) {
		return protocol.NotifyAnswer{SupersededBy: later}, err
	}
	rules, err := a.changedRules(ctx, r, from, to)
	if err != nil {
		return protocol.NotifyAnswer{}, err
	}
	undeclared, err := a.undeclaredServices(ctx, r, to)
	if err != nil {
		return protocol.NotifyAnswer{}, err
	}
	changed, removed := to.Since(from)
	changed = slices.Concat(changed, removed, undeclared, rules, r.Additional, newlyManaged(r, to))
	slices.Sort(changed)
	changed = slices.DeleteFunc(slices.Compact(changed), func(service string) bool { return isUnmanaged(r, service) })
	sender := &broadcast{send: func(ctx context.Context, service string) error {
		return a.notifyOrStart(ctx, r, service, to[service], manageRestart(r, service))
	}, awaitProcessed: func(ctx context.Context, service string) error {
		_, err := a.Client.QueryWorkflow(ctx, protocol.ServiceID(r.Application, service), "", protocol.QueryConfigured, r.Newest.Number)
		return err
	}}
	err = sender.run(ctx, changed)
	return protocol.NotifyAnswer{Notified: sender.sent, Unreached: sender.unreached}, err
}

// record stores the notice where services read it (G1). If the store has a different, later notice, it returns the order of that one. An
// application wrote it that knows more than the caller, or that knew more before it lost its state.
func (a *Activities) record(ctx context.Context, r protocol.NotifyRequest) (later entities.NoticeOrder, err error) {
	wanted := protocol.Notice{Order: r.Order, Incarnation: r.Newest, Pinned: r.Pinned, PinnedBy: r.PinnedBy, Rules: r.Rules}
	wanted.Incarnation.Manifest = r.To
	stored, err := a.Store.PutNotice(ctx, r.Application, wanted)
	if err == nil && !stored.Same(wanted) || store.IsDamaged(err) {
		return stored.Order, nil
	}
	return later, err
}

func (a *Activities) manifests(ctx context.Context, r protocol.NotifyRequest) (from, to incarnation.Manifest, err error) {
	if r.From != "" {
		// The store may have lost the earlier manifest. Then all services are notified again, which is harmless.
		if from, err = a.Store.Manifest(ctx, r.From); err != nil && !store.IsNotFound(err) {
			return nil, nil, err
		}
	}
	to, err = a.Store.Manifest(ctx, r.To)
	return from, to, err
}

// changedRules returns the services whose rules change, while the application is pinned to an older incarnation or was until now.
func (a *Activities) changedRules(ctx context.Context, r protocol.NotifyRequest, from, to incarnation.Manifest) (names []string, err error) {
	if r.Rules == nil && r.RulesFrom == "" {
		return nil, nil
	}
	before, now := from, to
	if r.RulesFrom != "" {
		if before, err = a.Store.Manifest(ctx, r.RulesFrom); err != nil && !store.IsNotFound(err) {
			return nil, err
		}
	}
	if r.Rules != nil {
		if now, err = a.Store.Manifest(ctx, r.Rules.Manifest); err != nil {
			return nil, err
		}
	}
	changed, _ := now.Since(before)
	for service := range to {
		if now[service] == "" || slices.Contains(changed, service) { // without an own spec there, the rules of the application apply
			names = append(names, service)
		}
	}
	return names, nil
}

// undeclaredServices returns the services that are not declared and have a state, if who may do what has changed. They may still have objects,
// and people act on them.
func (a *Activities) undeclaredServices(ctx context.Context, r protocol.NotifyRequest, to incarnation.Manifest) (names []string, err error) {
	if !r.PeopleChanged {
		return nil, nil
	}
	ids, err := a.Store.Checkpointed(ctx, protocol.ServiceID(r.Application, ""))
	for _, id := range ids {
		if _, service, ok := protocol.ParseServiceID(id); ok && to[service] == "" {
			names = append(names, service)
		}
	}
	return names, err
}

// renewReferenced renews the manifest and the incarnation, so that they are not garbage-collected: an application may be pinned to one that
// was unreferenced for long.
func (a *Activities) renewReferenced(ctx context.Context, r protocol.NotifyRequest) error {
	err := a.Store.RenewManifest(ctx, r.To)
	if err == nil && r.Newest.Hash != "" {
		err = a.Store.RenewIncarnation(ctx, r.Newest.Hash)
	}
	if err == nil && r.Rules != nil {
		err = errors.Join(a.Store.RenewManifest(ctx, r.Rules.Manifest), a.Store.RenewIncarnation(ctx, r.Rules.Hash))
	}
	if store.IsNotFound(err) {
		return nil // the part that needs it reports the error
	}
	return err
}

// newlyManaged returns the services that become managed again.
func newlyManaged(r protocol.NotifyRequest, to incarnation.Manifest) (names []string) {
	for service := range r.Remanaged {
		if service == protocol.AllServices {
			names = slices.AppendSeq(names, maps.Keys(to))
		} else {
			names = append(names, service)
		}
	}
	return names
}

// manageRestart returns the reason to start such a service; nil: it is not one of them.
func manageRestart(r protocol.NotifyRequest, service string) *protocol.Restart {
	if reason := cmp.Or(r.Remanaged[service], r.Remanaged[protocol.AllServices]); reason != "" {
		return &protocol.Restart{At: r.At, Why: reason}
	}
	return nil
}

// isUnmanaged reports whether the service is unmanaged. It is notified of everything once it is managed again.
func isUnmanaged(r protocol.NotifyRequest, service string) bool {
	return slices.Contains(r.Unmanaged, service) || slices.Contains(r.Unmanaged, protocol.AllServices)
}

// notifyOrStart signals one service. It starts the service if it is new, or for the reason in restart. A service that is no longer declared
// is notified of that, but never started for it.
func (a *Activities) notifyOrStart(ctx context.Context, r protocol.NotifyRequest, service, digest string, restart *protocol.Restart) error {
	id := protocol.ServiceID(r.Application, service)
	message := protocol.ServicePublish{
		Incarnation: r.Newest.Number, Hash: r.Newest.Hash, Spec: digest, Store: r.Store,
		By: r.Newest.By, Proven: r.Newest.Proven, Subject: r.Newest.Subject,
		Order: r.Order,
	}
	if digest == "" {
		var notFound *serviceerror.NotFound
		if err := a.Client.SignalWorkflow(ctx, id, "", protocol.Publish, message); err != nil && !errors.As(err, &notFound) {
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
		StaticSummary:         r.Application + "/" + spec.Title(),
		StaticDetails:         details(spec, r),
		TypedSearchAttributes: temporal.NewSearchAttributes(attrApplication.ValueSet(r.Application), attrService.ValueSet(spec.Title())),
	}, protocol.ServiceWorkflow, protocol.ServiceInput{
		Application: r.Application, Service: service, StartMode: protocol.StartMode{Adopt: true, Restart: restart},
	})
	return err
}

// maxDetails limits the bytes of a description, and of the channel names, in details: a server may refuse more than 20,000 in all.
const maxDetails = 6 << 10

// details returns the fixed text of a service in the Temporal UI.
func details(spec entities.Spec, r protocol.NotifyRequest) string {
	var b strings.Builder
	if spec.Description != "" {
		b.WriteString(runtimes.Clip(spec.Description, maxDetails) + "\n\n")
	}
	var channels []string
	for _, c := range spec.Channels {
		channels = append(channels, c.Name)
	}
	fmt.Fprintf(&b, "Channels in order: %s\n\nFrom %s\n\nTo explain its state: `converge explain %s/%s`",
		runtimes.Clip(strings.Join(channels, " → "), maxDetails), r.Newest.Origin.Path, spec.Application, spec.Title())
	return b.String()
}
