package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/worker/deployment"
)

// examineClocks reports the workers whose clocks are wrong. Each worker compares its clock with that of the server, and writes the
// difference with its heartbeats into the store.
func examineClocks(ctx context.Context, s *store.Store, report *deployment.Report) {
	common, err := s.Heartbeats(ctx, protocol.TaskQueue)
	remote := map[string]map[string]store.Heartbeat{}
	if err == nil {
		remote, err = s.RemoteHeartbeats(ctx)
	}
	if err != nil {
		report.AddFinding(deployment.NotExamined, "the clocks of workers", err.Error(), "fix that, and run this again")
		return
	}
	workers := reportClocks("", common, report)
	for _, runtime := range entities.SortedKeys(remote) {
		workers += reportClocks(" of runtime "+runtime, remote[runtime], report)
	}
	report.AddExamined("clocks of workers: %d", workers)
}

// reportClocks reports the wrong clocks of the workers of one queue, and returns how many workers measure theirs.
func reportClocks(queue string, heartbeats map[string]store.Heartbeat, report *deployment.Report) (measured int) {
	byProcess := func(a, b store.Heartbeat) int { return strings.Compare(a.Process, b.Process) }
	for _, b := range slices.SortedFunc(maps.Values(heartbeats), byProcess) {
		if b.Process == "" || b.Last {
			continue
		}
		measured++
		if text := b.ClockText(); text != "" {
			report.AddFinding(deployment.WrongClock, "worker "+b.Process+queue, "its clock is "+text+clockEffect(b),
				"synchronize the clock of its machine, for example with NTP; the worker need not be restarted")
		}
	}
	return measured
}

// clockEffect is what follows from a wrong clock.
func clockEffect(b store.Heartbeat) string {
	if b.ClockOffset > 0 {
		return ": to it, time limits of applies and other activities have passed before they begin, so it may apply nothing, and tokens expire early"
	}
	return ": it refuses new tokens as issued in the future, and activities that it runs may exceed their time limits"
}
