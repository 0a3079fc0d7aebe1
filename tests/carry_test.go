package tests

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// shortRuns is a world of its own whose server wants runs to be short.
func shortRuns(t *testing.T, events int) *world {
	t.Helper()
	w, start := ownWorker(t, events)
	w.startWorker = func() { w.stopWorker = sync.OnceFunc(start()) }
	w.startWorker()
	t.Cleanup(func() { w.stopWorker() })
	return w
}

// DESIGN 3: nothing is lost and nothing is done twice when runs end all the while: releases,
// signals and updates keep coming while 500 instances are applied.
func TestContinueAsNewLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("500 instances take a while; not with -short")
	}
	w := shortRuns(t, 200)
	const instances = 500
	var yaml strings.Builder
	yaml.WriteString("apiVersion: converge/v1\nkind: Application\nname: APP\nreleaseChannels:\n")
	for n := range instances {
		fmt.Fprintf(&yaml, "- {name: c%d, runtimes: [{name: APP-rt}]}\n", n)
	}
	yaml.WriteString(twoChannels[strings.Index(twoChannels, "---"):] + web)
	w.write(yaml.String())
	w.publish()

	const versions = 4
	for v := 1; v <= versions; v++ {
		act := fmt.Sprintf(`{"version":"v%d","by":"ci","requestId":"r%d"}`, v, v)
		if v%2 == 0 {
			w.signal("web", protocol.Release, act)
		} else {
			w.release("web", fmt.Sprintf("v%d", v))
		}
		for n := range 40 {
			w.signal("web", protocol.Pause, fmt.Sprintf(`{"channel":"c%d","by":"ci"}`, n))
			w.act("web", protocol.Refresh, fmt.Sprintf(`{"channel":"c%d","by":"ci"}`, n+100))
			w.signal("web", protocol.Resume, fmt.Sprintf(`{"channel":"c%d","by":"ci"}`, n))
		}
	}
	last := fmt.Sprintf("v%d", versions)
	s := w.awaitThat("web", "all at "+last, func(s protocol.Status) bool {
		for _, c := range s.Channels {
			if c.Status != "CONVERGED" || c.Current != last {
				return false
			}
		}
		return len(s.Channels) == instances
	})
	require.Empty(t, s.Refused)
	require.Empty(t, s.Pauses)
	require.Len(t, s.Releases, versions)
	require.Empty(t, w.fake.Overlaps())
	for n := range instances {
		place := w.fake.At(w.app, "web", fmt.Sprintf("c%d", n))
		require.LessOrEqual(t, place.Applies(), versions, "an instance is applied once for each version that enters")
	}
	runs := w.runs("web")
	t.Logf("%d runs", runs)
	require.Greater(t, runs, 3, "the runs were short")
}

// runs counts how often a service continued as new, by the chain of its runs.
func (w *world) runs(service string) int { return w.runsOf(w.id(service)) }

func (w *world) runsOf(id string) int {
	n, run := 0, ""
	for {
		history := w.client.GetWorkflowHistory(context.Background(), id, run, false, 0)
		require.True(w.t, history.HasNext())
		first, err := history.Next()
		require.NoError(w.t, err)
		n++
		if run = first.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(); run == "" {
			return n
		}
	}
}
