package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	looksPerWindow = 4
	// What the looks of the window are extrapolated to: DESIGN section 9.
	manyServices  = 10000
	steadyDefault = 5 * time.Minute
	goalIdle      = 0.10 // of a core
)

// held is what was measured while services were idle.
type held struct {
	created                        time.Duration
	atRest, before, begin, end     spent
	restFor, window                time.Duration
	looks                          int
	eventsBefore, eventsAfter      int64
	createdByServer, createdByUs   time.Duration
	memoryPerServer, memoryPerUs   int64
	serverPerLook, workerPerLook   time.Duration
	serverAtRest, serverIn, workIn float64 // parts of a core
}

// measureIdle makes many services, lets them converge, and watches them doing nothing.
func measureIdle(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	h := held{window: b.window, restFor: max(b.window/6, time.Second)}
	a := application{
		name: "idle", channels: 1, services: serviceNames(b.services), version: "v1", steady: b.window / looksPerWindow,
	}
	if err := h.create(ctx, w, a); err != nil {
		return err
	}
	if err := h.watch(ctx, w, a); err != nil {
		return err
	}
	h.work(len(a.services))
	h.report(b, a)
	return nil
}

// create publishes all services at once, each with a version to release, and waits until they have
// converged.
func (h *held) create(ctx context.Context, w *world, a application) error {
	var err error
	if h.before, err = w.spent(); err != nil {
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

// watch counts over the window, which begins when every service has been looked at again.
func (h *held) watch(ctx context.Context, w *world, a application) error {
	after, err := w.spent()
	if err != nil {
		return err
	}
	h.createdByServer, h.createdByUs = after.since(h.atRest)
	if err = pause(ctx, 2*a.steady); err != nil {
		return err
	}
	if h.eventsBefore, err = w.events(ctx, a); err != nil {
		return err
	}
	if h.begin, err = w.spent(); err != nil {
		return err
	}
	looks, began := w.stage.looked(), time.Now()
	if err = pause(ctx, h.window); err != nil {
		return err
	}
	h.looks, h.window = w.stage.looked()-looks, time.Since(began)
	if h.end, err = w.spent(); err != nil {
		return err
	}
	h.eventsAfter, err = w.events(ctx, a)
	return err
}

// events is how many events the histories of all services have.
func (w *world) events(ctx context.Context, a application) (int64, error) {
	var n atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, s := range a.services {
		g.Go(func() error {
			d, err := w.describe(ctx, protocol.ServiceID(a.name, s))
			n.Add(d.GetWorkflowExecutionInfo().GetHistoryLength())
			return err
		})
	}
	err := g.Wait()
	return n.Load(), err
}

// work turns what was counted into what a service and a look cost.
func (h *held) work(services int) {
	h.memoryPerServer = (h.end.server.Memory - h.atRest.server.Memory) / int64(services)
	h.memoryPerUs = (h.end.worker.Memory - h.atRest.worker.Memory) / int64(services)
	rest, _ := h.atRest.since(h.before)
	h.serverAtRest = rest.Seconds() / h.restFor.Seconds()
	server, worker := h.end.since(h.begin)
	h.serverIn, h.workIn = server.Seconds()/h.window.Seconds(), worker.Seconds()/h.window.Seconds()
	if h.looks > 0 {
		h.serverPerLook = (server - time.Duration(h.serverAtRest*float64(h.window))) / time.Duration(h.looks)
		h.workerPerLook = worker / time.Duration(h.looks)
	}
}

func (h *held) report(b *bench, a application) {
	n := len(a.services)
	add := func(what string, v report.Value, spread string, goal *report.Value) {
		b.Add(report.Line{Row: b.row, What: what, Measured: v, Spread: spread, Goal: goal})
	}
	rate := float64(h.looks) / h.window.Seconds()
	add(fmt.Sprintf("events of %d idle services in %s", n, h.window.Round(time.Second)), report.Of(float64(h.eventsAfter-h.eventsBefore), "events"),
		fmt.Sprintf("%d looks", h.looks), report.Ref(report.Of(0, "events")))
	add("CPU of a look", report.Dur(h.serverPerLook+h.workerPerLook),
		fmt.Sprintf("server %s, worker %s", report.Dur(h.serverPerLook), report.Dur(h.workerPerLook)), nil)
	many := manyServices / steadyDefault.Seconds() * (h.serverPerLook + h.workerPerLook).Seconds()
	add(fmt.Sprintf("%d idle services, a look each in %s (worked out)", manyServices, short(steadyDefault)), report.Of(h.serverAtRest+many, report.Cores),
		fmt.Sprintf("%.3g looks/s", manyServices/steadyDefault.Seconds()), report.Ref(report.Of(goalIdle, report.Cores)))
	server, worker := report.Of(float64(h.end.server.Memory), report.Bytes), report.Of(float64(h.end.worker.Memory), report.Bytes)
	add(fmt.Sprintf("memory of the server with %d", n), server, fmt.Sprintf("%s a service", report.Of(float64(h.memoryPerServer), report.Bytes)), nil)
	add(fmt.Sprintf("memory of the worker with %d", n), worker, fmt.Sprintf("%s a service", report.Of(float64(h.memoryPerUs), report.Bytes)), nil)
	add(fmt.Sprintf("publish %d, each released and converged", n), report.Dur(h.created),
		fmt.Sprintf("%.0f/s", float64(n)/h.created.Seconds()), nil)
	b.Note(b.row, "looked at every %s instead of every %s: %.1f looks/s took %s of the server (%s with nothing to do) and %s of the worker",
		short(a.steady), short(steadyDefault), rate, report.Of(h.serverIn, report.Cores), report.Of(h.serverAtRest, report.Cores), report.Of(h.workIn, report.Cores))
	b.Note(b.row, "making a service took %s of CPU of the server and %s of the worker",
		report.Dur(h.createdByServer/time.Duration(n)), report.Dur(h.createdByUs/time.Duration(n)))
	b.Note(b.row, "the worker's memory includes this program's own and the server's code, which a worker does not link")
}

func short(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
