package activities

import (
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// fence claims an instance for what is about to be written there, so that nothing is ever written after something later
// (F2): whatever an operator does to workflows and workers, at most one sequence of targets goes forward. It returns the
// claim that stands in the way, if one does, and why; that of another epoch, where the installation was moved, has no
// sequence. A workflow that counts no targets is not fenced: it is of an older version.
func (a *Activities) fence(ctx context.Context, application, service string, to protocol.InstanceRef, sequence int64) (by *protocol.Claim, why string, err error) {
	if sequence == 0 {
		return nil, "", nil
	}
	if i, err := a.Store.Installation(ctx); err == nil && i.Epoch > a.Epoch {
		return &protocol.Claim{Epoch: i.Epoch}, "refused, since the installation was " + whereTo(i), nil
	} else if err != nil && !store.IsNotFound(err) {
		return nil, "", err
	}
	claim := protocol.Claim{Epoch: a.Epoch, Sequence: sequence, FullVersion: to.FullVersion, At: time.Now().UTC()}
	if to.FullVersion != "" {
		claim.Target = entities.DigestOf([]string{to.FullVersion, to.Payload})
	}
	by, err = a.Store.Claim(ctx, application, service, to.ID.Key(), claim)
	if err != nil {
		return nil, "", fmt.Errorf("claim %s: %w", to.ID, err)
	}
	if by != nil {
		what := by.FullVersion
		if what == "" {
			what = "its removal"
		}
		why = fmt.Sprintf("refused, since %s was claimed for it later (%d) by a run that is not known here (%d)", what, by.Sequence, sequence)
	}
	return by, why, nil
}

// whereTo says where an installation went on.
func whereTo(i protocol.Installation) string {
	if i.Exported != "" {
		return "exported by " + i.Exported + ", to go on elsewhere"
	}
	return fmt.Sprintf("moved to the namespace %s (%s)", i.Namespace, i.NamespaceID)
}
