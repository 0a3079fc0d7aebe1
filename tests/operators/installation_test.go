package operators

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// An installation moves to another server and another store, by the two commands, with everything in flight: an apply under
// way, an approval that was given and one that is outstanding, a pause, a pin, and signals that nobody had read yet. It keeps its id, its
// epoch rises, everything is managed again within a minute, and nothing is applied twice. Where it was, nothing starts again.
func TestInstallationMoves_F4(t *testing.T) {
	t.Parallel()
	old := shared.OwnServer(t, 0)
	bin := shared.Converge(t)
	old.Write(approvals + stage.Web + strings.NewReplacer("web", "api").Replace(stage.Web) + strings.NewReplacer("web", "lb").Replace(stage.Web))
	old.Publish()
	for _, service := range []string{"web", "api", "lb"} {
		old.Release(service, "v1")
		old.Await(service, "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	}
	old.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	old.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	old.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	old.Release("web", "v2")
	old.Await("web", "staging CONVERGED v2, production PAUSED v1")
	old.Act("web", protocol.Approve, `{"by":"carol","version":"v2","topic":"production"}`)
	hanging := old.Fake.At(old.App, "lb", "staging")
	goOn := hanging.HangApplies()
	old.Release("lb", "v2")
	require.NoError(t, old.Fake.Await(t.Context(), hanging.Applying))

	old.StopWorker() // so that what is sent now is in no checkpoint
	old.Signal("api", protocol.Approve, `{"by":"dave","version":"v1","topic":"production"}`)
	old.Signal("api", protocol.Pause, `{"by":"dave","channel":"staging"}`)
	w := shared.Unserved(t, embedded.Options{})
	w.App, w.Dir, w.Fake = old.App, old.Dir, old.Fake

	began := time.Now()
	said := move(t, bin, old, w)
	require.Contains(t, said, "workflows ended; nothing is applied from "+old.Store+" any more")
	require.Contains(t, said, "epoch 3")
	goOn()
	w.StartWorkerAs(worker.Options{})
	managedAgain(w, protocol.ApplicationID(w.App), "", began)
	for _, service := range []string{"web", "api", "lb"} {
		managedAgain(w, w.ID(service), "", began)
	}
	t.Logf("moved, and managed again, after %s", time.Since(began).Round(100*time.Millisecond))
	s := w.Await("web", "staging CONVERGED v2, production PAUSED v1")
	require.Contains(t, journal(s), "its installation was moved here")
	w.Await("lb", "staging CONVERGED v2, production WAITING_MANUAL_APPROVAL")
	w.Await("api", "staging PAUSED v1, production CONVERGED v1")
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2") // by carol's approval
	require.Empty(t, w.Fake.Overlaps())
	for _, service := range []string{"web", "api"} {
		require.Equal(t, map[string]int{"web": 2, "api": 1}[service], w.Fake.At(w.App, service, "staging").Changes(), service)
	}
	var status protocol.ApplicationStatus
	query(w, protocol.ApplicationID(w.App), &status)
	require.Equal(t, w.Store, status.Store, "what the CLI opens")
	require.True(t, w.Publish().Unchanged)

	_, err := worker.Start(t.Context(), old.Client, worker.Options{Store: old.Store})
	require.ErrorContains(t, err, "was exported by")
	require.ErrorContains(t, err, "--take-over")
	_, err = worker.Start(t.Context(), old.Client, worker.Options{Store: old.Store, Owner: "converge dev"})
	require.ErrorContains(t, err, "was exported by", "converge dev does not take it back by itself")
}

// What still runs where an installation was exported from starts nothing and applies nothing.
func TestExportedInstallationStaysEnded_F4(t *testing.T) {
	t.Parallel()
	old := shared.OwnServer(t, 0)
	bin := shared.Converge(t)
	old.Write(stage.TwoChannels + stage.Web)
	old.Publish()
	old.Release("web", "v1")
	old.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	instance := old.Fake.At(old.App, "web", "staging")
	goOn := instance.HangApplies()
	old.Release("web", "v2")
	require.NoError(t, old.Fake.Await(t.Context(), instance.Applying))
	archive := filepath.Join(t.TempDir(), "archive.tar.gz")
	said := export(t, bin, old, "--from", "dev", "--yes", archive)
	require.Contains(t, said, "3 workflows ended")
	require.NoError(t, old.Fake.Await(t.Context(), func() bool { return !instance.Applying() }), "the worker is told")
	goOn()
	info, err := os.Stat(archive)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	old.Write(strings.ReplaceAll(stage.TwoChannels+stage.Web, "hello", "bye"))
	_, err = publish.Publish(t.Context(), publish.Options{Client: old.Client, Dir: old.Dir, StoreURL: old.Store, By: "test", Fake: true})
	require.ErrorContains(t, err, "was exported by", "nothing is published there")
	applies := instance.Applies()
	instance.SetVersion("by hand")
	awaitNoSupervision(old)
	require.Equal(t, applies, instance.Applies())
	awaitEnded(old, old.ID("web"))
	awaitEnded(old, protocol.ApplicationID(old.App))

	require.Contains(t, cli(old, "status"), "to continue elsewhere; nothing is managed here any more")

	old.StopWorker() // the archive was lost: it goes on where it was
	since := time.Now()
	old.StartWorkerAs(worker.Options{TakeOver: true})
	managedAgain(old, old.ID("web"), "", since)
	old.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, applies+1, instance.Applies())
}

// Everything is lost but last night's backup: it comes back paused, since nobody knows what was done after it, and goes on
// when people say so.
func TestRestoreFromBackup_F4(t *testing.T) {
	t.Parallel()
	old := shared.OwnServer(t, 0)
	bin := shared.Converge(t)
	old.Write(stage.TwoChannels + stage.Web)
	old.Publish()
	old.Release("web", "v1")
	old.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	awaitCheckpoint(old, old.ID("web"))
	archive := filepath.Join(t.TempDir(), "backup.tar.gz")
	require.NotContains(t, export(t, bin, old, archive), "ended")
	old.Release("web", "v2") // the backup does not know
	old.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	old.StopWorker()

	w := shared.Unserved(t, embedded.Options{})
	w.App, w.Dir, w.Fake = old.App, old.Dir, old.Fake
	said, err := run(bin, w, "admin", "import", "--store", w.Store, archive)
	require.Error(t, err)
	require.Contains(t, said, "this is a backup of an installation that may still run")
	require.NoError(t, os.RemoveAll(old.Store))
	since := time.Now()
	said, err = run(bin, w, "admin", "import", "--restore", "--store", w.Store, archive)
	require.NoError(t, err, said)
	w.StartWorkerAs(worker.Options{})
	managedAgain(w, w.ID("web"), "", since)
	s := w.Await("web", "staging PAUSED v1, production PAUSED v1")
	require.Contains(t, journal(s)+reasons(s), "restored from the backup of")
	require.Equal(t, "v2", w.Fake.At(w.App, "web", "production").Version(), "nothing was taken back")
	w.Release("web", "v3")
	require.Equal(t, "everything is resumed\n", cli(w, "resume", "--all", "--yes"))
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// The store alone is lost, and Temporal goes on: the backup fills it, and workflows go on with what they know, which is more.
func TestRestoreOfTheStore_F4(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	bin := shared.Converge(t)
	w.RunWeb()
	archive := filepath.Join(t.TempDir(), "backup.tar.gz")
	export(t, bin, w, archive)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	production := w.Fake.At(w.App, "web", "production")
	moves := production.Changes()
	w.Lose()
	since := time.Now()
	said, err := run(bin, w, "admin", "import", "--restore", "--store", w.Store, archive)
	require.NoError(t, err, said)
	require.Contains(t, said, "continue with their own state")
	require.Equal(t, "staging CONVERGED v2, production CONVERGED v2", shortly(w))
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	t.Logf("released again after %s", time.Since(since).Round(100*time.Millisecond))
	require.Equal(t, moves+1, production.Changes(), "nothing was taken back on the way")
}

// The store is lost, and there is no backup: no worker takes it for a new one, and when one is told to go on, it is the same installation,
// with what Temporal knows and what is published and released again.
func TestLostStoreWithoutABackup_F4(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	before, err := opened(w).Installation(t.Context())
	require.NoError(t, err)
	w.StopWorker()
	w.Lose()
	_, err = worker.Start(t.Context(), w.Client, worker.Options{Store: w.Store})
	require.ErrorContains(t, err, "whose store "+w.Store+" has lost its data: nothing was started")
	require.ErrorContains(t, err, "converge worker --take-over, converge config publish for each application, and converge release of the running versions")
	production := w.Fake.At(w.App, "web", "production")
	moves := production.Changes()

	w.StartWorkerAs(worker.Options{TakeOver: true})
	after, err := opened(w).Installation(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{before.ID, before.Epoch, before.NamespaceID}, []any{after.ID, after.Epoch, after.NamespaceID})
	w.AwaitThat("web", "the missing runtime", func(s protocol.Status) bool { return strings.Contains(reasons(s), "the store has no runtimes/") })
	w.Publish()
	w.AwaitThat("web", "the command that releases v1 again", func(s protocol.Status) bool { // nobody knows what v1 was rendered to
		return stage.Channels(s) == "staging UNKNOWN v1, production UNKNOWN v1" && strings.Contains(reasons(s), "converge release "+w.App+"/web v1")
	})
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, moves+1, production.Changes(), "nothing was taken back on the way")
}

// A namespace goes with one store: a worker that is given another one, or one that is empty since it was lost, starts
// nothing, and says which store it is.
func TestNamespaceIsBoundToItsStore_F4(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	other := t.TempDir()
	_, err := worker.Start(t.Context(), w.Client, worker.Options{Store: other})
	var disagree *worker.DisagreeError
	require.ErrorAs(t, err, &disagree)
	require.ErrorContains(t, err, "whose store is "+w.Store)
	require.ErrorContains(t, err, "the store "+other+" belongs to no installation yet: nothing was started")
	elsewhere := shared.OwnServer(t, 0)
	elsewhere.StopWorker()
	_, err = worker.Start(t.Context(), w.Client, worker.Options{Store: elsewhere.Store, TakeOver: true})
	require.ErrorAs(t, err, &disagree, "nor does it take over another installation's")

	run, since := runOf(w, protocol.InstallationID()), time.Now()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), protocol.InstallationID(), "", "cleaning up"))
	managedAgain(w, protocol.InstallationID(), run, since)
	_, err = worker.Start(t.Context(), w.Client, worker.Options{Store: other})
	require.ErrorAs(t, err, &disagree)
}

