package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	// actors of each side take turns, so that each has long come to rest when its turn comes.
	actors = 5
	// warmUp rounds are not counted: caches fill, connections open.
	warmUp = 10
	// breath between two measurements lets what the last one left behind finish.
	breath = 30 * time.Millisecond
)

// goalLatency is that of docs/benchmarks.md: so many times the bare activity.
const goalLatency = 1.25

// latencies are samples of both sides, and of the legs of their way.
type latencies struct {
	converge, bare []time.Duration
	legs           map[string][]time.Duration // by side and leg
}

// way is what lies between the call and the activity, in order: the stage that ends each leg. The
// bare workflow prepares nothing.
var way = [...]struct{ leg, until string }{
	{"the workflow sees the signal", stageSignal},
	{"Prepare begins", protocol.ActivityPrepare},
	{"Prepare ends: rendered and stored", protocol.ActivityPrepare + "/end"},
	{"decided; the worker completes the task", stageRespond},
	{"the server has answered, with the activity", stageRespond + "/end"},
}

// lastLeg ends with the activity, or with the runtime that it calls.
const lastLeg = "the activity begins"

// measureLatency compares a Converge release with a bare workflow: the same signal call, on the same
// connection, server and worker process, in turns.
func measureLatency(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	pair, err := newPair(ctx, w, application{name: "latency", channels: 1, services: serviceNames(actors), steady: time.Hour})
	if err != nil {
		return err
	}
	defer pair.bare.worker.Stop()
	all := latencies{legs: map[string][]time.Duration{}}
	for n := range warmUp + b.rounds {
		if err := pair.round(ctx, n, &all, n >= warmUp); err != nil {
			return err
		}
	}
	all.report(b)
	return nil
}

// pair is Converge and the reference, ready to be measured in turns.
type pair struct {
	*world
	app  application
	bare *bare
}

func newPair(ctx context.Context, w *world, a application) (*pair, error) {
	if err := w.publish(ctx, a); err != nil {
		return nil, err
	}
	b, err := startBare(w.client)
	if err != nil {
		return nil, err
	}
	for n := range a.services {
		if err := b.start(ctx, bareID(n)); err != nil {
			b.worker.Stop()
			return nil, err
		}
	}
	return &pair{world: w, app: a, bare: b}, nil
}

func bareID(n int) string { return fmt.Sprintf("bare/%d", n) }

// round measures each side once; which goes first changes from round to round.
func (p *pair) round(ctx context.Context, n int, all *latencies, counts bool) error {
	sides := []func(context.Context, int, *latencies, bool) error{p.roundBare, p.roundConverge}
	for i := range sides {
		if err := sides[(i+n)%2](ctx, n, all, counts); err != nil {
			return err
		}
		if err := pause(ctx, breath); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) roundBare(ctx context.Context, n int, all *latencies, counts bool) error {
	p.trace.take()
	sent, begun, err := p.bare.cycle(ctx, bareID(n%actors), fmt.Sprintf("v%d", n))
	if err != nil || !counts {
		return err
	}
	all.bare = append(all.bare, begun.Sub(sent))
	all.walk("bare", sent, p.trace.take(), begun)
	return nil
}

func (p *pair) roundConverge(ctx context.Context, n int, all *latencies, counts bool) error {
	p.trace.take()
	r, err := p.release(ctx, p.app, p.app.services[n%actors], fmt.Sprintf("v%d", n), signalRelease)
	if err != nil || !counts {
		return err
	}
	all.converge = append(all.converge, r.began.Sub(r.sent))
	all.walk("converge", r.sent, p.trace.take(), r.began)
	return nil
}

// walk takes the legs of one way apart.
func (l *latencies) walk(side string, from time.Time, passed map[string]time.Time, begun time.Time) {
	add := func(leg string, until time.Time) {
		l.legs[side+leg] = append(l.legs[side+leg], until.Sub(from))
		from = until
	}
	for _, w := range way {
		if at, ok := passed[w.until]; ok {
			add(w.leg, at)
		}
	}
	add(lastLeg, begun)
}

func (l *latencies) report(b *bench) {
	against := report.Dur(report.Median(l.bare))
	low, high := report.RatioInterval(l.converge, l.bare)
	b.Add(report.Line{
		Row: b.row, What: "release signal to start of apply, p50", Measured: report.Dur(report.Median(l.converge)),
		Spread: fmt.Sprintf("ratio %.2f–%.2f", low, high), Reference: &against, Against: "bare workflow",
		Goal: report.Ref(report.Of(goalLatency, report.Times)),
	})
	tail := report.Dur(report.Quantile(l.bare, 0.95))
	b.Add(report.Line{
		Row: b.row, What: "the same, p95", Measured: report.Dur(report.Quantile(l.converge, 0.95)),
		Reference: &tail, Against: "bare workflow",
	})
	b.Note(b.row, "%d rounds of each, in turns; medians of the legs of the way:%10s%12s", len(l.converge), "converge", "bare")
	for _, w := range append(way[:], struct{ leg, until string }{leg: lastLeg}) {
		cells := []any{w.leg}
		for _, side := range []string{"converge", "bare"} {
			cell := ""
			if samples := l.legs[side+w.leg]; len(samples) > 0 {
				cell = report.Dur(report.Median(samples)).String()
			}
			cells = append(cells, cell)
		}
		b.Note(b.row, "  %-60s%10s%12s", cells...)
	}
}
