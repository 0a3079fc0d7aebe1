package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
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
// is applied twice or backwards, and what is sent to the restored workflows in their first moments counts.
func TestOlderBackupOfTemporalUnderRunningWorkers_F1_F2(t *testing.T) {
	t.Parallel()
	server := newKillable(t)
	w := shared.At(t, server.address())
	w.StartWorkerAs(worker.Options{})
	w.StartWorkerAs(worker.Options{})
	w.Write(approvals + stage.Web + beside)
	w.Publish()
	for _, service := range []string{"web", "api"} {
		w.Release(service, "v1")
		w.Act(service, protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
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

	server.kill()
	server.restore(backup)
	server.start()
	since := time.Now()
	w.Signal("api", protocol.Approve, `{"by":"carol","version":"v2","topic":"production"}`)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		var application protocol.ApplicationStatus
		err := w.Query(protocol.ApplicationID(w.App), protocol.QueryStatus, &application)
		return err == nil && application.Notified == 2, fmt.Sprint(application.Notified, err)
	})
	w.Await("api", "staging CONVERGED v2, production CONVERGED v2")
	web := w.Await("web", "staging PAUSED v2, production CONVERGED v2")
	w.Await("lb", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	t.Logf("everything was as before %s after the server was back", time.Since(since).Round(100*time.Millisecond))
	require.True(t, hasApproval(web, "alice"))
	require.Equal(t, "drill", web.Pauses[0].Reason)
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