// Everything is paused at once, what comes later too, through the end of the installation's own workflow; and goes on at once.
func TestPauseOfEverything_A16(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web + beside)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, "everything is paused; applies in flight will finish\n", cli(w, "pause", "--all", "--yes", "--reason", "incident 12"))
	s := w.Await("web", "staging PAUSED v1, production PAUSED v1")
	require.Contains(t, reasons(s)+journal(s), "installation paused by")
	run, since := runOf(w, protocol.InstallationID()), time.Now()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), protocol.InstallationID(), "", "cleaning up"))
	managedAgain(w, protocol.InstallationID(), run, since)
	w.Release("api", "v1")
	w.Await("api", "staging PAUSED, production PAUSED")
	require.Contains(t, cli(w, "explain", w.App+"/web"), "converge resume --all")
	w.Act("web", protocol.Release, `{"by":"ci","version":"v2"}`)
	require.Equal(t, "everything is resumed\n", cli(w, "resume", "--all", "--yes"))
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.Await("api", "staging CONVERGED v1, production CONVERGED v1")
}

// The store is lost and the workflows were ended: nobody knows more than the backup, so nothing is taken back to it before
// people say so, though the namespace is the one that it is of.
func TestRestoreWhereNothingRuns_F4(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	bin := shared.Converge(t)
	w.RunWeb()
	awaitCheckpoint(w, w.ID("web"))
	archive := filepath.Join(t.TempDir(), "backup.tar.gz")
	export(t, bin, w, archive)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.StopWorker()
	for _, id := range []string{w.ID("web"), protocol.ApplicationID(w.App), protocol.InstallationID()} {
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "lost"))
	}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the server's list is a little late
		n, err := w.Client.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: embedded.Namespace, Query: protocol.RunningQuery})
		return err == nil && n.Count == 0, fmt.Sprint(n, err)
	})
	w.Store = t.TempDir()
	said, err := run(bin, w, "admin", "import", "--store", w.Store, archive)
	require.Error(t, err)
	require.Contains(t, said, "--restore [backup]")
	said, err = run(bin, w, "admin", "import", "--restore", "--store", w.Store, archive)
	require.NoError(t, err, said)
	require.Contains(t, said, "converge resume --all")
	w.StartWorkerAs(worker.Options{})
	w.Await("web", "staging PAUSED v1, production PAUSED v1")
	require.Equal(t, "v2", w.Fake.At(w.App, "web", "production").Version(), "nothing was taken back")
}

