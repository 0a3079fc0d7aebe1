package tests

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// Nothing is lost and nothing is done twice when runs end all the while: releases,
// signals and updates keep coming while 500 instances are applied. Alone, since it computes more than
// it waits, and a workflow task has a time limit.
func TestContinueAsNewLosesNothing(t *testing.T) {
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
	yaml.WriteString(stage.TwoChannels[strings.Index(stage.TwoChannels, "---"):] + stage.Web)
	w.Write(yaml.String())
	w.Publish()

	const versions = 4
	var s protocol.Status
	run := ""
	for v := 1; v <= versions; v++ {
		act := fmt.Sprintf(`{"version":"v%d","by":"ci","requestId":"r%d"}`, v, v)
		if v%2 == 0 {
			w.Signal("web", protocol.Release, act)
		} else {
			w.Release("web", fmt.Sprintf("v%d", v))
		}
		for n := range 40 {
			w.Signal("web", protocol.Pause, fmt.Sprintf(`{"channel":"c%d","by":"ci"}`, n))
			w.Act("web", protocol.Refresh, fmt.Sprintf(`{"channel":"c%d","by":"ci"}`, n+100))
			w.Signal("web", protocol.Resume, fmt.Sprintf(`{"channel":"c%d","by":"ci"}`, n))
		}
		s = w.AwaitThat("web", fmt.Sprintf("all at v%d", v), func(s protocol.Status) bool { // the first quiet moment
			for _, c := range s.Channels {
				if c.Status != "CONVERGED" || c.Current != fmt.Sprintf("v%d", v) {
					return false
				}
			}
			return len(s.Channels) == instances
		})
		run = w.awaitRunAfter("web", run)
	}
	require.Empty(t, s.Refused)
	require.Empty(t, s.Pauses)
	require.Len(t, s.Releases, versions)
	require.Empty(t, w.Fake.Overlaps())
	for n := range instances {
		instance := w.Fake.At(w.App, "web", fmt.Sprintf("c%d", n))
		require.LessOrEqual(t, instance.Applies(), versions, "an instance is applied once for each version that enters")
	}
	runs := w.runs("web")
	t.Logf("%d runs", runs)
	require.GreaterOrEqual(t, runs, versions, "the runs were short")
}

// awaitRunAfter waits until a service is in another run, which continued one that there was, and returns it.
func (w *world) awaitRunAfter(service, before string) (run string) {
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(service), "")
		if err != nil {
			return false, err.Error()
		}
		info := d.GetWorkflowExecutionInfo()
		run = info.GetExecution().GetRunId()
		return run != before && run != info.GetFirstRunId(), run
	})
	return run
}

// runs counts how often a service continued as new, by the chain of its runs.
func (w *world) runs(service string) int { return w.runsOf(w.ID(service)) }

func (w *world) runsOf(id string) int {
	n, run := 0, ""
	for {
		history := w.Client.GetWorkflowHistory(context.Background(), id, run, false, 0)
		require.True(w.T, history.HasNext())
		first, err := history.Next()
		require.NoError(w.T, err)
		n++
		if run = first.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(); run == "" {
			return n
		}
	}
}
