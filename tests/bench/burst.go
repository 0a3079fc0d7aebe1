package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	burstServices  = 300
	burstReference = 20          // releases with nothing beside them
	goalBurst      = time.Second // that a release is later beside a change of so many services
)

// measureBurst changes all services of an application at once, and meanwhile releases the service of another one again and again.
func measureBurst(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	many := application{name: "many", channels: 1, services: serviceNames(min(b.services, burstServices)), version: "v1", steady: time.Hour}
	other := application{name: "other", channels: 1, services: []string{"web"}, steady: time.Hour}
	if err := w.publish(ctx, other); err != nil {
		return err
	}
	if err := w.publish(ctx, many); err != nil {
		return err
	}
	if err := w.allAt(ctx, many, "v1"); err != nil {
		return err
	}
	var alone, beside []time.Duration
	for n := range burstReference {
		if alone, err = w.timed(ctx, other, fmt.Sprintf("a%d", n), alone); err != nil {
			return err
		}
	}
	many.setting = "changed"
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		err := w.publish(ctx, many)
		if err == nil {
			err = w.allAt(ctx, many, "v1-i2")
		}
		done <- err
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
			b.burst(alone, beside, len(many.services), time.Since(began))
			return nil
		default:
		}
		if beside, err = w.timed(ctx, other, fmt.Sprintf("b%d", n), beside); err != nil {
			return err
		}
	}
}

// timed releases once, and adds how long that took until the apply began.
func (w *world) timed(ctx context.Context, a application, version string, all []time.Duration) ([]time.Duration, error) {
	r, err := w.release(ctx, a, a.services[0], version, signalRelease)
	return append(all, r.began.Sub(r.sent)), err
}

// allAt waits until all services of an application have converged at a version.
func (w *world) allAt(ctx context.Context, a application, version string) error {
	query := fmt.Sprintf("WorkflowType='%s' AND %s='%s' AND %s='CONVERGED' AND %s='%s' AND ExecutionStatus='Running'",
		protocol.ServiceWorkflow, protocol.AttrApplication, a.name, protocol.AttrStatus, protocol.AttrVersion, version)
	return until(ctx, time.Second/4, func() (bool, error) {
		found, err := w.client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
		return found.GetCount() >= int64(len(a.services)), err
	})
}

func (b *bench) burst(alone, beside []time.Duration, services int, took time.Duration) {
	against := report.Dur(report.Median(alone))
	b.Add(report.Line{
		Row: b.row, What: fmt.Sprintf("release signal to start of apply, while %d services of another application change, p50", services),
		Measured: report.Dur(report.Median(beside)), Spread: fmt.Sprintf("%d releases in %s", len(beside), took.Round(100*time.Millisecond)),
		Reference: &against, Against: "nothing else changes",
	})
	b.Add(report.Line{
		Row: b.row, What: "the longest of these", Measured: report.Dur(slices.Max(beside)), Reference: report.Ref(report.Dur(slices.Max(alone))),
		Goal: report.Ref(report.Dur(goalBurst + report.Median(alone))),
	})
}
