package compile

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
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
	var before *entities.Amount
	for i, s := range given.Steps {
		at := strict.Index(at+".steps", i)
		step := entities.RolloutStep{Instances: (*entities.Amount)(s.Instances)}
		if fault := wrongStep(app.Has(at+".instances"), app.Has(at+".pause"), before, step.Instances); fault != nil && !app.Faulty(at) {
			c.report(app.Decoder, at, *fault)
			continue
		}
		if step.Instances == nil {
			step.Pause = c.atLeast(app.Decoder, at+".pause", s.Pause, span{time.Second, time.Second})
		} else {
			before = step.Instances
		}
		r.Steps = append(r.Steps, step)
	}
	return r
}

// wrongStep says what is wrong with a step after another that updated so many, or nil.
func wrongStep(instances, pause bool, before, now *entities.Amount) *strict.Fault {
	switch {
	case instances == pause:
		return &strict.Fault{Code: "one-of", Message: "a step is one thing", Expected: `"instances" or "pause"`}
	case pause && before == nil:
		return &strict.Fault{Code: "bad-value", Message: "nothing is updated yet that could be waited for", Expected: `"instances" first`}
	case pause && before.Percent == 100:
		return &strict.Fault{Code: "bad-value", Message: "nothing is left to be updated after this pause", Expected: "no pause; postconditions watch what is updated"}
	case pause || before == nil || now == nil:
		return nil
	case before.Percent > 0 == (now.Percent > 0) && now.Percent+now.Number <= before.Percent+before.Number:
		return &strict.Fault{Code: "bad-value", Message: fmt.Sprintf("%s is no more than %s of the step before", now, before), Expected: "more, since those are among them"}
	}
	return nil
}
