package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// replayFirstTask replays the first workflow task of a run, as a worker does; an error is a failed task.
func replayFirstTask(t *testing.T, workflowType string, input any) error {
	t.Helper()
	replayer := worker.NewWorkflowReplayer()
	for name, w := range map[string]any{
		protocol.ServiceWorkflow: Service, protocol.ApplicationWorkflow: Application, protocol.RuntimeWorkflow: Runtime,
	} {
		replayer.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
	}
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(input)
	require.NoError(t, err)
	return replayer.ReplayWorkflowHistory(nil, &historypb.History{Events: []*historypb.HistoryEvent{
		{
			EventId: 1, EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
			Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
					WorkflowType: &commonpb.WorkflowType{Name: workflowType}, TaskQueue: &taskqueuepb.TaskQueue{Name: protocol.TaskQueue},
					Input: payloads, WorkflowTaskTimeout: durationpb.New(10 * time.Second),
				},
			},
		},
		{
			EventId: 2, EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
			Attributes: &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{
				WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{},
			},
		},
		{
			EventId: 3, EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED,
			Attributes: &historypb.HistoryEvent_WorkflowTaskStartedEventAttributes{
				WorkflowTaskStartedEventAttributes: &historypb.WorkflowTaskStartedEventAttributes{ScheduledEventId: 2},
			},
		},
		{
			EventId: 4, EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
			Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{
				WorkflowTaskCompletedEventAttributes: &historypb.WorkflowTaskCompletedEventAttributes{ScheduledEventId: 2, StartedEventId: 3},
			},
		},
	}})
}

// A worker that does not know the format of a state does not touch the workflow: the workflow task fails with advice, and another worker
// retries it; the workflow continues to exist. A worker that knows the format accepts the same state.
func TestUnknownStateFailsTheTaskOnly(t *testing.T) {
	service := func(c protocol.CarriedState) any {
		return protocol.ServiceInput{Application: "shop", Service: "web", Runs: 7, CarriedState: c}
	}
	application := func(c protocol.CarriedState) any {
		return protocol.ApplicationInput{Application: "shop", CarriedState: c}
	}
	runtime := func(c protocol.CarriedState) any { return protocol.RuntimeInput{Runtime: "edge", CarriedState: c} }
	packed, err := protocol.Pack(state.New("shop", "web"))
	require.NoError(t, err)
	newer := "state version 2 of shop/web is newer than this worker knows (1): upgrade the worker"
	for _, tt := range []struct {
		name, workflow string
		input          func(protocol.CarriedState) any
		carried        protocol.CarriedState
		want           string
	}{
		{"plain", protocol.ServiceWorkflow, service, protocol.CarriedState{State: json.RawMessage(`{}`)}, newer},
		{"packed", protocol.ServiceWorkflow, service, protocol.CarriedState{Packed: packed}, newer},
		{"spilled", protocol.ServiceWorkflow, service, protocol.CarriedState{Spilled: "digest"}, newer},
		{"application", protocol.ApplicationWorkflow, application, protocol.CarriedState{State: json.RawMessage(`{}`)}, "state version 2 of shop is newer than this worker knows (1): upgrade the worker"},
		{"runtime", protocol.RuntimeWorkflow, runtime, protocol.CarriedState{State: json.RawMessage(`{}`)}, "state version 2 of runtime edge is newer than this worker knows (1): upgrade the worker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.carried.StateVersion = protocol.Version + 1
			err := replayFirstTask(t, tt.workflow, tt.input(tt.carried))
			require.EqualError(t, err, tt.want, "of the task, not of the workflow: that would be a command that history does not have")
			tt.carried.StateVersion = protocol.Version
			require.NotContains(t, fmt.Sprint(replayFirstTask(t, tt.workflow, tt.input(tt.carried))), "state version")
			tt.carried.StateVersion = protocol.OldestVersion - 1
			older := strings.Replace(tt.want, "2 of", "0 of", 1)
			older = strings.Replace(older, "newer than this worker knows (1): upgrade the worker", "older than this worker reads (1 and newer): start one of an earlier version, and upgrade without skipping a version", 1)
			require.EqualError(t, replayFirstTask(t, tt.workflow, tt.input(tt.carried)), older)
		})
	}
}

