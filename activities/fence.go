package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// fence claims an instance for what is about to be written there, so that nothing is ever written after something later
// (F6): whatever an operator does to workflows and workers, at most one sequence of targets goes forward. It returns the
// claim that stands in the way, if one does. A workflow that counts no targets is not fenced: it is of an older version.
func (a *Activities) fence(ctx context.Context, application, service string, to protocol.InstanceRef, sequence int64) (*protocol.Claim, error) {
	if sequence == 0 {
		return nil, nil
	}
	claim := protocol.Claim{Epoch: a.Epoch, Sequence: sequence, FullVersion: to.FullVersion, At: time.Now().UTC()}
	if to.FullVersion != "" {
		claim.Target = entities.DigestOf([]string{to.FullVersion, to.Payload})
	}
	stands, err := a.Store.Claim(ctx, application, service, to.ID.Key(), claim)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", to.ID, err)
	}
	return stands, nil
}
