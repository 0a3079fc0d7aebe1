package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// lose takes folders of the store away, so that reading and writing what is in them fails at once, for root too. They
// are empty when their names are not there yet.
func lose(w *stage.World, folders ...string) (found func()) {
	w.T.Helper()
	away := w.T.TempDir()
	for _, folder := range folders {
		if err := os.Rename(filepath.Join(w.Store, folder), filepath.Join(away, folder)); err != nil {
			require.ErrorIs(w.T, err, os.ErrNotExist)
		}
		require.NoError(w.T, os.WriteFile(filepath.Join(w.Store, folder), nil, 0o600))
	}
	return func() {
		for _, folder := range folders {
			require.NoError(w.T, os.Remove(filepath.Join(w.Store, folder)))
			if err := os.Rename(filepath.Join(away, folder), filepath.Join(w.Store, folder)); err != nil {
				require.ErrorIs(w.T, err, os.ErrNotExist)
			}
		}
	}
}

// hang makes reading what is in a folder of the store hang, as on a file system whose server is gone: each file becomes a
// pipe without a writer. A reader that hangs does so until the test is over, also when the store answers again.
func hang(w *stage.World, folder string) (answers func()) {
	w.T.Helper()
	files, err := filepath.Glob(filepath.Join(w.Store, folder, "*"))
	require.NoError(w.T, err)
	require.NotEmpty(w.T, files)
	away := w.T.TempDir()
	kept := func(file string) string { return filepath.Join(away, filepath.Base(file)) }
	for _, file := range files {
		require.NoError(w.T, os.Rename(file, kept(file)))
		pipe := kept(file) + ".pipe"
		require.NoError(w.T, syscall.Mkfifo(pipe, 0o600))
		require.NoError(w.T, os.Link(pipe, file))
		w.T.Cleanup(func() {
			if writer, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil { // ends the reads
				writer.Close()
			}
		})
	}
	return func() {
		for _, file := range files {
			require.NoError(w.T, os.Rename(kept(file), file))
		}
	}
}

// pauseAndResume pauses web and ends that, so many times, while the store does not answer: what waited for the store
// would not be answered. It returns the longest that an answer took, to be printed.
func pauseAndResume(w *stage.World, times int) (longest time.Duration) {
	w.T.Helper()
	for n := range 2 * times {
		verb := []string{protocol.Pause, protocol.Resume}[n%2]
		begun := time.Now()
		w.Act("web", verb, `{"channel":"staging","by":"ann","reason":"incident 12"}`)
		longest = max(longest, time.Since(begun))
	}
	return longest
}

// While the store is away, or hangs, a release waits for it; pauses are answered at once, a rollback is applied, and
// status says what waits. Once it is back, the releases go out in the order in which they were accepted.
func TestStoreOutageHoldsUpOnlyWhatNeedsTheStore_F5(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		away func(*stage.World) func()
	}{
		{"away", func(w *stage.World) func() { return lose(w, "versions", "payloads", "audit", "incarnations") }},
		{"hangs", func(w *stage.World) func() { return hang(w, "incarnations") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := shared.OwnServer(t, 0)
			w.RunWeb()
			w.Release("web", "v2")
			w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
			w.StopWorker()
			back := tt.away(w)
			w.StartWorker() // with nothing in memory

			w.Signal("web", protocol.Release, `{"version":"v3","by":"ci"}`)
			t.Logf("a pause took %s at most, from the first moment on", pauseAndResume(w, 10))
			w.AwaitThat("web", "a note", func(s protocol.Status) bool {
				return strings.Contains(strings.Join(s.Notes, "\n"), "the store does not answer")
			})
			t.Logf("a pause took %s at most, in the outage", pauseAndResume(w, 10))
			if tt.name == "away" { // what hangs is not the audit trail
				var answer protocol.Answer
				require.NoError(t, w.Update(w.ID("web"), protocol.Pause, map[string]string{"channel": "staging", "by": "ann"}, &answer))
				require.Contains(t, answer.Message, "audit pending: ")
				w.Act("web", protocol.Resume, `{"channel":"staging","by":"ann"}`)
			}
			w.Act("web", protocol.Rollback, `{"by":"ann","reason":"errors"}`)
			w.AwaitThat("web", "the rollback", func(s protocol.Status) bool { return s.Channels[1].Target == "v1" })
			back()
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // what hung may do so for a while
				err := w.Update(w.ID("web"), protocol.Release, map[string]string{"version": "v4", "by": "bob"}, &protocol.ReleaseAnswer{})
				return err == nil, fmt.Sprint(err)
			})
			s := w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
			require.Equal(t, []string{"v4", "v3"}, []string{s.Releases[0].Version, s.Releases[1].Version})
			require.Empty(t, s.Notes)
		})
	}
}