// move runs the two commands, one feeding the other.
func move(t *testing.T, bin string, from, to *stage.World) (said string) {
	t.Helper()
	var talk bytes.Buffer
	source := exec.CommandContext(t.Context(), bin, "admin", "export", "--from", "dev", "--address", from.Address, "--store", from.Store, "--yes")
	target := exec.CommandContext(t.Context(), bin, "admin", "import", "--address", to.Address, "--store", to.Store)
	pipe, err := source.StdoutPipe()
	require.NoError(t, err)
	var sourceTalk bytes.Buffer
	target.Stdin, target.Stderr, source.Stderr = pipe, &talk, &sourceTalk
	require.NoError(t, source.Start())
	require.NoError(t, target.Run(), "%s%s", &talk, &sourceTalk)
	require.NoError(t, source.Wait(), sourceTalk.String())
	return sourceTalk.String() + talk.String()
}

func export(t *testing.T, bin string, w *stage.World, arguments ...string) string {
	t.Helper()
	said, err := run(bin, w, append([]string{"admin", "export", "--store", w.Store}, arguments...)...)
	require.NoError(t, err, said)
	return said
}

// run runs the program and returns all that it says.
func run(bin string, w *stage.World, arguments ...string) (string, error) {
	out, err := exec.CommandContext(w.T.Context(), bin, append(arguments, "--address", w.Address)...).CombinedOutput()
	return string(out), err
}

