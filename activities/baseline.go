package activities

import (
	"context"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// Baseline has services look what they are to go by, since the baseline of the installation is another one (G2): each is sent
// the newest notice of its application once more, and what LoadSpec then answers has the baseline that is in force. One that is
// started meanwhile looks by itself. A service that cannot be told is passed over, and named in the answer.
func (a *Activities) Baseline(ctx context.Context, r protocol.BaselineRequest) (protocol.AnnounceAnswer, error) {
	services := slices.Sorted(slices.Values(r.Only))
	if len(services) == 0 {
		var err error
		if services, err = a.running(ctx, ""); err != nil {
			return protocol.AnnounceAnswer{}, err
		}
	}
	all := &reach{tell: a.haveLook}
	err := all.all(ctx, services)
	return protocol.AnnounceAnswer{Unreached: all.missed}, err
}

// haveLook sends a service the newest notice of its application. One of which nothing was ever recorded, or that is not
// declared in it, has nothing to look at.
func (a *Activities) haveLook(ctx context.Context, id string) error {
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
	return present(a.Client.SignalWorkflow(ctx, id, "", protocol.Publish, protocol.ServicePublish{
		Incarnation: n.Incarnation.Number, Hash: n.Incarnation.Hash, Spec: manifest[service], Store: a.Store.URL(),
		By: n.Incarnation.By, Proven: n.Incarnation.Proven, Subject: n.Incarnation.Subject, Pinned: n.Pinned, Order: n.Order, At: n.Incarnation.At,
	}))
}

// looking has a service that is started again look as well: its checkpoint may be of before the baseline that is in force.
func (a *Activities) looking(ctx context.Context, last protocol.NotifyRequest) (protocol.NotifyRequest, error) {
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

// confirmBaseline refuses a publication that the installation does not take: another identity than its baseline names people
// by, more than its limits, or runtimes of others.
func (a *Activities) confirmBaseline(ctx context.Context, rules protocol.Rules, inc *incarnation.Incarnation, manifest incarnation.Manifest) error {
	if rules.Baseline == nil {
		return nil
	}
	own, _ := inc.People()
	if err := rules.CheckIdentity(own); err != nil {
		return refuse("%s (rules %d)", err, rules.Number)
	}
	limits := rules.Baseline.Limits
	if err := limits.Exceeds(len(manifest), len(inc.Channels())); err != nil {
		return refuse("%s has %s (rules %d)", inc.Application(), err, rules.Number)
	}
	if len(limits.RuntimesOf) == 0 {
		return nil
	}
	for _, service := range entities.SortedKeys(manifest) {
		spec, err := a.Store.Spec(ctx, manifest[service])
		if err != nil {
			return unpublished(err)
		}
		for _, name := range entities.SortedKeys(spec.Runtimes) {
			owner, err := a.ownerOf(ctx, name, spec.Runtimes[name].Digest)
			if err != nil {
				return unpublished(err)
			}
			if !slices.Contains(limits.RuntimesOf, owner) {
				return refuse("%s is on runtime %s of application %s, and the installation allows those of %s (rules %d)",
					service, name, owner, entities.OneOf(limits.RuntimesOf), rules.Number)
			}
		}
	}
	return nil
}

// ownerOf is the application that defines a runtime: by what is current, or what is to become so.
func (a *Activities) ownerOf(ctx context.Context, name, digest string) (string, error) {
	definition, err := a.Store.CurrentRuntime(ctx, name)
	if store.IsNotFound(err) {
		definition, err = a.Store.Runtime(ctx, name, digest)
	}
	return definition.Owner, err
}
