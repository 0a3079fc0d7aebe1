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
	Admission(ctx context.Context, q PlanQuestion) (PlanAdmission, error)
}

// PlanQuestion identifies the plan.
type PlanQuestion struct {
	Application, Channel string
	Service, Title       string // its first name and its current name
	Release, Version     string // id and full version
	Incarnation          int64
	Config               bool // it belongs to a configuration change
}

// PlanAdmission is the state of a service in a plan. Final: the plan needs intervention to let it enter.
type PlanAdmission struct {
	Enter, Final bool
	Reason       string
	RetryAfter   time.Duration // time of the next useful query
}

// planCheck passes once the plan that deploys the service lets it enter (E1). Values of aspects pass.
type planCheck struct{ sources Sources }

func (c planCheck) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	d := &a.Definition
	if d.Plan == nil {
		return incomplete(a)
	}
	if c.sources.Plans == nil || c.sources.Services == nil {
		return entities.CheckReading{}, errors.New("plans are not available here")
	}
	release, err := c.sources.release(ctx, a)
	switch {
	case err != nil:
		return entities.CheckReading{}, err
	case release.Aspect != "":
		return pass("it only releases values")
	case release.ID == "":
		return unevaluated("release %s is not known", a.Evaluation.Release)
	}
	isConfigRelease := strings.HasSuffix(release.Version, fmt.Sprintf("-i%d", release.Incarnation))
	s, err := c.sources.Plans.Admission(ctx, PlanQuestion{
		Application: d.Application, Channel: d.Channel, Service: a.Service, Title: d.Service, Release: release.ID, Version: release.Version,
		Incarnation: release.Incarnation, Config: isConfigRelease || slices.Contains(d.Plan.Versions, release.Version),
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
	if s.RetryAfter > 0 {
		r.Retry = a.Now.Add(s.RetryAfter)
	}
	return r, nil
}
