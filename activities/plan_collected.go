package activities

import (
	"context"
	"slices"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file collects the input of an aggregator (E3, E11). A service whose deployment failed keeps the input of its last successful
// deployment.

// collected returns the fragments of services for the aggregator of a node, by service.
func (a *Activities) collected(ctx context.Context, work *plan.Work, w *protocol.PlanWork) (all []plan.Fragment, err error) {
	n := nodeOf(w)
	if !n.Collects() {
		return nil, nil
	}
	record, err := a.Store.Plan(ctx, w.PlanRef)
	if err != nil {
		return nil, err
	}
	p, err := a.buildPlan(ctx, &record)
	if err != nil {
		return nil, err
	}
	for i := range work.Services {
		s := &work.Services[i]
		from, name := work, s.Name
		if fallback, err := a.fallbackIncarnation(ctx, &p, &record, name, w.Undeployed); err != nil {
			return nil, err
		} else if fallback >= 0 {
			if from, err = a.workOf(ctx, work, fallback); err != nil {
				return nil, err
			}
			name = ""
			if from != nil {
				name, _ = from.ServiceByKey(work.KeyOf(s.Name))
			}
		}
		if from == nil || name == "" {
			continue
		}
		for _, f := range from.Fragments {
			if f.Service == name && f.Aggregator == n.Service {
				f.Service = s.Name
				all = append(all, f)
			}
		}
	}
	return all, nil
}

// fallbackIncarnation returns the incarnation of the last successful deployment of a service whose deployment failed since; 0: there is
// none; -1: it did not fail.
func (a *Activities) fallbackIncarnation(ctx context.Context, p *planned, r *protocol.PlanRecord, service string, undeployed []string) (int64, error) {
	failed := slices.Contains(undeployed, service)
	if !failed && len(p.deployNodes(service)) > 0 {
		return -1, nil // this plan deploys it
	}
	marked := func(mark store.PlanMark) (int64, error) {
		return a.Store.PlanMarked(ctx, r.Application, r.Channel, mark)
	}
	key := p.keyOf(service)
	deployed, err := marked(store.PlanDeployed(key))
	if err != nil || failed {
		return min(deployed, r.Incarnation), err
	}
	failedAt, err := marked(store.PlanDeployFailed(key))
	if err != nil || failedAt <= deployed || failedAt > r.Incarnation {
		return -1, err
	}
	return deployed, nil
}

// workOf returns the plan of an earlier incarnation in the channel; nil: none.
func (a *Activities) workOf(ctx context.Context, work *plan.Work, incarnation int64) (*plan.Work, error) {
	number, err := a.Store.Number(ctx, work.Application, incarnation)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	inc, err := a.Store.Incarnation(ctx, number.Hash)
	if err != nil {
		return nil, err
	}
	return inc.Work(work.Channel), nil
}

// collectsSameInput reports whether the input of an aggregator is the same as without any failure.
func (a *Activities) collectsSameInput(ctx context.Context, work *plan.Work, w *protocol.PlanWork) (bool, error) {
	now, err := a.collected(ctx, work, w)
	return slices.Equal(now, work.Input(nodeOf(w)).Fragments), err
}
