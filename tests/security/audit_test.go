package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// history is what the program says of a trail, and its exit code.
func history(w *stage.World, arguments ...string) (string, int) {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), shared.Converge(w.T), append(append([]string{"history"}, arguments...), "--address", w.Address, "--store", w.Store)...)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		require.NoError(w.T, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// whole requires that a trail is as it was noted, and returns what was said.
func whole(w *stage.World, of string) string {
	w.T.Helper()
	said, code := history(w, of, "--verify")
	require.Zero(w.T, code, said)
	return said
}

// acts pauses and resumes a channel by an update so often that the lines of it are written.
func acts(w *stage.World, n int, by string) {
	w.T.Helper()
	for i := range n {
		w.Act("web", []string{protocol.Pause, protocol.Resume}[i%2], fmt.Sprintf(`{"channel":"staging","by":%q,"reason":"act %d"}`, by, i))
	}
}

// chunks are the files that the store has of the service's trail, oldest first.
func chunks(w *stage.World) []string {
	w.T.Helper()
	files, err := filepath.Glob(filepath.Join(w.Store, "audit", w.App, "web", "2*"))
	require.NoError(w.T, err)
	require.NotEmpty(w.T, files)
	slices.Sort(files)
	return files
}

// Whoever can write to the store cannot change what was done: a line that is changed, removed, inserted or cut off is named, and
// so is a trail that was made anew from one end to the other, whether the service runs or only its checkpoint is left.
func TestTamperedTrailIsFound_G7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	acts(w, 50, "mallory")
	web := w.App + "/web"
	said := whole(w, web)
	require.Contains(t, said, "verified up to line")
	last := chunks(w)[len(chunks(w))-1]
	all := map[string]string{}
	for _, file := range chunks(w) {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		all[file] = string(raw)
	}
	first := chunks(w)[0]
	lines := strings.SplitAfter(all[first], "\n")
	tampered := map[string]func(){
		"differs from what was recorded": func() { put(t, first, strings.Replace(all[first], `"name":"mallory"`, `"name":"alice"`, 1)) },
		"was removed":                    func() { put(t, first, strings.Join(slices.Delete(slices.Clone(lines), 6, 7), "")) },
		"was never recorded, or was moved": func() {
			put(t, first, all[first]+strings.Replace(lines[7], `"n":8`, `"n":9`, 1))
		},
		"lines ": func() { require.NoError(t, os.Remove(last)) },
	}
	for want, tamper := range tampered {
		tamper()
		said, code := history(w, web, "--verify")
		require.Equal(t, 1, code, "%s: %s", want, said)
		require.Contains(t, said, want)
		for file, text := range all {
			put(t, file, text)
		}
	}
	require.Contains(t, whole(w, web), "verified up to line")

	for _, file := range chunks(w) { // all hashes made anew by somebody who knows how
		put(t, file, strings.ReplaceAll(all[file], `"name":"mallory"`, `"name":"alice"`))
	}
	rechain(t, w)
	said, code := history(w, web, "--verify")
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "differs from what was recorded")
	for file, text := range all {
		put(t, file, text)
	}

	w.StopWorker() // the checkpoint alone says how it ends
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "as an operator does"))
	require.Contains(t, whole(w, web), "verified up to line")
	require.NoError(t, os.Remove(last))
	said, code = history(w, web, "--verify")
	require.Equal(t, 1, code, said)
	require.Regexp(t, "were removed( from the end)?", said) // the newest lines are in the checkpoint
}

func put(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

// rechain makes the chain of what is in the store anew, as whoever changed it would.
func rechain(t *testing.T, w *stage.World) {
	t.Helper()
	prev := ""
	for _, file := range chunks(w) {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var out strings.Builder
		for line := range strings.Lines(string(raw)) {
			var l entities.AuditEntry
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			if l.Prev != "" {
				l.Prev = prev
			}
			prev = l.Hash()
			text, err := json.Marshal(l)
			require.NoError(t, err)
			out.WriteString(string(text) + "\n")
		}
		put(t, file, out.String())
	}
}

// The chain goes on through whatever operators do: runs that end and begin anew, a run that is reset, and one that is started
// again from a checkpoint that knows less than the store has of the trail. No line is lost, and none stands for another.
func TestChainSurvivesWhatOperatorsDo_G7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 150)
	w.RunWeb()
	run := func() string {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		require.NoError(t, err)
		return d.WorkflowExecutionInfo.Execution.RunId
	}
	first := run()
	acts(w, 60, "ann")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // for it to continue as new
		w.Act("web", protocol.Refresh, `{"by":"ann"}`)
		return run() != first, first
	})
	require.Contains(t, whole(w, w.App+"/web"), "verified up to line")

	_, err := w.Client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: w.ID("web"), RunId: run()},
		Reason: "an operator's test", WorkflowTaskFinishEventId: firstTask(w), RequestId: "reset",
	})
	require.NoError(t, err)
	acts(w, 10, "bob")
	require.Contains(t, whole(w, w.App+"/web"), "verified up to line")

	acts(w, 30, "carl")
	w.StopWorker()
	checkpoints, err := filepath.Glob(filepath.Join(w.Store, "checkpoints", "service", w.App, "web", "0*"))
	require.NoError(t, err)
	slices.Sort(checkpoints)
	for _, newer := range checkpoints[1:] {
		require.NoError(t, os.Remove(newer))
	}
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "as an operator does"))
	w.StartWorker()
	runsAgain(w, w.ID("web"))
	acts(w, 30, "dora")
	said := whole(w, w.App+"/web")
	require.Contains(t, said, "verified up to line")
	said, _ = history(w, w.App+"/web")
	for who, n := range map[string]int{"ann": 60, "bob": 10, "dora": 30} {
		require.Equal(t, n, strings.Count(said, who+"?\tpause"), "of %s: %s", who, said)
	}
	require.GreaterOrEqual(t, strings.Count(said, "carl?\tpause"), 30, "what the checkpoint did not know was done again: %s", said)
}

