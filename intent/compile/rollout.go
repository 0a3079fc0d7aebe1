package compile

import (
	"cmp"
	"fmt"
	"path"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// rollout checks the rollout policy of a channel; nil: all instances at once.
func (c *compiler) rollout(app *config.Document[config.Application], at string, declared *config.Rollout) *entities.Rollout {
	if declared == nil {
		return nil
	}
	r := &entities.Rollout{MaxUnavailable: (*entities.Amount)(declared.MaxUnavailable), Command: declared.Command}
	c.rolloutCommand(app, at, declared)
	for i, s := range declared.Steps {
		r.Steps = c.step(app, strict.Index(at+".steps", i), "instances", s, r.Steps)
	}
	return r
}

// rolloutCommand checks that the policy has either steps or a command.
func (c *compiler) rolloutCommand(app *config.Document[config.Application], at string, given *config.Rollout) {
	command := app.Has(at + ".command")
	switch {
	case app.Faulty(at):
	case !command && len(given.Steps) == 0 && given.MaxUnavailable == nil:
		c.report(app.Decoder, at, strict.Fault{Code: "missing-field", Message: "the policy is empty", Expected: `"steps" or "command", "maxUnavailable", or both`})
	case command && app.Has(at+".steps"):
		c.report(app.Decoder, at+".command", strict.Fault{Code: "one-of", Message: `"steps" and "command" are both given`, Expected: "one of them"})
	}
	for _, field := range []string{"env", "timeout"} {
		if !command && app.Has(at+"."+field) {
			c.report(app.Decoder, at+"."+field, strict.Fault{Code: "one-of", Message: "there is no command", Expected: `"command" with it`})
		}
	}
	(&fieldCompiler{c: c, d: app.Decoder, at: at}).selection(given)
}

// selection sets the command that selects instances.
func (f *fieldCompiler) selection(given *config.Rollout) *entities.CheckRun {
	return &entities.CheckRun{
		Command: f.command(f.at, given.Command, f.period(f.at+".timeout", given.Timeout, span{defaultCommandTimeout, time.Millisecond})),
		Env:     f.env(f.at+".env", given.Env),
	}
}

// selection returns the check that runs the command of a channel's policy for the service; none without a command.
func (s *serviceCompiler) selection(in *substitute.Scope, at string, given *config.Rollout, refs []runtimeRef) []entities.Check {
	if given == nil || len(given.Command) == 0 {
		return nil
	}
	app := s.config.Application
	f := &fieldCompiler{c: s.compiler, d: app.Decoder, at: at, scope: s.referenceScope(in, declaration{}, reference{})}
	definition := entities.CheckDefinition{
		Application: in.Application, Service: in.Service, Channel: in.Channel, ID: entities.SelectionID, Kind: entities.CheckSelection,
		Dir: path.Dir(app.File), Command: f.selection(given),
	}
	for _, ref := range refs {
		if labels := s.runtimes[ref.name].Labels; len(labels) > 0 {
			definition.RuntimeLabels = with(definition.RuntimeLabels, ref.name, labels)
		}
	}
	return []entities.Check{{ID: definition.ID, Kind: definition.Kind, Definition: s.define(definition), Interval: defaultInterval}}
}

// step adds a step unless it is invalid. Amount is the name of the field with the number of updated instances.
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

// configRollout checks the rollout policy for changes of configuration; nil: all services at once.
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

// configRolloutID is the name that explain shows and bypass accepts.
const configRolloutID = "config-rollout/services"

// configRolloutCheck holds a change of configuration until it is the service's turn. It is evaluated after approvals, so approvers do
// not have to wait for the turn.
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

// wrongStep returns the problem of a step, compared with the amount of the previous step, or nil.
func wrongStep(amount string, given, pause bool, before, now *entities.Amount) *strict.Fault {
	switch {
	case given == pause:
		return &strict.Fault{Code: "one-of", Message: "a step has one field", Expected: fmt.Sprintf("%q or \"pause\"", amount)}
	case pause && before == nil:
		return &strict.Fault{Code: "bad-value", Message: "nothing is updated before this pause", Expected: fmt.Sprintf("%q first", amount)}
	case pause && before.Percent == 100:
		return &strict.Fault{Code: "bad-value", Message: "nothing is updated after this pause", Expected: "no pause; postconditions watch what is updated"}
	case pause || before == nil || now == nil:
		return nil
	case before.Percent > 0 == (now.Percent > 0) && now.Percent+now.Number <= before.Percent+before.Number:
		return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%s is not more than %s of the previous step", now, before), Expected: "more, because a step includes the earlier ones"}
	}
	return nil
}
