package compile

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// planGateID is the name that explain shows and bypass accepts.
const planGateID = "plan/deploy"

// planGate holds a release until the plan of the channel deploys the service. It is evaluated after approvals, so approvers do not have
// to wait for other services.
func (s *serviceCompiler) planGate(in *substitute.Scope, d *draft) []entities.Check {
	if s.works[in.Channel] == nil || !s.inPlan() && !s.needsCaptured(in, d) {
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

// inPlan reports whether the service waits for another service or another waits for it.
func (s *serviceCompiler) inPlan() bool {
	rules := s.config.Application.Spec.Plan
	return hasPlanSettings(s.Spec) || rules != nil && len(rules.Before) > 0 ||
		slices.ContainsFunc(s.config.Services, func(other *config.Document[config.Service]) bool { return refersTo(&other.Spec, s.Spec.Name) })
}

// refersTo reports whether the plan settings of a service name another one.
func refersTo(s *config.Service, other config.Name) bool {
	return slices.Contains(s.Requires, other) || slices.Contains(s.Integrations, other) ||
		slices.ContainsFunc(s.Feeds, func(f config.Feed) bool { return f.Aggregator == other }) ||
		slices.ContainsFunc(s.Reconcilers, func(r config.ReconcilerUse) bool { return slices.Contains(r.Requires, other) })
}
