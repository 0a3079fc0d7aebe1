package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/proto"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// layers is a configuration of many services: each needs two of the layer before, and every tenth is reconciled.
func (h *household) layers(services, wide int) string {
	return h.services(services, func(n int) string {
		if n < wide {
			return ""
		}
		return fmt.Sprintf(", requires: [s%d, s%d]", n-wide, n-wide/2-1)
	})
}

// services is an application of that many services, each with what requires adds to it.
func (h *household) services(count int, requires func(n int) string) string {
	text := fmt.Sprintf("{apiVersion: converge/v1, kind: Application, name: %[1]s, releaseChannels: [{name: production, runtimes: [{name: %[1]s-rt}]}]}\n"+
		"---\n{apiVersion: converge/v1, kind: Runtime, name: %[1]s-rt, fake: {pollInterval: 1s, steadyPollInterval: 1h}}\n", h.App)
	for n := range count {
		fields := requires(n)
		if n%10 == 0 {
			fields += ", reconcilers: [{name: register, command: [./run]}]"
		}
		text += fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Service, name: s%d, initialVersion: v1, custom: {}%s}\n", n, fields)
	}
	return text
}

// A plan that is larger than a run of its workflow may be goes on in the next one: everything is done, and nothing twice. `go run
// ./tests/bench -run plan` has one of a thousand services.
func TestLargePlanContinuesInAnotherRun_E8(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a hundred services; not with -short")
	}
	h := newHousehold(&world{shared.OwnServer(t, 100)})
	h.Write(h.layers(100, 20))
	h.Publish()
	ref := protocol.PlanOfIncarnation(h.App, "production", 1)
	var s protocol.PlanStatus
	temporaltest.WaitFor(t, 6*stage.Patience, func() (bool, string) {
		var err error
		s, err = h.plan("i1")
		return err == nil && s.Over, fmt.Sprint(err, len(s.Nodes), strings.Count(fmt.Sprint(s.Nodes), "done"))
	})
	require.Len(t, s.Nodes, 110)
	for _, n := range s.Nodes {
		require.Equal(t, "done", n.State, n.Node)
	}
	count := map[string]int{}
	for _, line := range h.log() {
		count[line]++
	}
	require.Len(t, count, 20)
	for line, times := range count {
		require.Equal(t, 1, times, line)
	}
	runs, largest := h.runs(ref.ID())
	require.Greater(t, runs, 1, "it went on in another run")
	require.Less(t, largest, 64<<10, "bytes of an event")
	var result protocol.PlanStatus
	require.NoError(t, h.Client.GetWorkflow(t.Context(), ref.ID(), "").Get(t.Context(), &result))
	require.True(t, result.Over)
	require.Empty(t, result.Nodes, "a result of all nodes would pass 64 KiB where there are a thousand")
}

// Services that wait for their plan are woken when it lets them enter: they ask it there and then.
func TestPlanWakesWhoWaits_E1(t *testing.T) {
	t.Parallel()
	h := newHousehold(newWorld(t))
	release := h.Fake.At(h.App, "s0", "production").HangApplies()
	h.Write(h.services(10, func(n int) string {
		if n == 0 {
			return ""
		}
		return ", requires: [s0]"
	}))
	h.Publish()
	var waiting []string // so many that they do not all check at the moment at which the plan lets them enter
	for n := 1; n < 10; n++ {
		waiting = append(waiting, fmt.Sprintf("s%d", n))
	}
	for _, service := range waiting {
		waitsFor(h.World, service, "plan/deploy: waits for DEPLOY s") // which one may be old: where only numbers differ it is told later
	}
	release()
	h.awaitPlan("i1", over)
	woken := 0
	for _, service := range waiting {
		events := h.History(protocol.ServiceID(h.App, service))
		for _, e := range events {
			if e.GetWorkflowExecutionSignaledEventAttributes().GetSignalName() == protocol.SignalWake {
				woken++
			}
		}
		require.NoError(t, replayer(t).ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: events}))
	}
	require.NotZero(t, woken, "of those that wait, who does not ask at that very moment")
}

// runs counts the runs of a workflow, and the bytes of the largest event in them.
func (h *household) runs(id string) (runs, largest int) {
	for run := ""; ; {
		runs++
		history := h.Client.GetWorkflowHistory(h.T.Context(), id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		earlier := ""
		for history.HasNext() {
			e, err := history.Next()
			require.NoError(h.T, err)
			largest = max(largest, proto.Size(e))
			if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
				earlier = started.GetContinuedExecutionRunId()
			}
		}
		if run = earlier; run == "" {
			return runs, largest
		}
	}
}
