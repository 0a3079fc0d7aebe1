package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Plans reports whether the plan that deploys a service lets it enter, and starts that plan if it is not running.
type Plans interface {
	Standing(ctx context.Context, q PlanQuestion) (PlanStanding, error)
}

// PlanQuestion identifies the plan.
type PlanQuestion struct {
	Application, Channel string
	Service, Title       string // its first name and its current name
	Release, Version     string // id and full version
	Incarnation          int64
	Config               bool // it belongs to a configuration change
}

// PlanStanding is the state of a service in a plan. Final: the plan needs intervention to let it enter.
type PlanStanding struct {
	Enter, Final bool
	Reason       string
	Again        time.Duration // time of the next useful query
}

// inPlan passes once the plan that deploys the service lets it enter (E1). Values of aspects pass.
type inPlan struct{ sources Sources }

func (c inPlan) Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error) {
	d := &a.Definition
	if d.Plan == nil {
		return incomplete(a)
	}
	if c.sources.Plans == nil || c.sources.Services == nil {
		return entities.CheckReading{}, errors.New("plans are not available here")
	}
	release, err := c.sources.asked(ctx, a)
	switch {
	case err != nil:
		return entities.CheckReading{}, err
	case release.Aspect != "":
		return pass("it only releases values")
	case release.ID == "":
		return unevaluated("release %s is not known", a.Evaluation.Release)
	}
	ofConfig := strings.HasSuffix(release.Version, fmt.Sprintf("-i%d", release.Incarnation))
	s, err := c.sources.Plans.Standing(ctx, PlanQuestion{
		Application: d.Application, Channel: d.Channel, Service: a.Service, Title: d.Service, Release: release.ID, Version: release.Version,
		Incarnation: release.Incarnation, Config: ofConfig || slices.Contains(d.Plan.Versions, release.Version),
	})
	if err != nil {
		return entities.CheckReading{}, err
	}
	r := entities.CheckReading{Verdict: entities.Wait, Reason: s.Reason}
	switch {
	case s.Enter:
		r.Verdict = entities.Pass
	case s.Final:
		r.Verdict = entities.Fail
	}
	if s.Again > 0 {
		r.Retry = a.Now.Add(s.Again)
	}
	return r, nil
}
