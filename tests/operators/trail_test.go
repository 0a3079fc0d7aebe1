package operators

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/api/adminservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// losing is a worker's connection that loses what one workflow task came to: the worker has done it, the server does not
// hear of it, as when the worker is killed just then. The server gives the task out again once it has timed out.
type losing struct {
	lost  atomic.Bool
	armed atomic.Bool
	// which task, by the names of the local activities that it ran; meanwhile comes before it is given out again.
	which     func(did []string) bool
	meanwhile func()
}

func (l *losing) call(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	done, ok := request.(*workflowservice.RespondWorkflowTaskCompletedRequest)
	if ok && l.armed.Load() && l.which(localActivities(done.GetCommands())) && l.lost.CompareAndSwap(false, true) {
		l.meanwhile()
		return status.Error(codes.NotFound, "the worker was killed") // which is not tried again
	}
	return invoke(ctx, method, request, reply, to, o...)
}

// localActivities are the names of those whose results are among commands.
func localActivities(commands []*commandpb.Command) (names []string) {
	for _, c := range commands {
		for _, payload := range c.GetRecordMarkerCommandAttributes().GetDetails()["data"].GetPayloads() {
			var result struct{ ActivityType string }
			if json.Unmarshal(payload.GetData(), &result) == nil {
				names = append(names, result.ActivityType)
			}
		}
	}
	return names
}

// storesLines: the task wrote audit lines to the store.
func storesLines(did []string) bool {
	return len(did) > 0 && strings.Contains(strings.Join(did, " "), protocol.ActivityHistory)
}

// trailOf is what `converge history` shows of a service: the lines in the store, then those that only the workflow has. Of
// an application only the store has any.
func trailOf(w *stage.World, service string) []entities.AuditEntry {
	w.T.Helper()
	kept, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	var newest protocol.HistoryAnswer
	if service != "" {
		value, err := temporaltest.Query(w.T.Context(), w.Client, w.ID(service), protocol.QueryHistory)
		require.NoError(w.T, err)
		require.NoError(w.T, value.Get(&newest))
	}
	lines, err := kept.Audit(w.T.Context(), w.App, service)
	require.NoError(w.T, err)
	for _, l := range newest.Entries {
		if l.N > newest.Stored && (len(lines) == 0 || l.N > lines[len(lines)-1].N) {
			lines = append(lines, l)
		}
	}
	return lines
}

// everyNumberOnce requires that lines are counted from one on without a gap, and that each number stands for one of them.
func everyNumberOnce(w *stage.World, lines []entities.AuditEntry) {
	w.T.Helper()
	var all strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&all, "%d %s %s: %s (%s)\n", l.N, l.At.Format("15:04:05.000"), l.Kind, l.Text, l.Reason)
	}
	for n, l := range lines {
		require.EqualValues(w.T, n+1, l.N, "of\n%s", &all)
	}
}

func countOf(lines []entities.AuditEntry, reason string) (n int) {
	for _, l := range lines {
		if l.Reason == reason {
			n++
		}
	}
	return n
}

// The audit trail holds what happened, and nothing else: what a workflow task did that was lost is not written there, since
// what is done in its place, after what came meanwhile, may be something else under the same numbers.
func TestLostWorkflowTaskLeavesNoLine(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	cut := &losing{which: storesLines}
	w.StartWorkerOver(cut.call)
	w.RunWeb()
	cut.meanwhile = func() {
		w.Signal("web", protocol.Pause, `{"channel":"production","by":"bob","reason":"meanwhile"}`)
	}
	cut.armed.Store(true)
	acts := 0
	for ; !cut.lost.Load(); acts++ {
		require.Less(t, acts, 60, "no task wrote to the store")
		verb := []string{protocol.Pause, protocol.Resume}[acts%2]
		w.Act("web", verb, fmt.Sprintf(`{"channel":"staging","by":"ann","reason":"act %d"}`, acts))
	}
	w.AwaitThat("web", "bob's pause", func(s protocol.Status) bool { return strings.Contains(fmt.Sprint(s.Pauses), "meanwhile") })
	for n := range 25 { // so many that they are written
		verb := []string{protocol.Pause, protocol.Resume}[(acts+n)%2]
		w.Act("web", verb, fmt.Sprintf(`{"channel":"staging","by":"ann","reason":"act %d"}`, acts+n))
	}
	lines := trailOf(w, "web")
	everyNumberOnce(w, lines)
	require.Equal(t, 1, countOf(lines, "meanwhile"))
	for n := range acts {
		if n%2 == 0 { // the end of a pause gives no reason
			require.Equal(t, 1, countOf(lines, fmt.Sprintf("act %d", n)), "act %d", n)
		}
	}
}

