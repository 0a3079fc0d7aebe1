package operators

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
)

// backup copies the files of the database; the server does not run.
func (k *killable) backup() (dir string) {
	k.t.Helper()
	dir = k.t.TempDir()
	copyFiles(k.t, filepath.Dir(k.file), dir)
	return dir
}

// restore replaces the files of the database by those of a backup.
func (k *killable) restore(dir string) {
	k.t.Helper()
	// To restore a database takes longer than this; what came sooner after a checkpoint could be from before.
	temporaltest.WaitFor(k.t, stage.Patience, func() (bool, string) { return time.Since(k.killed) > activities.RestoreTolerance, "too soon" })
	k.remove()
	copyFiles(k.t, dir, filepath.Dir(k.file))
}

// remove removes the files of the database, so that the server makes new ones.
func (k *killable) remove() {
	k.t.Helper()
	files, err := filepath.Glob(k.file + "*")
	require.NoError(k.t, err)
	require.NotEmpty(k.t, files)
	for _, file := range files {
		require.NoError(k.t, os.Remove(file))
	}
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(from, file.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, file.Name()), data, 0o600))
	}
}

const third = `---
apiVersion: converge/v1
kind: Service
name: lb
custom: {env: {VERSION: "${{ version }}"}}
`

// The database of Temporal is replaced by an older backup under running workers, whose store has all that was accepted since.
// Within a minute everything is as it was: no approval and no pause is lost, a service that the backup does not know runs, nothing
// is applied twice or backwards, and what is sent to the restored workflows in their first moments counts, also if it is so much that the
// history of one is longer at once than that which its checkpoint is from.
func TestOlderBackupOfTemporalUnderRunningWorkers_F1_F2(t *testing.T) {
	t.Parallel()
	server := newKillable(t)
	w := atV1(t, server)
	server.kill()
	backup := server.backup()
	server.start()

	w.Write(approvals + stage.Web + beside + third)
	w.Publish()
	w.Release("web", "v2")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.Signal("web", protocol.Pause, `{"by":"bob","channel":"staging","reason":"drill"}`)
	w.Await("web", "staging PAUSED v2, production CONVERGED v2")
	w.Release("api", "v2")
	w.Await("api", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL v1")
	w.Release("lb", "v1")
	w.Await("lb", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	for _, id := range []string{w.ID("web"), w.ID("api"), w.ID("lb"), protocol.ApplicationID(w.App)} {
		awaitCheckpoint(w, id)
	}

	length := len(w.History(w.ID("web")))

	server.kill()
	server.restore(backup)
	server.start()
	since := time.Now()
	for n := range length + 20 {
		signalRestored(w, "web", protocol.Pause, fmt.Sprintf(`{"by":"carol","channel":"production","reason":"incident %d"}`, n))
	}
	signalRestored(w, "api", protocol.Approve, `{"by":"carol","version":"v2","topic":"production"}`)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		var application protocol.ApplicationStatus
		err := w.Query(protocol.ApplicationID(w.App), protocol.QueryStatus, &application)
		return err == nil && application.Notified == 2, fmt.Sprint(application.Notified, err)
	})
	w.Await("api", "staging CONVERGED v2, production CONVERGED v2")
	web := w.Await("web", "staging PAUSED v2, production PAUSED v2")
	w.Await("lb", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	t.Logf("everything was as before %s after the server was back", time.Since(since).Round(100*time.Millisecond))
	require.True(t, hasApproval(web, "alice"))
	require.Equal(t, "drill", web.Pauses[0].Reason)
	require.Equal(t, 1, web.Restarts.Count, "a workflow that continues from its checkpoint did not go back")
	w.Act("web", protocol.Resume, `{"by":"carol","channel":"production"}`)
	require.True(t, w.Publish().Unchanged)
	for name, versions := range appliedTo(w, "web/staging", "web/production", "api/staging", "api/production") {
		require.Equal(t, []string{"v1", "v2"}, versions, name)
	}
	require.Equal(t, []string{"v1"}, appliedTo(w, "lb/staging")["lb/staging"])
	require.Empty(t, w.Fake.Overlaps())
	for _, service := range []string{"web", "api", "lb"} {
		var lines []entities.AuditEntry
		require.Eventually(t, func() bool { lines = trailOf(w, service); return len(lines) > 0 }, stage.Patience, 100*time.Millisecond)
		everyNumberOnce(w, lines)
	}
	w.Release("web", "v3")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v3","topic":"production"}`)
	w.Await("web", "staging PAUSED v2, production WAITING_PRECONDITIONS v2")
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"staging"}`)
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// signalRestored sends a signal to a restored workflow, which may just be between two runs.
func signalRestored(w *stage.World, service, verb, payload string) {
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		err := w.Client.SignalWorkflow(w.T.Context(), w.ID(service), "", verb, json.RawMessage(payload))
		return err == nil, fmt.Sprint(err)
	})
}

// The same while no worker runs, and so many requests come to the restored workflow before one does that its history is longer than
// that which its checkpoint is from; or that run is unknown to the backup. All that was accepted before and after counts.
func TestOlderBackupOfTemporalWithoutWorkers_F1_F2(t *testing.T) {
	t.Parallel()
	for _, content := range []string{prepared, shortRuns} {
		t.Run(content, func(t *testing.T) {
			t.Parallel()
			server := newKillable(t)
			server.kill()
			server.remove()
			server.content = content
			server.start()
			w := shared.At(t, server.address())
			stop := w.StartWorkerAs(worker.Options{})
			w.Write(approvals + stage.Web)
			w.Publish()
			w.Release("web", "v1")
			w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
			w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			before := runOf(w, w.ID("web"))
			server.kill()
			backup := server.backup()
			server.start()
			for _, version := range []string{"v2", "v3"} {
				w.Release("web", version)
				w.Act("web", protocol.Approve, `{"by":"alice","version":"`+version+`","topic":"production"}`)
				w.Await("web", fmt.Sprintf("staging CONVERGED %[1]s, production CONVERGED %[1]s", version))
			}
			w.Act("web", protocol.Pause, `{"by":"bob","channel":"staging","reason":"drill"}`)
			require.Equal(t, content == shortRuns, runOf(w, w.ID("web")) != before, "the backup knows the run")
			length := len(w.History(w.ID("web")))
			stop()

			server.kill()
			server.restore(backup)
			server.start()
			require.Equal(t, before, runOf(w, w.ID("web")))
			if content == prepared {
				require.Less(t, len(w.History(w.ID("web"))), length, "the history went back")
			}
			for n := 0; n < 10 || len(w.History(w.ID("web"))) < length+20; n++ {
				w.Signal("web", protocol.Pause, fmt.Sprintf(`{"by":"carol","channel":"production","reason":"incident %d"}`, n))
			}
			w.StartWorkerAs(worker.Options{})
			s := w.Await("web", "staging PAUSED v3, production PAUSED v3")
			require.True(t, hasApproval(s, "alice"))
			require.Contains(t, journal(s), "an older state")
			for name, versions := range appliedTo(w, "web/staging", "web/production") {
				require.Equal(t, []string{"v1", "v2", "v3"}, versions, name)
			}
			everyNumberOnce(w, trailOf(w, "web"))
			w.Act("web", protocol.Resume, `{"by":"bob","channel":"staging"}`)
			w.Act("web", protocol.Resume, `{"by":"carol","channel":"production"}`)
			w.Release("web", "v4")
			w.Act("web", protocol.Approve, `{"by":"alice","version":"v4","topic":"production"}`)
			w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
		})
	}
}

// The backup is from before the first worker: the namespace is the same and has nothing of Converge. The running workers add the search
// attributes, make their version the current one again, and start everything as it was.
func TestBackupOfTemporalFromBeforeConverge_F1_F3(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]worker.Deployment{
		"workers without versions": {}, "workers of a version": {Name: "converge", Build: "one", SetCurrent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newKillable(t)
			server.kill()
			server.remove()
			server.content = bare
			server.start()
			server.kill()
			backup := server.backup()
			server.start()
			w := shared.At(t, server.address())
			w.StartWorkerAs(worker.Options{Deployment: version})
			w.StartWorkerAs(worker.Options{Deployment: version})
			w.Write(stage.TwoChannels + stage.Web)
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the server may not know the new search attributes everywhere yet
				_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
				return err == nil, fmt.Sprint(err)
			})
			w.Release("web", "v1")
			w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			w.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
			for _, id := range []string{w.ID("web"), protocol.ApplicationID(w.App)} {
				awaitCheckpoint(w, id)
			}

			server.kill()
			server.restore(backup)
			server.start()
			since := time.Now()
			w.Await("web", "staging CONVERGED v1, production PAUSED v1")
			managedAgain(w, w.ID("web"), "", since)
			w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
			w.Release("web", "v2")
			w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
			require.True(t, w.Publish().Unchanged)
			for name, versions := range appliedTo(w, "web/staging", "web/production") {
				require.Equal(t, []string{"v1", "v2"}, versions, name)
			}
		})
	}
}

// The database of Temporal is replaced by an empty one, in which the namespace of that name is another. The worker ends and says what
// was replaced and how to go on; nothing starts in the new namespace, and `apply` says why. With --take-over everything is managed there, as
// it was.
func TestNewDatabaseOfTemporalUnderARunningWorker_F1_F4(t *testing.T) {
	t.Parallel()
	server := newKillable(t)
	server.content = bare
	w := shared.At(t, server.address())
	worker := startProgram(w, "worker")
	writeNoted(w)
	awaitApply(w)
	w.Release("web", "v1")
	w.Await("web", "production CONVERGED v1")
	w.Signal("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	w.Await("web", "production PAUSED v1")
	for _, id := range []string{w.ID("web"), protocol.ApplicationID(w.App), protocol.InstallationID()} {
		awaitCheckpoint(w, id)
	}

	server.kill()
	server.remove()
	server.start()
	since := time.Now()
	said, code := worker.awaitEnd()
	t.Logf("ended %s after the server was back", time.Since(since).Round(100*time.Millisecond))
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "[replaced]")
	require.Contains(t, said, "[elsewhere]")
	require.Contains(t, said, "--take-over")
	count, err := w.Client.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Zero(t, count.GetCount(), "nothing was started in the namespace of somebody else")
	said, err = tryCLI(w, "config", "publish", w.Dir)
	require.Error(t, err)
	require.Contains(t, said, "the namespace lacks the search attributes of Converge")
	require.Contains(t, said, "converge worker --take-over")

	since = time.Now()
	startProgram(w, "worker", "--take-over")
	w.Await("web", "production PAUSED v1")
	managedAgain(w, w.ID("web"), "", since)
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
	w.Release("web", "v2")
	w.Await("web", "production CONVERGED v2")
	log, err := os.ReadFile(filepath.Join(w.Dir, "applied"))
	require.NoError(t, err)
	require.Equal(t, []string{"v1", "v2"}, strings.Fields(string(log)))
}

// A worker that was started with --take-over starts over in the new namespace by itself, and so does a remote worker once the installation
// was moved there. The remote worker was started before there was an installation.
func TestWorkersThatMayTakeOverStartOver_F4(t *testing.T) {
	if testing.Short() {
		t.Skip("an apply may wait a minute for the timeout of its activity; not with -short")
	}
	t.Parallel()
	setBucketCredentials()
	server := newKillable(t)
	server.content = bare
	w := shared.At(t, server.address())
	bucket := httptest.NewServer(buckettest.New())
	t.Cleanup(bucket.Close)
	w.Store = buckettest.URL(bucket.URL)
	remote := startProgram(w, "worker", "--runtime", w.App+"-rt")
	worker := startProgram(w, "worker", "--take-over", "--metrics", fmt.Sprint(shared.FreePort(t)))
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), notes)
	w.Write(strings.Replace(commands, "custom:", "worker: remote\ncustom:", 1) + stage.Web)
	awaitApply(w)
	w.Release("web", "v1")
	since := time.Now()
	w.Await("web", "production CONVERGED v1")
	t.Logf("v1 arrived after %s", time.Since(since).Round(time.Second))
	awaitCheckpoint(w, w.ID("web"))
	awaitCheckpoint(w, protocol.ApplicationID(w.App))

	server.kill()
	server.remove()
	server.start()
	since = time.Now()
	w.Await("web", "production CONVERGED v1")
	t.Logf("managed again after %s", time.Since(since).Round(time.Second))
	require.Contains(t, worker.out.String(), "[replaced]")
	since = time.Now()
	w.Release("web", "v2")
	w.AwaitThat("web", "v2, after a retry if the remote worker had not started over", func(s protocol.Status) bool {
		if strings.Contains(stage.Channels(s), "FAILED") {
			w.Act("web", protocol.Retry, `{"by":"bob","version":"v2"}`)
		}
		return stage.Channels(s) == "production CONVERGED v2"
	})
	t.Logf("v2 arrived after %s", time.Since(since).Round(time.Second))
	require.True(t, worker.runs(), worker.out.String())
	require.True(t, remote.runs(), remote.out.String())
	require.Contains(t, remote.out.String(), "[moved]")
}

// notes is an apply that writes down its version.
const notes = "#!/bin/sh\necho \"$VERSION\" >>applied\n"

// writeNoted writes a service whose applies are noted.
func writeNoted(w *stage.World) {
	w.T.Helper()
	programtest.Write(w.T, filepath.Join(w.Dir, "apply.sh"), notes)
	w.Write(commands + stage.Web)
}

// program is a process of converge.
type program struct {
	t     *testing.T
	out   *lockedBuffer
	ended chan struct{}
	cmd   *exec.Cmd
}

func startProgram(w *stage.World, arguments ...string) *program {
	w.T.Helper()
	p := &program{t: w.T, out: &lockedBuffer{}, ended: make(chan struct{})}
	p.cmd = exec.Command(shared.Converge(w.T), append(arguments, "--address", w.Address, "--store", w.Store)...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = w.Dir, p.out, p.out
	require.NoError(w.T, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its code is read from the state
		close(p.ended)
	}()
	w.T.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	})
	return p
}

func (p *program) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// awaitEnd returns what it printed, and its exit code.
func (p *program) awaitEnd() (said string, code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(stage.Patience):
		require.Fail(p.t, "it goes on", p.out.String())
	}
	return p.out.String(), p.cmd.ProcessState.ExitCode()
}

// tryCLI is cli for a command that may fail, and returns what it printed in all.
func tryCLI(w *stage.World, arguments ...string) (string, error) {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), shared.Converge(w.T), append(arguments, "--address", w.Address)...)
	cmd.Dir, cmd.Env = w.Dir, append(os.Environ(), "CONVERGE_STORE="+w.Store, "CONVERGE_BY=test")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// awaitApply applies the directory; the worker has just been started.
func awaitApply(w *stage.World) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		said, err := tryCLI(w, "config", "publish", w.Dir)
		return err == nil, said
	})
}

// lockedBuffer is written by a process while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A checkpoint may reach the store before Temporal has the result of the task that made it, and the server may not write the task of an
// update to the history before it has that result. The supervisor does not take that for a restored database, so the workflow continues and
// the update is answered.
func TestCheckpointAheadOfItsTaskIsNoRestore_F1(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for two checks of the supervisor; not with -short")
	}
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	var checks atomic.Int32
	var begun, held sync.Once
	armed, answered, compared := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.StartWorkerOver(func(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		switch r := request.(type) {
		case *workflowservice.DescribeNamespaceRequest: // the first step of a check
			if checks.Load() == 2 { // everything before has its checkpoint
				begun.Do(func() { close(armed) })
				<-answered
			}
		case *workflowservice.RespondWorkflowTaskCompletedRequest:
			if len(r.GetMessages()) > 0 { // it answers an update
				held.Do(func() { close(answered) })
				<-compared
			}
		case *workflowservice.ListWorkflowExecutionsRequest:
			if r.GetQuery() == protocol.PausedQuery && checks.Add(1) == 3 { // the last step of a check
				close(compared)
			}
		}
		return invoke(ctx, method, request, reply, to, o...)
	})
	<-armed
	run := runOf(w, w.ID("web"))
	w.Act("web", protocol.Pause, `{"channel":"staging","by":"ann","reason":"a drill"}`)
	<-compared
	require.Equal(t, run, runOf(w, w.ID("web")), "it was not terminated")
}
