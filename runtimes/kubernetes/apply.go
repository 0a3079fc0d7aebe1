package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// defaultApplyTimeout bounds an apply whose runtime says nothing about it.
const defaultApplyTimeout = 10 * time.Minute

// apply is one Apply, or one Plan, of an instance.
type apply struct {
	*Runtime
	clients *clients
	owner   runtimes.Owner
	home    string // namespace of the instance
	adopt   bool
	prune   bool
	makes   bool // the namespace of the instance, when it is not there
	objects []declared
	earlier []*unstructured.Unstructured // inventories in namespaces in which the instance once was
	told    *account
}

// Apply implements runtimes.Runtime by server-side apply. All objects are tried first (a dry run), so
// that one that is invalid, or somebody else's, stops the apply before anything was changed. Then they
// are applied in waves; a wave waits until the one before it is ready, and nothing waits for the last.
// What is already as declared is left alone. An apply that was interrupted anywhere can be run again.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Instance) (runtimes.Output, error) {
	started := r.now()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.def.Timing.ApplyTimeout, defaultApplyTimeout))
	defer cancel()
	ctx, warned := collectWarnings(ctx)
	told := &account{}
	err := r.apply(ctx, in, told)
	for _, warning := range warned.list() {
		told.say("warning: %s", warning)
	}
	out := told.output()
	out.Started, out.Duration = started, r.now().Sub(started)
	if err != nil {
		out.ExitCode = 1
		err = fmt.Errorf("apply %s/%s to %s: %w", in.Application, in.Service, in.Channel, err)
	}
	return out, err
}

func (r *Runtime) apply(ctx context.Context, in runtimes.Instance, told *account) error {
	a, err := r.begin(ctx, in)
	if err != nil {
		return err
	}
	a.told = told
	trials := a.tryAll(ctx, a.objects)
	if err := problems(trials); err != nil {
		return err
	}
	return a.run(ctx, trials)
}

// begin reads the payload and finds the cluster.
func (r *Runtime) begin(ctx context.Context, in runtimes.Instance) (*apply, error) {
	if in.Payload == nil || in.Payload.Kubernetes == nil {
		return nil, runtimes.Permanent(errors.New("the payload has no Kubernetes objects"))
	}
	clients, err := r.cluster.connect(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := r.declare(ctx, in)
	if runtimes.IsPermanent(err) {
		return nil, err // it says what is wrong, and no server was asked
	}
	if err != nil {
		return nil, explain(ctx, "read the payload", err)
	}
	return &apply{
		Runtime: r, clients: clients, owner: ownerIn(in), home: homeOf(in), objects: objects, told: &account{},
		adopt: in.Payload.Kubernetes.Adopt, prune: in.Payload.Kubernetes.Prune, makes: in.Payload.Kubernetes.CreateNamespace,
	}, nil
}

// run applies what was tried.
func (a *apply) run(ctx context.Context, trials []*trial) error {
	if err := a.makeHome(ctx, trials); err != nil {
		return err
	}
	remembered := false
	groups := inWaves(trials)
	for i, wave := range groups {
		if wave[0].wave != firstWave && !remembered {
			if err := a.remember(ctx); err != nil {
				return err
			}
			remembered = true
		}
		if err := a.wave(ctx, wave, i == 0); err != nil {
			return err
		}
		if i < len(groups)-1 {
			if err := a.ready(ctx, wave); err != nil {
				return err
			}
		}
	}
	if !remembered {
		if err := a.remember(ctx); err != nil {
			return err
		}
	}
	return a.leave(ctx, trials)
}

// wave applies the objects of one wave. What could not be tried before, because its kind or its
// namespace was not there, is tried now; and what was not there is looked for once more, when there
// was a wave before that took its time: somebody else may have made it meanwhile (D11).
func (a *apply) wave(ctx context.Context, wave []*trial, first bool) error {
	for _, t := range wave {
		if t.outcome == tooEarly || t.outcome == created && !first {
			*t = *a.try(ctx, t.declared)
		}
	}
	if err := problems(wave); err != nil {
		return err
	}
	for _, t := range wave {
		if err := a.carryOut(ctx, t); err != nil {
			return err
		}
		if idOf(t.Unstructured).kind == kindDefinition && t.outcome != unchanged {
			a.cluster.kinds.forget()
		}
	}
	return nil
}

// carryOut does what a trial showed to be needed.
func (a *apply) carryOut(ctx context.Context, t *trial) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch t.outcome {
	case unchanged:
		a.told.same++
		return nil
	case recreated:
		if err := a.remove(ctx, t); err != nil {
			return err
		}
	}
	applied, err := a.send(ctx, t, false)
	if err != nil {
		return err
	}
	a.told.tell(t, applied)
	t.applied = applied
	a.agreed(applied, t.declared)
	return nil
}

// problems are all that trials found, in one error: permanent when one of them is.
func problems(trials []*trial) error {
	var all []error
	permanent := false
	for _, t := range trials {
		if t.err != nil {
			all = append(all, t.err)
			permanent = permanent || runtimes.IsPermanent(t.err)
		}
	}
	err := errors.Join(together(all)...)
	if permanent {
		return runtimes.Permanent(err)
	}
	return err
}

func inWaves(trials []*trial) [][]*trial {
	var groups [][]*trial
	for i, t := range trials {
		if i == 0 || t.wave != trials[i-1].wave {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], t)
	}
	return groups
}
