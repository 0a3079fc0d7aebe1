package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflow/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	manyProtections = 10
	restingServices = 20
	// readingsOfAnHour at the default interval are taken in the window.
	readingsOfAnHour = int(time.Hour / steadyDefault)
	askEvery         = time.Second
	aDay             = 24 * time.Hour
)

// gatesAtRest lets services rest that declare many protections, all of which ask outside: nothing may
// be asked, nothing written.
func gatesAtRest(ctx context.Context, b *bench, w *world, o *outside) error {
	var items []string
	for n := range manyProtections {
		items = append(items, fmt.Sprintf("{name: p%d, http: {url: %q}, interval: 1s}", n, o.URL))
	}
	a := application{
		name: "rest", channels: 1, services: serviceNames(restingServices), version: "v1",
		steady: b.window / time.Duration(readingsOfAnHour), gates: protections(items...),
	}
	if err := w.publish(ctx, a); err != nil {
		return err
	}
	for _, s := range a.services {
		if err := until(ctx, 3*breath, func() (bool, error) { return w.converged(ctx, a, s, a.version) }); err != nil {
			return err
		}
	}
	if err := pause(ctx, 2*a.steady); err != nil {
		return err
	}
	readings := w.stage.readingsSoFar()
	grown, of, asked, err := w.quiet(ctx, b, a, o)
	if err != nil {
		return err
	}
	b.Add(report.Line{
		Row:  b.row,
		What: fmt.Sprintf("events of %d idle services with %d protections each, in the readings of an hour", restingServices, manyProtections), Measured: report.Of(float64(grown), "events"),
		Spread: fmt.Sprintf("%d readings of objects %s", w.stage.readingsSoFar()-readings, of), Goal: report.Ref(report.Of(0, "events")),
	})
	b.Add(report.Line{Row: b.row, What: "checks asked meanwhile", Measured: report.Of(float64(asked), "calls"), Goal: report.Ref(report.Of(0, "calls"))})
	return nil
}

// quiet counts the events and the questions of a window in which nothing happens.
func (w *world) quiet(ctx context.Context, b *bench, a application, o *outside) (grown int64, of string, asked int64, err error) {
	before, err := w.lengths(ctx, a)
	if err != nil {
		return 0, "", 0, err
	}
	asked = o.asked.Load()
	if err := pause(ctx, b.window); err != nil {
		return 0, "", 0, err
	}
	asked = o.asked.Load() - asked
	grown, of, err = w.growth(ctx, a, before)
	return grown, of, asked, err
}

// gatesWaiting blocks a release with a check that goes on saying no, and another one in a freeze.
func gatesWaiting(ctx context.Context, b *bench, w *world, o *outside) error {
	o.shut.Store(true)
	blocked := application{name: "blocked", channels: 1, services: []string{"web"}, steady: time.Hour, gates: protections(
		fmt.Sprintf("{name: ask, http: {url: %q}, interval: %s}", o.URL, askEvery))}
	if err := w.block(ctx, blocked); err != nil {
		return err
	}
	grown, of, asked, err := w.quiet(ctx, b, blocked, o)
	if err != nil {
		return err
	}
	b.Add(report.Line{
		Row: b.row, What: fmt.Sprintf("events of a release that waits for a check for %s, asked every %s", b.window, askEvery),
		Measured: report.Of(float64(grown), "events"), Spread: fmt.Sprintf("%d times asked %s", asked, of), Goal: report.Ref(report.Of(0, "events")),
	})
	now := time.Now().UTC()
	freeze := application{name: "freeze", channels: 1, services: []string{"web"}, steady: time.Hour, gates: protections(
		fmt.Sprintf("{name: freeze, allowedTimes: {timeZone: UTC, freezes: [{from: %q, to: %q, reason: bench}]}}",
			now.AddDate(0, 0, -1).Format(time.DateOnly), now.AddDate(0, 0, 21).Format(time.DateOnly)))}
	if err := w.block(ctx, freeze); err != nil {
		return err
	}
	if grown, of, _, err = w.quiet(ctx, b, freeze, o); err != nil {
		return err
	}
	b.Add(report.Line{
		Row: b.row, What: fmt.Sprintf("events of a release in a freeze of three weeks, in %s", b.window),
		Measured: report.Of(float64(grown), "events"), Spread: of, Goal: report.Ref(report.Of(0, "events")),
	})
	d, err := w.describe(ctx, protocol.ServiceID(freeze.name, "web"))
	if err != nil {
		return err
	}
	next := nextReading(d.GetPendingActivities())
	if next <= 0 {
		return fmt.Errorf("nothing watches the freeze: %v", d.GetPendingActivities())
	}
	b.Add(report.Line{
		Row: b.row, What: "readings of the calendar a day (worked out)", Measured: report.Of(float64(aDay/next), "readings"),
		Spread: "the next comes after " + next.Round(time.Minute).String(),
	})
	return nil
}

// block publishes a service, releases, and waits until the release waits and nothing is written any more.
func (w *world) block(ctx context.Context, a application) error {
	if err := w.publish(ctx, a); err != nil {
		return err
	}
	id := protocol.ServiceID(a.name, a.services[0])
	if _, err := signalRelease(ctx, w.client, id, "v1"); err != nil {
		return err
	}
	if err := w.reaches(ctx, id, "v1", "WAITING_PRECONDITIONS"); err != nil {
		return err
	}
	return w.rests(ctx, id)
}

// nextReading is the time between the last attempt of a reading of checks and its next; 0 when there is none.
func nextReading(pending []*workflow.PendingActivityInfo) time.Duration {
	for _, p := range pending {
		if p.GetActivityType().GetName() == protocol.ActivityCheck && p.GetNextAttemptScheduleTime() != nil {
			return p.GetNextAttemptScheduleTime().AsTime().Sub(p.GetLastAttemptCompleteTime().AsTime())
		}
	}
	return 0
}
