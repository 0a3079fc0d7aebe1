package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	// Readings are as seldom as workers make them by themselves (docs/decisions/0011-observations-cost-no-history.md), and so each
	// service is read once in a window.
	idleInterval = time.Minute
	// What the readings of the window are extrapolated to, as docs/benchmarks.md has it.
	manyServices  = 10000
	steadyDefault = 5 * time.Minute
	goalHeld      = 0.10 // of a core, without readings
	goalIdle      = 0.02 // of a core, for readings
)

// idleCost is what was measured while services were idle.
type idleCost struct {
	services        int
	restFor, window time.Duration
	// Before there were services, at the begin and the end of a rest; before and after a window without readings, and one with.
	first, atRest, held, heldEnd, begin, end spent
	created                                  time.Duration
	server, worker                           cost
	readings                                 int
	events                                   int64 // written in the window
}

// cost is what one of the two processes had to do.
type cost struct {
	making  time.Duration // of CPU, for one service
	reading time.Duration // of CPU, for one reading
	memory  int64         // for one service
	atRest  float64       // part of a core, without readings
	busy    float64       // part of a core, in the window
}

// measureIdle makes many services, lets them converge, and watches them doing nothing: first some that nobody reads, and then, with a
// server of their own, as many that are read.
func measureIdle(ctx context.Context, b *bench) error {
	h := idleCost{services: b.services, window: max(b.window, idleInterval), restFor: max(b.window/6, 5*time.Second)}
	a := application{name: "idle", channels: 1, services: serviceNames(b.services), version: "v1", steady: unobserved}
	if err := h.in(ctx, b, a, h.hold); err != nil {
		return err
	}
	a.steady = idleInterval
	if err := h.in(ctx, b, a, func(ctx context.Context, w *world) error { return h.watch(ctx, w, a) }); err != nil {
		return err
	}
	h.work()
	h.report(b, a)
	return nil
}

// in makes the services in a world of their own, and measures there.
func (h *idleCost) in(ctx context.Context, b *bench, a application, measure func(context.Context, *world) error) (err error) {
	dir, err := os.MkdirTemp(b.dir, "idle")
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := h.create(ctx, w, a); err != nil {
		return err
	}
	return measure(ctx, w)
}

// create publishes all services at once, each with a version to release, and waits until they have
// converged.
func (h *idleCost) create(ctx context.Context, w *world, a application) error {
	err := pause(ctx, time.Second) // a server that has just started is busy with itself
	if err != nil {
		return err
	}
	if h.first, err = w.spent(); err != nil {
		return err
	}
	if err = pause(ctx, h.restFor); err != nil {
		return err
	}
	if h.atRest, err = w.spent(); err != nil {
		return err
	}
	began := time.Now()
	if err = w.publish(ctx, a); err != nil {
		return err
	}
	query := fmt.Sprintf("WorkflowType='%s' AND %s='CONVERGED'", protocol.ServiceWorkflow, protocol.AttrStatus)
	if err = until(ctx, time.Second/4, func() (bool, error) {
		if len(w.stage.Applies()) < len(a.services) {
			return false, nil
		}
		found, err := w.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		return found.GetCount() >= int64(len(a.services)), err
	}); err != nil {
		return fmt.Errorf("not all services converged: %w", err)
	}
	h.created = time.Since(began)
	return nil
}

// hold measures the services while nobody reads them.
func (h *idleCost) hold(ctx context.Context, w *world) error {
	made, err := w.spent()
	if err != nil {
		return err
	}
	server, worker := made.since(h.atRest)
	h.server.making, h.worker.making = server/time.Duration(h.services), worker/time.Duration(h.services)
	if err = pause(ctx, 2*idleInterval); err != nil { // until what making them left behind is done
		return err
	}
	if h.held, err = w.spent(); err != nil {
		return err
	}
	if err = pause(ctx, h.window); err != nil {
		return err
	}
	h.heldEnd, err = w.spent()
	return err
}

// watch counts over the window, which begins when every service has been read again.
func (h *idleCost) watch(ctx context.Context, w *world, a application) error {
	if err := pause(ctx, 2*a.steady); err != nil {
		return err
	}
	before, err := w.events(ctx, a)
	if err != nil {
		return err
	}
	if h.begin, err = w.spent(); err != nil {
		return err
	}
	readings, began := w.stage.readingsSoFar(), time.Now()
	if err = pause(ctx, h.window); err != nil {
		return err
	}
	h.readings, h.window = w.stage.readingsSoFar()-readings, time.Since(began)
	if h.end, err = w.spent(); err != nil {
		return err
	}
	after, err := w.events(ctx, a)
	h.events = after - before
	return err
}

