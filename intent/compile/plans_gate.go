package compile

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// planGateID is what explain shows and bypass names.
const planGateID = "plan/deploy"

// planGate holds a release until the plan of the channel deploys the service. It is asked after approvals, as nobody has to wait for
// others to approve.
func (s *serviceCompiler) planGate(in *substitute.Scope, d *draft) []entities.Check {
	if s.works[in.Channel] == nil || !s.inPlan() && !s.takesCaptured(in, d) {
		return nil
	}
	check := &entities.PlanCheck{}
	for _, version := range []string{string(s.Spec.Version), string(s.Spec.InitialVersion)} {
		if version != "" {
			check.Versions = append(check.Versions, version)
		}
	}
	return []entities.Check{{
		ID: planGateID, Kind: entities.CheckPlan, At: []entities.CheckAt{{Stage: entities.PostApproval}}, Interval: dependencyInterval,
		Definition: s.define(entities.CheckDefinition{
			Application: in.Application, Service: in.Service, Channel: in.Channel, ID: planGateID, Kind: entities.CheckPlan, Plan: check,
		}),
	}}
}

// inPlan tells whether the service has anything to wait for, or others for it.
func (s *serviceCompiler) inPlan() bool {
	rules := s.config.Application.Spec.Plan
	return fitted(s.Spec) || rules != nil && len(rules.Before) > 0 ||
		slices.ContainsFunc(s.config.Services, func(other *config.Document[config.Service]) bool { return names(&other.Spec, s.Spec.Name) })
}

// names tells whether a service says that it is fitted together with another one.
func names(s *config.Service, other config.Name) bool {
	return slices.Contains(s.Requires, other) || slices.Contains(s.Integrations, other) ||
		slices.ContainsFunc(s.Feeds, func(f config.Feed) bool { return f.Aggregator == other }) ||
		slices.ContainsFunc(s.Reconcilers, func(r config.ReconcilerUse) bool { return slices.Contains(r.Requires, other) })
}
