package activities

import (
	"context"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// Baseline makes services reload their configuration after a change of the installation's baseline (G2). It sends each service the newest
// notice of its application again. The answer of LoadSpec then has the current baseline. A service that starts meanwhile loads it at its
// start. A service that cannot be notified is skipped and listed in the answer.
func (a *Activities) Baseline(ctx context.Context, r protocol.BaselineRequest) (protocol.AnnounceAnswer, error) {
	services := slices.Sorted(slices.Values(r.Only))
	if len(services) == 0 {
		var err error
		if services, err = a.runningServices(ctx, ""); err != nil {
			return protocol.AnnounceAnswer{}, err
		}
	}
	sender := &broadcast{send: a.resendNotice}
	err := sender.run(ctx, services)
	return protocol.AnnounceAnswer{Unreached: sender.unreached}, err
}

// resendNotice sends a service the newest notice of its application. It does nothing if there is no notice, or if the notice does not
// declare the service.
func (a *Activities) resendNotice(ctx context.Context, id string) error {
	application, service, ok := protocol.ParseServiceID(id)
	if !ok {
		return nil
	}
	n, err := a.Store.NewestNotice(ctx, application)
	if store.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	manifest, err := a.Store.Manifest(ctx, n.Incarnation.Manifest)
	if err != nil || manifest[service] == "" {
		return err
	}
	by := n.By()
	return ignoreNotFound(a.Client.SignalWorkflow(ctx, id, "", protocol.Publish, protocol.ServicePublish{
		Incarnation: n.Incarnation.Number, Hash: n.Incarnation.Hash, Spec: manifest[service], Store: a.Store.URL(),
		By: by.Name, Proven: by.Proven, Subject: by.Subject, Order: n.Order,
	}))
}

// withCurrentOrder makes a restarted service reload its configuration too, because its checkpoint may be older than the current baseline.
func (a *Activities) withCurrentOrder(ctx context.Context, last protocol.NotifyRequest) (protocol.NotifyRequest, error) {
	rules, err := a.Store.Rules(ctx)
	if err != nil && !store.IsDamaged(err) || rules.Number == 0 {
		return last, err
	}
	n, err := a.Store.NewestNotice(ctx, last.Application)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return last, nil
	}
	if n.Incarnation.Number == last.Newest.Number {
		last.Order, last.At = n.Order, n.Incarnation.At
	}
	return last, err
}

// checkBaseline rejects a publication that violates the baseline of the installation: another identity, more than its limits, or
// runtimes of other applications.
func (a *Activities) checkBaseline(ctx context.Context, rules protocol.Rules, inc *incarnation.Incarnation, manifest incarnation.Manifest) error {
	if rules.Baseline == nil {
		return nil
	}
	identity, _ := inc.People()
	if err := rules.CheckIdentity(identity); err != nil {
		return refuse("%s (rules %d)", err, rules.Number)
	}
	limits := rules.Baseline.Limits
	if err := limits.Check(len(manifest), len(inc.Channels())); err != nil {
		return refuse("%s has %s (rules %d)", inc.Application(), err, rules.Number)
	}
	if len(limits.RuntimesOf) == 0 {
		return nil
	}
	for _, service := range entities.SortedKeys(manifest) {
		spec, err := a.Store.Spec(ctx, manifest[service])
		if err != nil {
			return unpublishedError(err)
		}
		for _, name := range entities.SortedKeys(spec.Runtimes) {
			owner, err := a.runtimeOwner(ctx, name, spec.Runtimes[name].Digest)
			if err != nil {
				return unpublishedError(err)
			}
			if !slices.Contains(limits.RuntimesOf, owner) {
				return refuse("%s uses runtime %s of application %s; the installation allows runtimes of %s (rules %d)",
					service, name, owner, entities.OneOf(limits.RuntimesOf), rules.Number)
			}
		}
	}
	return nil
}

// runtimeOwner returns the application that defines a runtime, in its current definition or, without one, in the one of that digest.
func (a *Activities) runtimeOwner(ctx context.Context, name, digest string) (string, error) {
	definition, err := a.Store.CurrentRuntime(ctx, name)
	if store.IsNotFound(err) {
		definition, err = a.Store.Runtime(ctx, name, digest)
	}
	return definition.Owner, err
}
