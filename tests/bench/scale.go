package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	scaleApplications = 300 // of ten thousand services; of fewer as large a part
	scaleWindow       = steadyDefault
	scaleSettles      = 10 * time.Minute // until what making them left behind is done, and each instance is read by one worker
	unobserved        = 24 * time.Hour   // between readings: none of them in a window, but for a handful
	goalActions       = 1000             // an hour, of ten thousand services
	goalPublished     = time.Second / 45 // a service, until it has converged
)

// scaled is many services in many applications, in three channels on a runtime each that all of them share, with two workers.
type scaled struct {
	*world
	services     int
	applications []application
}

func newScaled(w *world, services int) *scaled {
	n := max(1, services*scaleApplications/manyServices)
	s := &scaled{world: w, services: services}
	for i := range n {
		s.applications = append(s.applications, application{
			name: fmt.Sprintf("a%03d", i), channels: 3, shared: []string{"eu", "us", "asia"}, defines: i == 0, version: "v1",
			services: serviceNames((i+1)*services/n - i*services/n),
		})
	}
	return s
}

// change publishes all applications, four at a time, and waits until all services have converged at a version. What is steady then is read
// at the interval.
func (s *scaled) change(ctx context.Context, setting string, steady time.Duration, version string) (time.Duration, error) {
	began := time.Now()
	teams, of := errgroup.WithContext(ctx)
	teams.SetLimit(4)
	for i := range s.applications {
		s.applications[i].setting, s.applications[i].steady = setting, steady
		publish := func() error { return s.publish(of, s.applications[i]) }
		if !s.applications[i].defines {
			teams.Go(publish)
		} else if err := publish(); err != nil { // the others go to its runtimes
			return 0, err
		}
	}
	if err := teams.Wait(); err != nil {
		return 0, err
	}
	query := fmt.Sprintf("WorkflowType='%s' AND %s='CONVERGED' AND %s='%s' AND ExecutionStatus='Running'",
		protocol.ServiceWorkflow, protocol.AttrStatus, protocol.AttrVersion, version)
	err := until(ctx, time.Second, func() (bool, error) {
		found, err := s.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		return found.GetCount() >= int64(s.services), err
	})
	return time.Since(began), err
}

// measureScale publishes many services, has them rest, and changes all of them; then they rest unobserved.
func measureScale(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.another(ctx); err != nil {
		return err
	}
	s := newScaled(w, b.scale)
	nothing, err := s.spent()
	if err != nil {
		return err
	}
	took, err := s.change(ctx, "", steadyDefault, "v1")
	if err != nil {
		return err
	}
	made, err := s.spent()
	if err != nil {
		return err
	}
	of := fmt.Sprintf("%d services in %d applications, %d instances", s.services, len(s.applications), 3*s.services)
	s.changed(b, "published and converged: "+of, took, nothing, made, report.Ref(report.Dur(goalPublished)))
	read, err := s.rest(ctx)
	if err != nil {
		return err
	}
	read.report(b, fmt.Sprintf("at rest, read every %s", short(steadyDefault)), nil)
	s.actions(b, read)
	before, err := s.spent()
	if err != nil {
		return err
	}
	if took, err = s.change(ctx, "changed", unobserved, "v1-i2"); err != nil {
		return err
	}
	after, err := s.spent()
	if err != nil {
		return err
	}
	s.changed(b, "an incarnation that changes all of them", took, before, after, nil)
	held, err := s.rest(ctx)
	if err != nil {
		return err
	}
	held.report(b, "held, nobody reads them", s.share(goalHeld))
	b.Add(report.Line{
		Row: b.row, What: "read every " + short(steadyDefault) + ", above that", Measured: report.Of(read.total()-held.total(), report.Cores), Goal: s.share(goalIdle),
	})
	return nil
}

// share is what of a goal for ten thousand services is that of these, as a part of a core.
func (s *scaled) share(goal float64) *report.Value {
	return report.Ref(report.Of(goal*float64(s.services)/manyServices, report.Cores))
}

// changed reports a change of all.
func (s *scaled) changed(b *bench, what string, took time.Duration, before, after spent, goal *report.Value) {
	server, worker := after.since(before)
	of, taken := actionsSince(before.server, after.server)
	n := time.Duration(s.services)
	b.Add(report.Line{
		Row: b.row, What: what + ", a service", Measured: report.Dur(took / n), Goal: goal,
		Spread: fmt.Sprintf("%.1f/s, all in %s; CPU of the server %s, of the workers %s, %.1f actions", float64(s.services)/took.Seconds(), took.Round(time.Second),
			report.Dur(server/n), report.Dur(worker/n), float64(taken)/float64(s.services)),
	})
	b.Note(b.row, "%s, actions: %s", what, kindsOf(of))
	for _, p := range []struct {
		what string
		used usage
	}{{"server", after.server}, {"workers", after.worker}} {
		b.Add(report.Line{Row: b.row, What: "memory of the " + p.what + " then", Measured: report.Of(float64(p.used.Memory), report.Bytes)})
	}
}

// resting is what services take while nothing happens.
type resting struct {
	server, workers float64 // parts of a core
	readings        int
	window          time.Duration
	actions         map[string]int64
	taken           int64
}

// rest waits until what was done before is put away, and measures.
func (s *scaled) rest(ctx context.Context) (r resting, err error) {
	if err := pause(ctx, scaleSettles); err != nil {
		return r, err
	}
	before, err := s.spent()
	if err != nil {
		return r, err
	}
	readings, began := s.stage.readingsSoFar(), time.Now()
	if err := pause(ctx, scaleWindow); err != nil {
		return r, err
	}
	after, err := s.spent()
	r.readings, r.window = s.stage.readingsSoFar()-readings, time.Since(began)
	r.server, r.workers = rested(before, after, r.window)
	r.actions, r.taken = actionsSince(before.server, after.server)
	return r, err
}

func (r resting) total() float64 { return r.server + r.workers }

func (r resting) report(b *bench, what string, goal *report.Value) {
	b.Add(report.Line{
		Row: b.row, What: what, Measured: report.Of(r.total(), report.Cores), Goal: goal,
		Spread: fmt.Sprintf("server %s, workers %s; %d readings in %s", report.Of(r.server, report.Cores), report.Of(r.workers, report.Cores), r.readings, r.window.Round(time.Second)),
	})
}

// actions reports those of an hour.
func (s *scaled) actions(b *bench, r resting) {
	// In a short window the server repeats hardly any observation: what it does in its own time is added.
	hourly := float64(r.taken)/r.window.Hours() + float64(s.services)/protocol.ServerPollInterval.Hours()
	b.Add(report.Line{
		Row: b.row, What: "actions an hour", Measured: report.Of(hourly, "actions"),
		Spread: fmt.Sprintf("%d in the window; with the server's own observations, every %s (worked out)", r.taken, short(protocol.ServerPollInterval)),
		Goal:   report.Ref(report.Of(goalActions*float64(s.services)/manyServices, "actions")),
	})
	if len(r.actions) > 0 {
		b.Note(b.row, "actions at rest: %s", kindsOf(r.actions))
	}
}
