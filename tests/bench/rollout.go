package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	// largestFleet is how many instances a service may have.
	largestFleet = 500
	// stepPause is what the policy waits for between its steps, of which it has three.
	stepPause = 5 * time.Second
)

// steps is the policy, as lines of the channel.
var steps = fmt.Sprintf("  rollout: {steps: [{instances: 1}, {pause: %s}, {instances: \"25%%\"}, {pause: %s}, {instances: \"100%%\"}]}\n", stepPause, stepPause)

// measureRollout releases through a fleet at once, and in steps: what steps cost beside their pauses.
func measureRollout(ctx context.Context, b *bench) error {
	sizes := []int{100, largestFleet}
	if b.instances < largestFleet {
		sizes = []int{b.instances}
	}
	for _, n := range sizes {
		if err := rollOut(ctx, b, n); err != nil {
			return fmt.Errorf("%d instances: %w", n, err)
		}
	}
	b.Note(b.row, "an instance obeys at once; a release in steps cannot take less than its pauses (%s) and what the same fleet takes at once.", 2*stepPause)
	b.Note(b.row, "  A release is over when status says that all have converged at it, asked ten times a second.")
	return nil
}

// rollOut measures one size, on a server of its own.
func rollOut(ctx context.Context, b *bench, n int) (err error) {
	w, err := newWorld(ctx, filepath.Join(b.dir, fmt.Sprint(n)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	a := application{name: "at-once", channels: 1, instances: n, services: []string{"web"}, version: "v1", steady: time.Hour}
	once, err := w.releases(ctx, b, a)
	if err != nil {
		return err
	}
	a.name, a.gates = "in-steps", steps
	stepped, err := w.releases(ctx, b, a)
	if err != nil {
		return err
	}
	bound := report.Value{Number: (2*stepPause + once.took).Seconds(), Unit: report.Seconds}
	b.Add(once.line(fmt.Sprintf("a release through %d instances, all at once", n)))
	line := stepped.line(fmt.Sprintf("a release through %d instances, in three steps", n))
	line.Reference, line.Against = &bound, "its pauses, and all at once"
	b.Add(line)
	if w.unanswered > 0 {
		b.Note(b.row, "of %d instances, %d questions for the status were not answered within ten seconds.", n, w.unanswered)
	}
	return nil
}

// rolled is what a release through a fleet took, in the middle of some, and what all of them wrote.
type rolled struct {
	took            time.Duration
	events, bytes   int64 // of the history, of all releases
	largest, rounds int   // payload, in bytes
}

func (r rolled) line(what string) report.Line {
	return report.Line{
		What: what, Measured: report.Value{Number: r.took.Seconds(), Unit: report.Seconds},
		Spread: fmt.Sprintf("each %d events, %d KiB; largest payload %d KiB", r.events/int64(r.rounds), r.bytes/int64(r.rounds)>>10, r.largest>>10),
	}
}

// releases publishes a fleet, and releases through it some times.
func (w *world) releases(ctx context.Context, b *bench, a application) (r rolled, err error) {
	const rounds = 3
	fmt.Fprintf(b.log, "%d instances %s ... ", a.instances, a.name)
	r.rounds = rounds
	id := protocol.ServiceID(a.name, a.services[0])
	profiled, err := b.profileCPU()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, profiled()) }()
	if err := w.publish(ctx, a); err != nil {
		return r, err
	}
	if err := w.fleetAt(ctx, a, a.version); err != nil {
		return r, err
	}
	events, bytes, _, err := w.runs(ctx, id)
	if err != nil {
		return r, err
	}
	var took []time.Duration
	for round := range rounds {
		version := fmt.Sprintf("v%d", round+2)
		began, err := updateRelease(ctx, w.client, id, version)
		if err != nil {
			return r, fmt.Errorf("release %s: %w", version, err)
		}
		if err := w.fleetAt(ctx, a, version); err != nil {
			return r, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	r.took = took[rounds/2]
	r.events, r.bytes, r.largest, err = w.runs(ctx, id)
	r.events, r.bytes = r.events-events, r.bytes-bytes
	return r, err
}

// runs is what the histories of all runs of a workflow hold, and the largest payload in them.
func (w *world) runs(ctx context.Context, id string) (events, bytes int64, largest int, err error) {
	run := ""
	for {
		d, err := w.client.DescribeWorkflowExecution(ctx, id, run)
		if err != nil {
			return 0, 0, 0, err
		}
		events += d.GetWorkflowExecutionInfo().GetHistoryLength()
		bytes += d.GetWorkflowExecutionInfo().GetHistorySizeBytes()
		this, earlier := d.GetWorkflowExecutionInfo().GetExecution().GetRunId(), ""
		history := w.client.GetWorkflowHistory(ctx, id, this, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			e, err := history.Next()
			if err != nil {
				return 0, 0, 0, err
			}
			largest = max(largest, largestPayload(e.ProtoReflect()))
			if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
				earlier = started.GetContinuedExecutionRunId()
			}
		}
		if earlier == "" {
			return events, bytes, largest, nil
		}
		run = earlier
	}
}

// fleetAt waits until every instance has converged at a version. A server that is busy with hundreds of activities of one workflow
// may answer no question about it for some seconds.
func (w *world) fleetAt(ctx context.Context, a application, version string) error {
	return until(ctx, 100*time.Millisecond, func() (bool, error) {
		var s protocol.Status
		value, err := w.client.QueryWorkflow(ctx, protocol.ServiceID(a.name, a.services[0]), "", protocol.QueryStatus)
		if err == nil {
			err = value.Get(&s)
		}
		if late := new(serviceerror.DeadlineExceeded); errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			w.unanswered++
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("status: %w", err)
		}
		if len(s.Channels) == 0 || s.Channels[0].Fleet == nil {
			return false, nil
		}
		f := s.Channels[0].Fleet
		return s.Channels[0].Status == "CONVERGED" && f.AtVersion == a.instances && f.Version == version, nil
	})
}
