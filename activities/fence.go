package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// fence claims an instance for a write, so that no write follows a later one (F2). Whatever an operator does to workflows and workers, at
// most one sequence of targets makes progress. It returns the conflicting claim, if any, and the reason. A claim of another epoch, to
// which the installation was moved, has no sequence.
func (a *Activities) fence(ctx context.Context, in runtimes.Owner, f *runtimes.Fence) (conflict *protocol.Claim, reason string, err error) {
	var fetches sync.WaitGroup
	var i protocol.Installation
	var readErr error
	fetches.Go(func() { i, readErr = a.Store.Installation(ctx) }) // not cached: after a move, the new installation applies at once
	claim := protocol.Claim{Epoch: f.Epoch, Sequence: f.Sequence, Target: f.Target, FullVersion: f.FullVersion, At: time.Now().UTC()}
	conflict, err = a.Store.Claim(ctx, in.Application, in.Service, in.ID.Key(), claim)
	fetches.Wait()
	switch {
	case readErr != nil && !store.IsNotFound(readErr):
		return nil, "", readErr
	case i.Epoch > a.Epoch:
		return &protocol.Claim{Epoch: i.Epoch}, "refused: the installation was " + moveText(i), nil
	case err != nil:
		return nil, "", fmt.Errorf("claim %s: %w", in.ID, err)
	}
	if conflict != nil {
		claimed := conflict.FullVersion
		if claimed == "" {
			claimed = "its removal"
		}
		reason = fmt.Sprintf("refused: a run that is unknown here claimed %s later (%d, this one %d)", claimed, conflict.Sequence, f.Sequence)
	}
	return conflict, reason, nil
}

// moveText says where an installation was moved to.
func moveText(i protocol.Installation) string {
	if i.Exported != "" {
		return "exported by " + i.Exported + ", to continue elsewhere"
	}
	return fmt.Sprintf("moved to the namespace %s (%s)", i.Namespace, i.NamespaceID)
}

// fenceOf returns the position of a target, or of a removal, in the sequence of an instance.
func (a *Activities) fenceOf(target protocol.InstanceRef, sequence int64) *runtimes.Fence {
	f := &runtimes.Fence{Installation: a.Installation, Epoch: a.Epoch, Sequence: sequence, FullVersion: target.FullVersion}
	if target.FullVersion != "" {
		f.Target = entities.ShortDigestOf([]string{target.FullVersion, target.Payload})
	}
	return f
}

// fencedAnswer returns the answer for an apply that the runtime itself rejected because of a later write. If the later write comes from
// where the installation was moved to, the answer has no sequence, because a higher number would not help here.
func fencedAnswer(e *runtimes.FencedError) protocol.ApplyAnswer {
	by := &protocol.Claim{Epoch: e.By.Epoch, Target: e.By.Target, FullVersion: e.By.FullVersion}
	if e.By.Epoch == e.Refused.Epoch {
		by.Sequence = e.By.Sequence
	}
	return protocol.ApplyAnswer{Err: e.Error(), Fenced: by}
}
