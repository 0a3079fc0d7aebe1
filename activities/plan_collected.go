package activities

import (
	"context"
	"slices"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file says what an aggregator is given (E3, E11). A service whose deployment failed keeps what it had for it when it was deployed last.

// collected is what services have for the aggregator of a node, by service.
func (a *Activities) collected(ctx context.Context, work *plan.Work, w *protocol.PlanWork) (all []plan.Fragment, err error) {
	n := nodeOf(w)
	if !n.Collects() {
		return nil, nil
	}
	record, err := a.Store.Plan(ctx, w.PlanRef)
	if err != nil {
		return nil, err
	}
	p, err := a.planOf(ctx, &record)
	if err != nil {
		return nil, err
	}
	for i := range work.Services {
		s := &work.Services[i]
		from, name := work, s.Name
		if back, err := a.goesBackTo(ctx, &p, &record, name, w.Undeployed); err != nil {
			return nil, err
		} else if back >= 0 {
			if from, err = a.workOf(ctx, work, back); err != nil {
				return nil, err
			}
			name = ""
			if from != nil {
				name, _ = from.Called(work.KeyOf(s.Name))
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

// goesBackTo is the incarnation that has what a service was deployed with last, where its deployment failed since; 0: there is none. -1: it
// did not fail.
func (a *Activities) goesBackTo(ctx context.Context, p *planned, r *protocol.PlanRecord, service string, undeployed []string) (int64, error) {
	failed := slices.Contains(undeployed, service)
	if !failed && len(p.deploys(service)) > 0 {
		return -1, nil // it is deployed by this plan
	}
	marked := func(mark store.PlanMark) (int64, error) {
		return a.Store.PlanMarked(ctx, r.Application, r.Channel, mark)
	}
	key := p.keyOf(service)
	deployed, err := marked(store.PlanDeployed(key))
	if err != nil || failed {
		return min(deployed, r.Incarnation), err
	}
	notSince, err := marked(store.PlanUndeployed(key))
	if err != nil || notSince <= deployed || notSince > r.Incarnation {
		return -1, err
	}
	return deployed, nil
}

// workOf is what an earlier incarnation plans in the channel; nil: nothing.
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

// collectsTheSame tells whether an aggregator is given what it would be if nothing had failed.
func (a *Activities) collectsTheSame(ctx context.Context, work *plan.Work, w *protocol.PlanWork) (bool, error) {
	now, err := a.collected(ctx, work, w)
	return slices.Equal(now, work.Input(nodeOf(w)).Fragments), err
}