// Unreadable state fails the workflow task, too: to fail the workflow would lose the state.
func TestUnreadableStateFailsTheTaskOnly(t *testing.T) {
	err := replayFirstTask(t, protocol.ServiceWorkflow, protocol.ServiceInput{
		Application: "shop", Service: "web", CarriedState: protocol.CarriedState{StateVersion: protocol.Version, State: json.RawMessage(`{"releases":7}`)},
	})
	require.ErrorContains(t, err, "carried state of shop/web: json: cannot unmarshal number")
	require.NotContains(t, err.Error(), "TMPRL1100", "no command, not even that the workflow failed")
}

// State of any size reaches the next run complete: plain, packed, or through the store, which may be unavailable for a while at both ends.
// No message that arrives in the meantime is lost.
func TestStateOfAnySizeReachesTheNextRun(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bytes int
		in    func(protocol.CarriedState) bool
	}{
		{"plain", 10, func(c protocol.CarriedState) bool { return c.State != nil }},
		{"packed", 20 << 10, func(c protocol.CarriedState) bool { return c.Packed != nil }},
		{"spilled", 100 << 10, func(c protocol.CarriedState) bool { return c.Spilled != "" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newServiceTest(t)
			var stored protocol.Packed
			fails := 2
			p.registerFailingSpill(&stored, &fails)
			p.spec.Description = incompressible(tt.bytes)
			p.publish(0)
			p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
			next := p.run(firstInput, minute)
			require.True(t, tt.in(next.CarriedState))
			require.Equal(t, protocol.Version, next.StateVersion)
			require.Equal(t, int64(1), next.Runs)

			before := p
			p = newServiceTest(t)
			p.startAfter(before)
			fails = 2
			p.registerFailingSpill(&stored, &fails)
			p.spec.Description = before.spec.Description
			update := p.sendUpdate(0, protocol.Pause, `{"channel":"prod","by":"bob"}`)
			p.sendSignal(0, protocol.Pause, `{"channel":"staging","by":"bob"}`)
			p.atStatus(minute+30*second, func(s protocol.Status) {
				require.Equal(t, "staging PAUSED v1, prod PAUSED v1", statusOf(s))
				require.Len(t, s.Description, tt.bytes)
			})
			next = p.run(next, minute)
			require.NoError(t, update.err)
			require.Equal(t, int64(2), next.Runs)
		})
	}
}

// registerFailingSpill is a store that accepts spilled state after a few failures.
func (p *serviceTest) registerFailingSpill(stored *protocol.Packed, fails *int) {
	failing := func() error {
		if *fails > 0 {
			*fails--
			return errors.New("the disk is full")
		}
		return nil
	}
	p.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.SpillRequest) (string, error) {
		if len(r.Packed) > 0 {
			*stored = r.Packed
		}
		return "digest", failing()
	}, activity.RegisterOptions{Name: protocol.ActivitySpill})
	p.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.RestoreRequest) (protocol.RestoreAnswer, error) {
		part := (*stored)[r.Offset:min(len(*stored), r.Offset+48<<10)]
		return protocol.RestoreAnswer{Part: part, Total: len(*stored)}, failing()
	}, activity.RegisterOptions{Name: protocol.ActivityRestore})
}

// incompressible is text that compresses badly.
func incompressible(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(entities.DigestOf(b.Len()))
	}
	return b.String()[:n]
}

// An update comes after the signals that arrived before it, also while a run delays its end because it has answered another update.
func TestUpdatesWaitForSignalsWhileARunEnds(t *testing.T) {
	p := newServiceTest(t)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.suggestContinueAsNew(10*second, 5000)
	p.sendUpdate(10*second, protocol.Refresh, `{"by":"ci"}`)
	p.sendSignal(10*second+300*time.Microsecond, protocol.Pause, `{"channel":"staging","by":"bob"}`)
	update := p.sendUpdate(10*second+600*time.Microsecond, protocol.Resume, `{"channel":"staging","by":"bob"}`)
	next := p.run(firstInput, minute)
	require.NoError(t, update.err)
	require.Contains(t, update.message, "shop/web staging resumed")
	require.Empty(t, p.stateOf(next).Pauses)
}
