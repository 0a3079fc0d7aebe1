package kubernetes

import (
	"context"

	"github.com/converge-engine/converge/runtimes"
)

// Plan implements runtimes.Planner by the server's dry run. What is refused stands beside the rest;
// an error is only that nothing could be asked at all.
func (r *Runtime) Plan(ctx context.Context, in runtimes.Instance) ([]runtimes.Change, error) {
	a, err := r.begin(ctx, in)
	if err != nil {
		return nil, err
	}
	var changes []runtimes.Change
	for _, t := range a.tryAll(ctx, a.objects) {
		if err := ctx.Err(); err != nil {
			return nil, explain(ctx, "plan", err)
		}
		if t.outcome != unchanged {
			changes = append(changes, t.change())
		}
	}
	parent, _, err := a.parent(ctx)
	if err != nil {
		return nil, err
	}
	left, _, err := a.leftovers(ctx, a.known(parent))
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		change := runtimes.Change{Action: runtimes.ActionOrphan, Type: l.GetKind(), Name: l.GetName(), Namespace: l.GetNamespace()}
		if a.prune && !l.kept() {
			change.Action = runtimes.ActionPrune
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// change is a trial as it is told.
func (t *trial) change() runtimes.Change {
	c := runtimes.Change{Type: t.GetKind(), Name: t.GetName(), Namespace: t.GetNamespace(), Fields: t.fields}
	for _, standing := range t.standing {
		c.Conflicts = append(c.Conflicts, standing.String())
	}
	switch t.outcome {
	case tooEarly, created:
		c.Action = runtimes.ActionCreate
	case recreated:
		c.Action = runtimes.ActionRecreate
	case refused:
		c.Action = runtimes.ActionRefuse
		if len(c.Conflicts) == 0 {
			c.Message = t.err.Error()
		}
	case untried:
		c.Action, c.Message = runtimes.ActionUpdate, "a webhook takes no part in dry runs, so nothing more is known"
		if t.live == nil {
			c.Action = runtimes.ActionCreate
		}
	default:
		c.Action = runtimes.ActionUpdate
	}
	return c
}
