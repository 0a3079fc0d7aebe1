package activities

import (
	"context"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// LoadSpec returns the configuration of a service: the newest notice of its application in the store, the spec that the manifest in it
// names for the service, with the current baseline of the installation, and the active pauses of its scopes. It does not depend on the
// content of the signal that caused the request. It rejects a signal for an unpublished configuration (G1).
func (a *Activities) LoadSpec(ctx context.Context, r protocol.LoadSpecRequest) (protocol.LoadSpecAnswer, error) {
	answer, err := a.loadSpec(ctx, r)
	answer, err = spillIfLarge(ctx, a, answer, err)
	return answer, damageError(err)
}

func (a *Activities) loadSpec(ctx context.Context, r protocol.LoadSpecRequest) (protocol.LoadSpecAnswer, error) {
	answer := protocol.LoadSpecAnswer{Store: a.Store.URL()}
	notice, err := a.confirmNotice(ctx, r)
	if err != nil {
		return answer, err
	}
	manifest, err := a.Store.Manifest(ctx, notice.Incarnation.Manifest)
	if err != nil {
		return answer, err
	}
	answer.Notice, answer.Digest = &notice, manifest[r.Service]
	if answer.Digest == "" {
		answer.Spec, err = a.undeclaredSpec(ctx, r, &notice)
		return answer, err
	}
	spec, err := a.Store.Spec(ctx, answer.Digest)
	if err != nil {
		return answer, err
	}
	if spec.Application != r.Application || spec.Service != r.Service {
		return answer, refuse("spec %s is of %s/%s, not of %s/%s", answer.Digest, spec.Application, spec.Service, r.Application, r.Service)
	}
	if notice.Rules != nil {
		if err := a.applyNewestRules(ctx, *notice.Rules, &spec); err != nil {
			return answer, err
		}
	}
	if answer.Pauses, err = a.Store.Pauses(ctx, spec.Application, entities.SortedKeys(spec.Runtimes)); err != nil {
		return answer, err
	}
	answer.Pauses = ownPauses(answer.Pauses, protocol.ServiceID(r.Application, r.Service))
	if answer.Loosened, answer.Compared, err = a.loosened(ctx, r.CurrentDigest, &spec); err != nil {
		return answer, err
	}
	rules, err := a.Store.Rules(ctx) // damaged rules are an error and are retried, because they may contain restrictions
	if err != nil {
		return answer, err
	}
	rules.ApplyBaseline(rules.Number, &spec, r.Runtimes)
	if !protocol.Large(spec) {
		answer.Spec = &spec
		return answer, nil
	}
	answer.Packed, err = protocol.Pack(spec)
	return answer, err
}

// undeclaredSpec is the spec of a service that is not declared any more: who may do what with the rest of it, and who is notified, is as in
// the newest incarnation.
func (a *Activities) undeclaredSpec(ctx context.Context, r protocol.LoadSpecRequest, n *protocol.Notice) (*entities.Spec, error) {
	newest, err := a.Store.Incarnation(ctx, n.RulesHash())
	if err != nil {
		return nil, err
	}
	spec := &entities.Spec{Application: r.Application, Service: r.Service, Notifications: newest.Notifications()}
	spec.Identity, spec.Grants = newest.People()
	return spec, nil
}

// applyNewestRules gives a spec of an older incarnation the rules of the newest one. A service that the newest one does not declare gets
// those of the application.
func (a *Activities) applyNewestRules(ctx context.Context, of protocol.RulesOf, spec *entities.Spec) error {
	manifest, err := a.Store.Manifest(ctx, of.Manifest)
	if err != nil {
		return err
	}
	digest := manifest[spec.Service]
	if digest == "" {
		newest, err := a.Store.Incarnation(ctx, of.Hash)
		if err != nil {
			return err
		}
		spec.RulesOf = of.Number
		spec.Identity, spec.Grants = newest.People()
		spec.Notifications = newest.Notifications()
		return nil
	}
	newest, err := a.Store.Spec(ctx, digest)
	if err != nil {
		return err
	}
	check, extension, failed := a.Store.Definitions(ctx)
	*spec = *loosen.UnderRules(spec, &newest, of.Number, loosen.Definitions{Check: check, Extension: extension})
	return *failed
}

// confirmNotice returns the newest notice of an application. A late signal is superseded by it. A signal that claims to be newer is
// rejected.
func (a *Activities) confirmNotice(ctx context.Context, r protocol.LoadSpecRequest) (protocol.Notice, error) {
	newest, err := a.Store.NewestNotice(ctx, r.Application)
	if err != nil && !store.IsNotFound(err) {
		return newest, err
	}
	if r.Incarnation == 0 && r.Hash == "" && err == nil { // a restarted service only reads the current notice
		return newest, nil
	}
	if err := a.checkRecorded(ctx, r); err != nil {
		return newest, err
	}
	if err != nil || newest.Incarnation.Number != r.Incarnation && r.Order.Compare(newest.Order) > 0 {
		return newest, refuse("incarnation %d of %s was not published or pinned after incarnation %d", r.Incarnation, r.Application, newest.Incarnation.Number)
	}
	return newest, nil
}

// checkRecorded rejects a signal whose incarnation differs from the stored one with its number.
func (a *Activities) checkRecorded(ctx context.Context, r protocol.LoadSpecRequest) error {
	record, err := a.Store.Number(ctx, r.Application, r.Incarnation)
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	if err != nil || record.Hash != r.Hash {
		return refuse("incarnation %d (%s) of %s was never published", r.Incarnation, r.Hash, r.Application)
	}
	return nil
}
