package compile

import (
	"cmp"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// rollout checks the policy by which releases go through a channel; nil: to all instances at once.
func (c *compiler) rollout(app *config.Document[config.Application], at string, given *config.Rollout) *entities.Rollout {
	if given == nil {
		return nil
	}
	r := &entities.Rollout{MaxUnavailable: (*entities.Amount)(given.MaxUnavailable)}
	if len(given.Steps) == 0 && given.MaxUnavailable == nil && !app.Faulty(at) {
		c.report(app.Decoder, at, strict.Fault{Code: "missing-field", Message: "the policy says nothing", Expected: `"steps", "maxUnavailable" or both`})
	}
	for i, s := range given.Steps {
		r.Steps = c.step(app, strict.Index(at+".steps", i), "instances", s, r.Steps)
	}
	return r
}

// step adds a step to those before, unless it is wrong; so many are updated by the field that is called amount.
func (c *compiler) step(app *config.Document[config.Application], at, amount string, given config.RolloutStep, before []entities.RolloutStep) []entities.RolloutStep {
	step := entities.RolloutStep{Instances: (*entities.Amount)(given.Instances)}
	var last *entities.Amount
	for _, s := range before {
		last = cmp.Or(s.Instances, last)
	}
	if fault := wrongStep(amount, app.Has(at+"."+amount), app.Has(at+".pause"), last, step.Instances); fault != nil && !app.Faulty(at) {
		c.report(app.Decoder, at, *fault)
		return before
	}
	if step.Instances == nil {
		step.Pause = c.atLeast(app.Decoder, at+".pause", given.Pause, span{time.Second, time.Second})
	}
	return append(before, step)
}

// configRollout checks the policy by which a change of configuration goes through the services; nil: to all at once.
func (c *compiler) configRollout(app *config.Document[config.Application]) *entities.ConfigRollout {
	given := app.Spec.ConfigRollout
	if given == nil {
		return nil
	}
	r := &entities.ConfigRollout{MaxFailures: 1}
	if given.MaxFailures != nil {
		r.MaxFailures = *given.MaxFailures
	}
	if r.MaxFailures < 1 {
		c.report(app.Decoder, "configRollout.maxFailures", strict.Fault{
			Code: "bad-value", Message: fmt.Sprintf("this is %d", r.MaxFailures), Expected: "1 or more",
		})
	}
	for i, s := range given.Steps {
		r.Steps = c.step(app, strict.Index("configRollout.steps", i), "services", config.RolloutStep{Instances: s.Services, Pause: s.Pause}, r.Steps)
	}
	return r
}

// configRolloutID is what explain shows and bypass names.
const configRolloutID = "config-rollout/services"

// configRolloutCheck holds a change of configuration until it is the service's turn. It is asked after approvals: nobody has to wait for
// the turn to approve.
func (s *serviceCompiler) configRolloutCheck(in *substitute.Scope) []entities.Check {
	if s.configSteps == nil {
		return nil
	}
	return []entities.Check{{
		ID: configRolloutID, Kind: entities.CheckConfigRollout, At: []entities.CheckAt{{Stage: entities.PostApproval}}, Interval: dependencyInterval,
		Definition: s.define(entities.CheckDefinition{
			Application: in.Application, Service: in.Service, Channel: in.Channel, ID: configRolloutID, Kind: entities.CheckConfigRollout,
			ConfigRollout: s.configSteps,
		}),
	}}
}

// wrongStep says what is wrong with a step after another that updated so many, or nil.
func wrongStep(amount string, given, pause bool, before, now *entities.Amount) *strict.Fault {
	switch {
	case given == pause:
		return &strict.Fault{Code: "one-of", Message: "a step is one thing", Expected: fmt.Sprintf("%q or \"pause\"", amount)}
	case pause && before == nil:
		return &strict.Fault{Code: "bad-value", Message: "nothing is updated yet that could be waited for", Expected: fmt.Sprintf("%q first", amount)}
	case pause && before.Percent == 100:
		return &strict.Fault{Code: "bad-value", Message: "nothing is left to be updated after this pause", Expected: "no pause; postconditions watch what is updated"}
	case pause || before == nil || now == nil:
		return nil
	case before.Percent > 0 == (now.Percent > 0) && now.Percent+now.Number <= before.Percent+before.Number:
		return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%s is no more than %s of the step before", now, before), Expected: "more, since those are among them"}
	}
	return nil
}
