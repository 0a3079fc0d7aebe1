package operators

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// This file ends workflows again and again.

// manyServices is web and others, with an approval before production.
func manyServices(n int) (yaml string, names []string) {
	yaml = strings.Replace(approvals, "fake: {", "maxConcurrentApplies: 8\nfake: {", 1) // so the runtime has a workflow
	for i := range n {
		name := fmt.Sprintf("s%02d", i)
		names = append(names, name)
		yaml += strings.ReplaceAll(beside, "name: api", "name: "+name)
	}
	return yaml, names
}

// A script terminates everything, three times within minutes, and the last time it deletes: each time everything is managed again within a
// minute. Services that ran go on, one that a person paused is paused, one that waits for a second release has its approval, and nothing
// is applied again. Their status says how often that happened.
func TestEverythingEndedThreeTimesIsManagedAgain_F1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	number := 15
	if testing.Short() {
		number = 4
	}
	yaml, services := manyServices(number)
	w.Write(yaml)
	w.Publish()
	for _, service := range services {
		w.Release(service, "v1")
	}
	for _, service := range services {
		w.Await(service, "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	}
	paused, approved := services[0], services[1]
	w.Act(paused, protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	w.Act(paused, protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Act(approved, protocol.Pause, `{"by":"bob","channel":"production","reason":"until it was ended"}`)
	w.Act(approved, protocol.Approve, `{"by":"carol","version":"v1","topic":"production"}`)
	asBefore := func(service string) protocol.Status {
		want := "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL"
		if service == paused || service == approved {
			want = "staging CONVERGED v1, production PAUSED"
		}
		return w.Await(service, want)
	}
	all := []string{protocol.InstallationID(), protocol.RuntimeID(w.App + "-rt"), protocol.ApplicationID(w.App)}
	for _, service := range services {
		asBefore(service)
		all = append(all, w.ID(service))
	}

	kept, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer kept.Close() // only read
	for round := 1; round <= 3; round++ {
		how := ends[round/3] // at last they are deleted
		since, runs := time.Now(), map[string]string{}
		for _, id := range all {
			runs[id] = runOf(w, id)
			how.do(w, id)
		}
		for _, id := range all {
			managedAgain(w, id, runs[id], since)
			awaitCheckpointOfRun(w, kept, id)
		}
		for _, service := range services {
			s := asBefore(service)
			require.NotNil(t, s.Restarts)
			require.Equal(t, round, s.Restarts.Count, "%s: %s", service, journal(s))
			require.Contains(t, s.Restarts.Why, how.why)
			require.Len(t, s.Pauses, map[string]int{paused: 1, approved: 1}[service], "no pause but those of people")
			require.Equal(t, service == approved, hasApproval(s, "carol"))
		}
	}
	explained := cli(w, "explain", w.App+"/"+paused)
	require.Regexp(t, `Note: its workflow was restarted 3 times, since .+, the last time .+ ago: its workflow was deleted`, explained)
	require.Contains(t, explained, "continues from its checkpoint: its workflow was terminated by ")
	require.Regexp(t, `NOTE .*`+paused+`: its workflow was restarted 3 times`, cli(w, "status", w.App))
	require.Regexp(t, `its workflow was deleted; restarted 3 times since \d\d:\d\d UTC`, cli(w, "history", w.App+"/"+paused))

	for _, service := range []string{paused, approved} {
		w.Act(service, protocol.Resume, `{"by":"bob","channel":"production"}`)
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	for _, service := range services {
		require.Equal(t, 1, w.Fake.At(w.App, service, "staging").Applies(), "nothing is applied again")
	}
}

// awaitCheckpointOfRun waits until the store has a checkpoint of the current run of a workflow, with the count of its restarts.
func awaitCheckpointOfRun(w *stage.World, kept *store.Store, id string) {
	w.T.Helper()
	run := runOf(w, id)
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		c, err := kept.Checkpoint(w.T.Context(), id)
		return err == nil && c.Run == run, fmt.Sprint(id, c.Run, err)
	})
}

// A service that is started without a reason, as by a notice of its application, finds out who ended it.
func TestServiceStartedWithoutAReasonSaysWhoEndedIt_F1(t *testing.T) {
	for _, how := range ends {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			w := shared.OwnServer(t, 0)
			w.RunWeb()
			before := runOf(w, w.ID("web"))
			kept, err := store.Open(t.Context(), w.Store)
			require.NoError(t, err)
			defer kept.Close() // only read
			awaitCheckpointOfRun(w, kept, w.ID("web"))
			how.do(w, w.ID("web"))
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
				run, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
					ID: w.ID("web"), TaskQueue: protocol.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
				}, protocol.ServiceWorkflow, protocol.ServiceInput{Application: w.App, Service: "web", StartMode: protocol.StartMode{Adopt: true}})
				return err == nil && run.GetRunID() != before, fmt.Sprint(err)
			})
			s := w.AwaitThat("web", "a restart", func(s protocol.Status) bool { return s.Restarts != nil })
			require.Contains(t, s.Restarts.Why, how.why)
			require.Equal(t, "staging CONVERGED v1, production CONVERGED v1", stage.Channels(s))
		})
	}
}

// startForged replaces the run of a service by one that fails at once: its input is not one that Converge writes.
func startForged(w *stage.World, id string) (run string) {
	w.T.Helper()
	forged, err := w.Client.ExecuteWorkflow(w.T.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: protocol.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING,
	}, protocol.ServiceWorkflow, protocol.ServiceInput{Application: w.App, Service: "web"})
	require.NoError(w.T, err)
	ctx, stop := context.WithTimeout(w.T.Context(), stage.Patience)
	defer stop()
	require.ErrorContains(w.T, w.Client.GetWorkflow(ctx, id, forged.GetRunID()).GetWithOptions(ctx, nil, client.WorkflowRunGetOptions{DisableFollowingRuns: true}),
		"was not started by Converge")
	return forged.GetRunID()
}

// A service whose workflow fails again and again is managed again within a minute each time, and never paused. Doctor says that
// it fails, and its status why.
func TestServiceThatFailsAgainAndAgainIsManagedAgain_F1(t *testing.T) {
	stage.Long(t, "two minutes")
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	id := w.ID("web")
	for n := 1; n <= 3; n++ {
		failed, since := startForged(w, id), time.Now()
		managedAgain(w, id, failed, since)
		s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
		require.Empty(t, s.Pauses)
		require.Equal(t, n, s.Restarts.Count, journal(s))
		require.Contains(t, s.Restarts.Why, "its workflow ended: failed: this workflow was not started by Converge")
	}
	require.Regexp(t, `(?m)^restarted-workflow\s+`+id+`\s+its workflow runs; it ended \d times within the last hour`, cli(w, "admin", "doctor"))
	require.Equal(t, 1, w.Fake.At(w.App, "web", "staging").Applies())
}

// A workflow that a foreign worker completed is managed again: the store does not say that its work is done.
func TestCompletedServiceIsManagedAgain_F1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	id := w.ID("web")
	run := runOf(w, id)
	w.StopWorker()
	w.Signal("web", protocol.Refresh, `{"by":"alice"}`)
	answer(w, id, &commandpb.Command{
		CommandType: enumspb.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
		Attributes: &commandpb.Command_CompleteWorkflowExecutionCommandAttributes{
			CompleteWorkflowExecutionCommandAttributes: &commandpb.CompleteWorkflowExecutionCommandAttributes{},
		},
	})
	since := time.Now()
	w.StartWorker()
	managedAgain(w, id, run, since)
	s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Contains(t, journal(s), "continues from its checkpoint: its workflow ended: completed")
}