// firstTask waits for the event that ends the first workflow task of the present run, which may have just begun.
func firstTask(w *stage.World) (id int64) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		for _, e := range w.History(w.ID("web")) {
			if e.GetWorkflowTaskCompletedEventAttributes() != nil {
				id = e.GetEventId()
				return true, ""
			}
		}
		return false, "no workflow task has completed"
	})
	return id
}

// An act that was answered outlives the workflow that answered it, whichever way it was asked for and whether the store answers or
// not: it is recovered from the checkpoint, or from the history of the run that was terminated, and is in the trail once. While
// the store does not answer, that is said.
func TestAnsweredActsOutliveTheirWorkflow_G7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1) + strings.Replace(stage.Web, "name: web", "name: jobs", 1))
	w.Publish()
	for _, service := range []string{"web", "api", "jobs"} {
		w.Release(service, "v1")
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	gone := func(service string) {
		t.Helper()
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID(service), "", "as an operator does"))
	}
	kept := func(service, reason string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			said, _ := history(w, w.App+"/"+service)
			return strings.Count(said, reason) == 1 && strings.Contains(said, "continues from its checkpoint"), said
		})
		require.Contains(t, whole(w, w.App+"/"+service), "verified up to line")
	}
	w.Act("web", protocol.Pause, `{"channel":"staging","by":"ann","reason":"by update"}`)
	gone("web")
	w.Signal("api", protocol.Pause, `{"channel":"production","by":"ann","reason":"by signal"}`)
	gone("api")
	kept("web", "by update")
	kept("api", "by signal")

	away := filepath.Join(t.TempDir(), "store")
	require.NoError(t, os.Rename(w.Store, away))
	require.NoError(t, os.WriteFile(w.Store, nil, 0o600))
	n := 0
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // its worker finds that out by itself
		n++
		verb := []string{protocol.Resume, protocol.Pause}[n%2]
		said := w.Act("jobs", verb, fmt.Sprintf(`{"channel":"staging","by":"ann","reason":"away %d."}`, n))
		return verb == protocol.Pause && strings.Contains(said, "audit pending: "), said
	})
	gone("jobs")
	require.NoError(t, os.Remove(w.Store))
	require.NoError(t, os.Rename(away, w.Store))
	kept("jobs", fmt.Sprintf("away %d.", n))
}