func shortly(w *stage.World) (text string) {
	for n, c := range w.Status("web").Channels {
		text += fmt.Sprintf("%s%s %s %s", map[bool]string{true: ", "}[n > 0], c.Name, c.Status, c.Target)
	}
	return text
}

// awaitNoSupervision waits until the worker has given up looking for what is gone.
func awaitNoSupervision(w *stage.World) {
	w.T.Helper()
	s, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	defer s.Close() // nothing is being written
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		n, holder, err := s.Lease(w.T.Context(), "supervision-1")
		return n > 0 && holder == "", fmt.Sprint(n, holder, err)
	})
}

// awaitCheckpoint waits until the newest checkpoint of a workflow is that of its history's end, as far as that says.
func awaitCheckpoint(w *stage.World, id string) {
	w.T.Helper()
	s, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	defer s.Close() // nothing is being written
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		c, err := s.Checkpoint(w.T.Context(), id)
		return err == nil && time.Since(c.At) > time.Second, fmt.Sprint(c.At, err)
	})
}

// The command lists what serves the namespace: here a worker without a build id, which runs every workflow.
func TestVersionsOfWorkers_F3(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	require.Regexp(t, `^-\t-\tyes\t\S+ ago\t-\n$`, cli(w, "admin", "worker", "versions"))
	require.Regexp(t, `"current": true,\s+"polled": "[^"]+",\s+"workflows": 0`, cli(w, "admin", "worker", "versions", "--output", "json"))
}
