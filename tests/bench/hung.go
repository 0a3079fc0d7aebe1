package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	// hungServices are all on one runtime that stops to answer; more than a worker has room for at once.
	hungServices = 1300
	hungRounds   = 40
	goalHung     = 2 // times its undisturbed latency
)

// measureHung releases services of one application while the runtime of another, with many services, leaves every reading
// without an answer: by signal until the apply begins, and until the service rests again.
func measureHung(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	well := application{name: "well", channels: 1, services: serviceNames(actors), version: "v1", steady: time.Hour}
	sick := application{name: "sick", channels: 1, services: serviceNames(hungServices), version: "v1", steady: 10 * time.Second}
	for _, a := range []application{well, sick} {
		if err := w.publish(ctx, a); err != nil {
			return err
		}
		if err := allConverged(ctx, w.client, a, a.version); err != nil {
			return err
		}
	}
	before, err := w.releasesInTurn(ctx, well, "quiet")
	if err != nil {
		return err
	}
	release := w.stage.hang(sick.name)
	defer release()
	if err := until(ctx, time.Second/4, func() (bool, error) { return w.stage.hanging() >= hungServices/30, nil }); err != nil {
		return err
	}
	if err := pause(ctx, 2*sick.steady); err != nil { // by now each of them was due
		return err
	}
	hanging := w.stage.hanging()
	beside, err := w.releasesInTurn(ctx, well, "beside")
	if err != nil {
		return err
	}
	for _, line := range []struct {
		what         string
		alone, there []time.Duration
	}{
		{"release signal to start of apply", before.began, beside.began},
		{"release signal until the service rests again", before.rests, beside.rests},
	} {
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p95", 0.95}} {
			b.Add(report.Line{
				Row: b.row, What: fmt.Sprintf("%s, beside %d services on a runtime that hangs, %s", line.what, hungServices, q.name),
				Measured: report.Dur(report.Quantile(line.there, q.at)), Reference: report.Ref(report.Dur(report.Quantile(line.alone, q.at))),
				Against: "before it hung", Goal: report.Ref(report.Of(goalHung, report.Times)),
			})
		}
	}
	b.Note(b.row, "%d readings hung when the releases began", hanging)
	return nil
}

// hungTimes are how long releases took, one after the other.
type hungTimes struct{ began, rests []time.Duration }

func (w *world) releasesInTurn(ctx context.Context, a application, prefix string) (all hungTimes, err error) {
	for n := range warmUp + hungRounds {
		r, err := w.release(ctx, a, a.services[n%len(a.services)], fmt.Sprintf("%s%d", prefix, n), signalRelease)
		if err != nil {
			return all, err
		}
		if n >= warmUp {
			all.began = append(all.began, r.began.Sub(r.sent))
			all.rests = append(all.rests, time.Since(r.sent))
		}
		if err := pause(ctx, breath); err != nil {
			return all, err
		}
	}
	return all, nil
}