// What people do to an application, a runtime and everything has a history of its own, which is chained as well, and is found in
// that of each service that it concerns: who paused, pinned and published.
func TestHistoriesOfWhatIsWider_G7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	runtime := "runtime/" + w.App + "-rt"
	converge(w, "runtime", "pause", w.App+"-rt", "--yes", "--reason", "of the runtime")
	converge(w, "runtime", "resume", w.App+"-rt", "--yes")
	ask := func(id, verb, payload string) {
		t.Helper()
		var answer protocol.Answer
		require.NoError(t, w.Update(id, verb, json.RawMessage(payload), &answer))
	}
	application := protocol.ApplicationID(w.App)
	ask(application, protocol.Pause, `{"by":"dave","reason":"of the application"}`)
	ask(application, protocol.Resume, `{"by":"dave"}`)
	ask(application, protocol.Pin, `{"by":"erin","incarnation":1,"reason":"a drill"}`)
	ask(protocol.InstallationID(), protocol.Pause, `{"by":"frank","reason":"of everything"}`)
	ask(protocol.InstallationID(), protocol.Resume, `{"by":"frank"}`)
	for _, tt := range []struct {
		of   []string
		want []string
	}{
		{[]string{w.App}, []string{"test?\tpublish\t\t\tincarnation 1", "dave?\tpause\t\t\t" + w.App + " paused (of the application)", "erin?\tpin"}},
		{[]string{runtime}, []string{"of the runtime"}},
		{[]string{"--installation"}, []string{"frank?\tpause\t\t\teverything paused (of everything)"}},
		{[]string{w.App + "/web"}, []string{
			"test?\tpublish", "dave?\tpause", "erin?\tpin", "of the runtime", "frank?\tpause", "test?\trelease",
		}},
	} {
		said, code := history(w, tt.of...)
		require.Zero(t, code, said)
		for _, want := range tt.want {
			require.Contains(t, said, want)
		}
		said, code = history(w, append(tt.of, "--verify")...)
		require.Zero(t, code, said)
		require.Contains(t, said, "verified up to line")
	}

	for range 13 { // so many that they are written
		ask(protocol.InstallationID(), protocol.Pause, `{"by":"frank","reason":"of everything"}`)
		ask(protocol.InstallationID(), protocol.Resume, `{"by":"frank"}`)
	}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		files, err := filepath.Glob(filepath.Join(w.Store, "audit", protocol.InstallationTrail, "*", "2*"))
		return err == nil && len(files) > 0, fmt.Sprint(err)
	})
	said, code := history(w, "--installation", "--verify")
	require.Zero(t, code, said)
}

// converge runs the program.
func converge(w *stage.World, arguments ...string) string {
	w.T.Helper()
	out, err := exec.CommandContext(w.T.Context(), shared.Converge(w.T), append(arguments, "--address", w.Address)...).CombinedOutput()
	require.NoError(w.T, err, "%s", out)
	return string(out)
}

// A service that somebody ended is started again by the next apply, although nothing changed in the configuration, and goes on
// where it was; so is one whose application was ended with it. One that is kept down stays so.
func TestApplyStartsAgainWhatIsMissing_G7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1))
	w.Publish()
	for _, service := range []string{"web", "api"} {
		w.Release(service, "v1")
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	w.Act("web", protocol.Pause, `{"channel":"staging","by":"ann","reason":"to be kept"}`)
	require.Empty(t, w.Publish().Started)
	unsupervised(w)
	for _, id := range []string{w.ID("web"), w.ID("api")} {
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "to be free of it"))
	}
	result := w.Publish()
	require.Equal(t, []string{"api", "web"}, result.Started)
	require.True(t, result.Unchanged)
	w.Await("web", "staging PAUSED v1, production CONVERGED v1")
	said, _ := history(w, w.App+"/web")
	require.Contains(t, said, "continues from its checkpoint: its workflow was gone when test applied its configuration again")
	require.Contains(t, whole(w, w.App+"/web"), "verified up to line")
}

// unsupervised keeps the workers for half a minute from starting by themselves what is gone.
func unsupervised(w *stage.World) {
	w.T.Helper()
	at, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	defer at.Close()
	of, err := at.Installation(w.T.Context())
	require.NoError(w.T, err)
	scope := fmt.Sprintf("supervision-%d", of.Epoch)
	for taken := false; !taken; {
		n, _, err := at.Lease(w.T.Context(), scope)
		require.NoError(w.T, err)
		taken, err = at.TakeLease(w.T.Context(), scope, n+1, "a test")
		require.NoError(w.T, err)
	}
}

// A line that somebody adds to the end of a trail in the store is followed by a workflow that is started again, since the run before
// may have written it: that is said, so that it is told from what was noted.
func TestLinesThatNoCheckpointKnewAreNamed_G7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	acts(w, 50, "ann")
	keptCheckpoints(t, w, "web")
	w.StopWorker()
	at, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer at.Close()
	c, err := at.Checkpoint(t.Context(), w.ID("web"))
	require.NoError(t, err)
	var last struct {
		Lines int64  `json:"auditLines"`
		Head  string `json:"auditHead"`
	}
	require.NoError(t, c.State.Unpack(&last))
	require.NoError(t, at.AppendAudit(t.Context(), w.App, "web", []entities.AuditEntry{{
		N: last.Lines + 1, Prev: last.Head, At: c.At, Kind: entities.EventApproval, Who: &entities.Who{Name: "alice", Proven: true}, Text: "approved go-live",
	}}))
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "as an operator does"))
	w.StartWorker()
	runsAgain(w, w.ID("web"))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Contains(t, whole(w, w.App+"/web"), "verified up to line", "the chain goes through it")
	said, _ := history(w, w.App+"/web")
	require.Contains(t, said, fmt.Sprintf("lines %d to %d of its history are in the store, but were not in its checkpoint", last.Lines+1, last.Lines+1))
}
