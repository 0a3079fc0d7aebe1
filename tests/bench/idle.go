package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	readingsPerWindow = 4
	// What the readings of the window are extrapolated to, as docs/benchmarks.md has it.
	manyServices  = 10000
	steadyDefault = 5 * time.Minute
	goalIdle      = 0.10 // of a core
)

// idleCost is what was measured while services were idle.
type idleCost struct {
	services        int
	restFor, window time.Duration
	// Before there were services, at the begin and the end of a rest; before and after the window.
	first, atRest, begin, end spent
	created                   time.Duration
	server, worker            cost
	readings                  int
	events                    int64 // written in the window
}

// cost is what one of the two processes had to do.
type cost struct {
	making  time.Duration // of CPU, for one service
	reading time.Duration // of CPU, for one reading
	memory  int64         // for one service
	atRest  float64       // part of a core, without services
	busy    float64       // part of a core, in the window
}

// measureIdle makes many services, lets them converge, and watches them doing nothing.
func measureIdle(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	h := idleCost{services: b.services, window: b.window, restFor: max(b.window/6, 5*time.Second)}
	a := application{
		name: "idle", channels: 1, services: serviceNames(b.services), version: "v1", steady: b.window / readingsPerWindow,
	}
	if err := h.create(ctx, w, a); err != nil {
		return err
	}
	if err := h.watch(ctx, w, a); err != nil {
		return err
	}
	h.work()
	h.report(b, a)
	return nil
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

// watch counts over the window, which begins when every service has been read again.
func (h *idleCost) watch(ctx context.Context, w *world, a application) error {
	made, err := w.spent()
	if err != nil {
		return err
	}
	server, worker := made.since(h.atRest)
	h.server.making, h.worker.making = server/time.Duration(h.services), worker/time.Duration(h.services)
	if err = pause(ctx, 2*a.steady); err != nil {
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
	rest, _ := h.atRest.since(h.first)
	h.server.atRest = part(rest, h.restFor)
	server, worker := h.end.since(h.begin)
	h.server.busy, h.worker.busy = part(server, h.window), part(worker, h.window)
	if h.readings > 0 {
		h.server.reading = (server - time.Duration(h.server.atRest*float64(h.window))) / time.Duration(h.readings)
		h.worker.reading = worker / time.Duration(h.readings)
	}
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
	rate := manyServices / steadyDefault.Seconds()
	many := h.server.atRest + rate*(h.server.reading+h.worker.reading).Seconds()
	add(fmt.Sprintf("%d idle services, readings every %s (worked out)", manyServices, short(steadyDefault)), report.Of(many, report.Cores),
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