// events is how many events the histories of all services have.
func (w *world) events(ctx context.Context, a application) (int64, error) {
	lengths, err := w.lengths(ctx, a)
	var n int64
	for _, length := range lengths {
		n += length
	}
	return n, err
}

// lengths is how many events the history of each service has.
func (w *world) lengths(ctx context.Context, a application) ([]int64, error) {
	out := make([]int64, len(a.services))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, s := range a.services {
		g.Go(func() error {
			d, err := w.describe(ctx, protocol.ServiceID(a.name, s))
			out[i] = d.GetWorkflowExecutionInfo().GetHistoryLength()
			return err
		})
	}
	return out, g.Wait()
}

// work turns what was counted into what a service and a reading cost.
func (h *idleCost) work() {
	n := int64(h.services)
	h.server.memory = (h.end.server.Memory - h.atRest.server.Memory) / n
	h.worker.memory = (h.end.worker.Memory - h.atRest.worker.Memory) / n
	h.server.atRest, h.worker.atRest = rested(h.held, h.heldEnd, h.window)
	server, worker := h.end.since(h.begin)
	h.server.busy, h.worker.busy = part(server, h.window), part(worker, h.window)
	if h.readings > 0 {
		h.server.reading = max(0, server-time.Duration(h.server.atRest*float64(h.window))) / time.Duration(h.readings)
		h.worker.reading = max(0, worker-time.Duration(h.worker.atRest*float64(h.window))) / time.Duration(h.readings)
	}
}

func rested(from, to spent, window time.Duration) (server, worker float64) {
	s, w := to.since(from)
	return part(s, window), part(w, window)
}

func part(cpu, of time.Duration) float64 { return cpu.Seconds() / of.Seconds() }

func (h *idleCost) report(b *bench, a application) {
	add := func(what string, v report.Value, spread string, goal *report.Value) {
		b.Add(report.Line{Row: b.row, What: what, Measured: v, Spread: spread, Goal: goal})
	}
	add(fmt.Sprintf("events of %d idle services in %s", h.services, h.window.Round(time.Second)), report.Of(float64(h.events), "events"),
		fmt.Sprintf("%d readings", h.readings), report.Ref(report.Of(0, "events")))
	add("CPU of a reading", report.Dur(h.server.reading+h.worker.reading),
		fmt.Sprintf("server %s, worker %s", report.Dur(h.server.reading), report.Dur(h.worker.reading)), nil)
	held, times := h.server.atRest+h.worker.atRest, float64(manyServices)/float64(h.services)
	add(fmt.Sprintf("%d services held, nobody reads them", h.services), report.Of(held, report.Cores),
		fmt.Sprintf("server %s, worker %s; %s for %d (worked out)", report.Of(h.server.atRest, report.Cores), report.Of(h.worker.atRest, report.Cores),
			report.Of(times*held, report.Cores), manyServices), report.Ref(report.Of(goalHeld/times, report.Cores)))
	rate := manyServices / steadyDefault.Seconds()
	add(fmt.Sprintf("readings of %d every %s, above that (worked out)", manyServices, short(steadyDefault)), report.Of(rate*(h.server.reading+h.worker.reading).Seconds(), report.Cores),
		fmt.Sprintf("%.3g readings/s", rate), report.Ref(report.Of(goalIdle, report.Cores)))
	for _, p := range []struct {
		what string
		used usage
		cost cost
	}{{"server", h.end.server, h.server}, {"worker", h.end.worker, h.worker}} {
		add(fmt.Sprintf("memory of the %s with %d", p.what, h.services), report.Of(float64(p.used.Memory), report.Bytes),
			fmt.Sprintf("%s a service", report.Of(float64(p.cost.memory), report.Bytes)), nil)
	}
	add(fmt.Sprintf("publish %d, each released and converged", h.services), report.Dur(h.created),
		fmt.Sprintf("%.0f/s", float64(h.services)/h.created.Seconds()), nil)
	h.explain(b, a)
}

func (h *idleCost) explain(b *bench, a application) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Note(b.row, "read every %s instead of every %s: %.1f readings/s took %s of the server (%s with nothing to do) and %s of the worker",
		short(a.steady), short(steadyDefault), float64(h.readings)/h.window.Seconds(),
		report.Of(h.server.busy, report.Cores), report.Of(h.server.atRest, report.Cores), report.Of(h.worker.busy, report.Cores))
	b.Note(b.row, "making a service took %s of CPU of the server and %s of the worker", report.Dur(h.server.making), report.Dur(h.worker.making))
	b.Note(b.row, "the worker's memory includes this program's own; of it %s is heap in use and %s stacks of %d goroutines",
		report.Of(float64(m.HeapInuse), report.Bytes), report.Of(float64(m.StackInuse), report.Bytes), runtime.NumGoroutine())
}

func short(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
