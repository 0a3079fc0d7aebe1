package activities

import (
	"context"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// Confirm reads the data that a publication refers to. It answers from the store and does not trust the publication (G1).
func (a *Activities) Confirm(ctx context.Context, r protocol.ConfirmRequest) (protocol.ConfirmAnswer, error) {
	inc, err := a.Store.Incarnation(ctx, r.Hash)
	if err != nil {
		return protocol.ConfirmAnswer{}, unpublishedError(err)
	}
	if inc.Application() != r.Application {
		return protocol.ConfirmAnswer{}, refuse("incarnation %s is of %s, not of %s", r.Hash, inc.Application(), r.Application)
	}
	manifest, err := a.Store.Manifest(ctx, r.Manifest)
	if err != nil {
		return protocol.ConfirmAnswer{}, unpublishedError(err)
	}
	if actual, expected := entities.SortedKeys(manifest), inc.ServiceKeys(); !slices.Equal(actual, expected) {
		return protocol.ConfirmAnswer{}, refuse("manifest %s does not belong to incarnation %s: their services differ", r.Manifest, r.Hash)
	}
	rules, err := a.Store.Rules(ctx)
	if err == nil {
		err = a.checkBaseline(ctx, rules, inc, manifest)
	}
	if err != nil {
		return protocol.ConfirmAnswer{}, damageError(err)
	}
	numbers, err := a.Store.ListNumbers(ctx, r.Application)
	if err != nil {
		return protocol.ConfirmAnswer{}, err
	}
	floor := slices.Max(append(numbers, 0))
	answer := protocol.ConfirmAnswer{Services: len(manifest), Notifications: inc.Notifications(), HighestIncarnation: floor}
	answer.Identity, answer.Grants = inc.People()
	answer.Identity = rules.IdentityFor(answer.Identity)
	answer.Names, answer.Keys = inc.ServiceNames(), inc.ServiceKeys()
	return answer, nil
}

// unpublishedError returns a non-retryable error for data that the store does not have: a retry would block all later publications.
func unpublishedError(err error) error {
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return refuse("nothing was published: %s; publish with: converge config publish DIR", err)
	}
	return err
}
