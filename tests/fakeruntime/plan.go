package fakeruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// scriptedPlan is a scripted answer of an instance to Plan.
type scriptedPlan struct {
	changes []runtimes.Change
	err     error
}

// SetPlan makes Plan return this answer, until ComputePlan.
func (p *ScriptedInstance) SetPlan(err error, changes ...runtimes.Change) {
	p.set(func() { p.scriptedPlan = &scriptedPlan{changes, err} })
}

// ComputePlan makes Plan compute the differences again.
func (p *ScriptedInstance) ComputePlan() { p.set(func() { p.scriptedPlan = nil }) }

// HangPlans makes Plan wait until release is called or its context ends.
func (p *ScriptedInstance) HangPlans() (release func()) { return p.gate(&p.planGate) }

// Plans counts the calls of Plan that started here.
func (p *ScriptedInstance) Plans() int { return get(p, func() int { return p.plans }) }

// Plan implements runtimes.Planner: the differences between the running state and the version and environment of the instance.
func (r *Runtime) Plan(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	p := r.At(in.Application, in.Service, in.ID.String())
	if err := p.hang(ctx, &p.planGate, func() { p.plans++ }); err != nil {
		return nil, fmt.Errorf("plan %s in %s: %w", in.FullVersion, p.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.scriptedPlan != nil {
		return p.scriptedPlan.changes, p.scriptedPlan.err
	}
	change := runtimes.Change{Action: runtimes.ActionUpdate, Type: "fake", Name: in.Service}
	if p.current == "" {
		change.Action = runtimes.ActionCreate
		return []runtimes.Change{change}, nil
	}
	change.Fields = fields(map[string]string{"version": p.current}, map[string]string{"version": in.FullVersion})
	change.Fields = append(change.Fields, fields(environment(p.payload), environment(in.Payload))...)
	if len(change.Fields) == 0 && !p.drifted {
		return nil, nil
	}
	return []runtimes.Change{change}, nil
}

// PlanRemoval implements runtimes.RemovalPlanner: the running version would be removed.
func (r *Runtime) PlanRemoval(_ context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	p := r.At(in.Application, in.Service, in.ID.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.scriptedPlan != nil:
		return p.scriptedPlan.changes, p.scriptedPlan.err
	case p.current == "":
		return nil, nil
	}
	return []runtimes.Change{{Action: runtimes.ActionRemove, Type: "fake", Name: in.Service}}, nil
}

func environment(p *entities.Payload) map[string]string {
	flat := map[string]string{}
	if p == nil || p.Custom == nil {
		return flat
	}
	for name, v := range p.Custom.Env {
		flat["env."+name] = v.Literal
	}
	return flat
}

func fields(old, now map[string]string) []runtimes.FieldChange {
	all := maps.Clone(old)
	maps.Copy(all, now)
	var out []runtimes.FieldChange
	for _, path := range slices.Sorted(maps.Keys(all)) {
		before, had := old[path]
		after, has := now[path]
		if had == has && before == after {
			continue
		}
		out = append(out, runtimes.FieldChange{Path: path, Old: quoted(before, had), New: quoted(after, has)})
	}
	return out
}

func quoted(text string, present bool) string {
	if !present {
		return ""
	}
	data, _ := json.Marshal(text) // text never fails
	return string(data)
}