// While the store can be read and not written, what was claimed before is still applied: drift is repaired, also by a worker that knows
// nothing yet. A new target waits until its claim can be written.
func TestDriftIsRepairedWhileTheStoreCannotBeWritten_F5(t *testing.T) {
	t.Parallel()
	w, bucket := bucketWorld(t)
	w.RunWeb()
	bucket.SetReadOnly(true)
	staging := w.Fake.At(w.App, "web", "staging")
	repair := func() {
		t.Helper()
		applies := staging.Applies()
		staging.SetVersion("v0")
		w.AwaitThat("web", "a repair", func(s protocol.Status) bool {
			return staging.Applies() > applies && s.Channels[0].Status == "CONVERGED"
		})
		require.Equal(t, "v1", staging.Version())
	}
	repair()
	w.StopWorker()
	w.StartWorker()
	repair()
	w.Signal("web", protocol.Release, `{"version":"v2","by":"ci"}`)
	w.AwaitThat("web", "a note", func(s protocol.Status) bool {
		return strings.Contains(strings.Join(s.Notes, "\n"), "the store does not answer")
	})
	repair()
	bucket.SetReadOnly(false)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// noFailedTasks requires that no workflow task of any run failed or timed out.
func noFailedTasks(w *stage.World, id string) (events int) {
	w.T.Helper()
	for run := runOf(w, id); run != ""; {
		history := w.Client.GetWorkflowHistory(w.T.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		run = ""
		for history.HasNext() {
			e, err := history.Next()
			require.NoError(w.T, err)
			events++
			if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
				run = started.ContinuedExecutionRunId
			}
			if failed := e.GetWorkflowTaskFailedEventAttributes(); failed != nil { // the server ends one that the worker left when more came than waits beside a task
				require.Equal(w.T, enums.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND, failed.Cause, "%s", e)
			}
			if out := e.GetWorkflowTaskTimedOutEventAttributes(); out != nil { // another one only left the worker that was stopped
				require.NotEqual(w.T, enums.TIMEOUT_TYPE_START_TO_CLOSE, out.TimeoutType, "%s", e)
			}
		}
	}
	return events
}

// Ten thousand signals that came while no worker ran are carried out in their order, and none is lost; with the store
// away, too, whose releases wait meanwhile. No workflow task fails of it.
func TestTenThousandSignals_F6(t *testing.T) {
	if testing.Short() {
		t.Skip("it sends twenty thousand signals; not with -short")
	}
	t.Parallel()
	for _, away := range []bool{false, true} {
		t.Run(map[bool]string{false: "the store answers", true: "the store is away"}[away], func(t *testing.T) {
			t.Parallel()
			w := shared.OwnServer(t, 0)
			w.RunWeb()
			w.StopWorker()
			back := func() {}
			if away {
				back = lose(w, "versions", "payloads", "audit", "states")
			}
			const all = 9_990 // a server takes 10,000 in one run
			w.Signal("web", protocol.Release, `{"version":"v2","by":"ci"}`)
			for n := range all {
				verb := []string{protocol.Pause, protocol.Resume}[n%2]
				w.Signal("web", verb, fmt.Sprintf(`{"channel":"staging","by":"ann","reason":"%d"}`, n))
			}
			w.Signal("web", protocol.Release, `{"version":"v3","by":"ci"}`)
			w.Signal("web", protocol.Pause, `{"channel":"staging","by":"ann","reason":"the last"}`)
			begun := time.Now()
			w.StartWorker()
			w.AwaitThat("web", "the last pause", func(s protocol.Status) bool { return len(s.Pauses) == 1 && s.Pauses[0].Reason == "the last" })
			t.Logf("carried out after %s", time.Since(begun))
			back()
			w.Act("web", protocol.Resume, `{"channel":"staging","by":"ann"}`)
			s := w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
			require.Equal(t, []string{"v3", "v2", "v1"}, []string{s.Releases[0].Version, s.Releases[1].Version, s.Releases[2].Version})
			require.Empty(t, s.Refused)
			t.Logf("%d events", noFailedTasks(w, w.ID("web")))
			require.Equal(t, all/2, pausesInOrder(w))
		})
	}
}

// pausesInOrder counts the pauses in the audit trail, each of which comes after the one before.
func pausesInOrder(w *stage.World) int {
	w.T.Helper()
	var answer protocol.HistoryAnswer
	value, err := temporaltest.Query(w.T.Context(), w.Client, w.ID("web"), protocol.QueryHistory)
	require.NoError(w.T, err)
	require.NoError(w.T, value.Get(&answer))
	kept, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	lines, err := kept.Audit(w.T.Context(), w.App, "web")
	require.NoError(w.T, err)
	next := 0
	for _, line := range append(lines[:answer.Stored], answer.Entries...) {
		if line.Kind == entities.EventPause && line.Reason == strconv.Itoa(next) {
			next += 2 // between them are the ends, which have no reason
		}
	}
	return next / 2
}