// The same of an application, which writes each line soon: it is written though nothing follows.
func TestLostWorkflowTaskLeavesNoLineOfAnApplication(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	cut := &losing{which: storesLines}
	w.StartWorkerOver(cut.call)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	id := protocol.ApplicationID(w.App)
	cut.meanwhile = func() {
		require.NoError(t, w.Client.SignalWorkflow(t.Context(), id, "", protocol.Unmanage, json.RawMessage(`{"service":"web","by":"bob","reason":"meanwhile"}`)))
	}
	cut.armed.Store(true)
	var answer protocol.Answer
	require.NoError(t, w.Update(id, protocol.Pause, map[string]string{"by": "ann", "reason": "first"}, &answer))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		lines := trailOf(w, "")
		return cut.lost.Load() && countOf(lines, "meanwhile") > 0 && countOf(lines, "first") > 0, fmt.Sprint(lines)
	})
	everyNumberOnce(w, trailOf(w, ""))
}

// checkpointsOf are the files in which the store keeps the checkpoints of a service, oldest first.
func checkpointsOf(w *stage.World, service string) []string {
	files, err := filepath.Glob(filepath.Join(w.Store, "checkpoints", "service", w.App, service, "0*"))
	require.NoError(w.T, err)
	slices.Sort(files)
	return files
}

// The workflow task of an update that is lost leaves no event. That is not a restored database: the run continues, and carries the update out.
func TestLostTaskOfAnUpdateIsNoRestoredDatabase_F1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	server, err := grpc.NewClient(w.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	ctx, giveUp := context.WithCancel(t.Context())
	cut := &losing{which: func([]string) bool { return true }, meanwhile: func() { // the server forgets what is not in its database
		_, err := adminservice.NewAdminServiceClient(server).CloseShard(t.Context(), &adminservice.CloseShardRequest{ShardId: 1})
		require.NoError(t, err)
		giveUp()
	}}
	w.StartWorkerOver(cut.call)
	w.Act("web", protocol.Refresh, `{"by":"ann"}`)
	const quiet = 10 // looks at a history that does not grow: the task of the update comes alone
	length, looks := int64(0), 0
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		if looks++; err != nil || d.GetPendingWorkflowTask() != nil || d.GetWorkflowExecutionInfo().GetHistoryLength() != length {
			looks, length = 0, d.GetWorkflowExecutionInfo().GetHistoryLength()
		}
		return looks == quiet, fmt.Sprint(length, err)
	})
	run := runOf(w, w.ID("web"))
	pause := json.RawMessage(`{"channel":"production","by":"bob","reason":"a drill"}`)
	cut.armed.Store(true)
	_, err = w.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: w.ID("web"), UpdateName: protocol.Pause, Args: []any{pause}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.Error(t, err)
	require.True(t, cut.lost.Load())
	lost := time.Now() // what is in the place of the lost task is later by more than clocks differ
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return time.Since(lost) > 2*activities.RestoreTolerance, "" })
	before := checkpointsOf(w, "web")
	w.Act("web", protocol.Pause, string(pause))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		now := checkpointsOf(w, "web")
		return slices.ContainsFunc(now, func(f string) bool { return !slices.Contains(before, f) }), fmt.Sprint(now)
	})
	w.Act("web", protocol.Refresh, `{"by":"ann"}`)
	require.Equal(t, run, runOf(w, w.ID("web")))
	require.Len(t, w.Status("web").Pauses, 1)
	for _, e := range w.History(w.ID("web"))[length:] {
		require.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT, e.GetEventType(), "the lost task left no event")
	}
}

// A workflow task that was lost leaves no checkpoint: it may know of more than the one in its place, to which the store did not answer any
// more. A release that was refused is not found later.
func TestALostWorkflowTaskLeavesNoCheckpoint(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	before := checkpointsOf(w, "web")
	w.Signal("web", protocol.Pause, `{"channel":"production","by":"bob","reason":"a drill"}`)
	refused := make(chan error)
	versions := []string{"v2", "v3", "v4"}
	for _, version := range versions {
		go func() {
			var answer protocol.ReleaseAnswer
			refused <- w.Update(w.ID("web"), protocol.Release, map[string]string{"version": version, "by": "ann"}, &answer)
		}()
	}
	cut := &losing{which: func(did []string) bool { return slices.Contains(did, protocol.ActivityPrepare) }, meanwhile: func() {}}
	cut.armed.Store(true)
	w.StartWorkerOver(cut.call)
	require.Eventually(t, cut.lost.Load, stage.Patience, 10*time.Millisecond)
	w.StopWorker()
	known := checkpointsOf(w, "web")
	require.Equal(t, before, known, "a lost task leaves no checkpoint")
	back := lose(w, "versions", "payloads", "incarnations")
	w.StartWorker() // with nothing in memory
	for range versions {
		require.ErrorContains(t, <-refused, "the store does not answer")
	}
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(checkpointsOf(w, "web"), func(f string) bool { return !slices.Contains(known, f) })
	}, stage.Patience, 10*time.Millisecond, "the task in its place hands one over as well")
	back()
	id := w.ID("web")
	run, since := runOf(w, id), time.Now()
	ends[1].do(w, id)
	managedAgain(w, id, run, since)
	s := w.AwaitThat("web", "bob's pause", func(s protocol.Status) bool { return len(s.Pauses) == 1 && len(s.Releases) > 0 })
	require.Equal(t, "v1", s.Releases[0].Version, "the others were refused")
}
