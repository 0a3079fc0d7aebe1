package embedded

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"golang.org/x/sys/unix"
)

const prefix = "start the embedded Temporal server: "

func TestTakenPorts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port

	_, err = Start(deadline(t), Options{Port: taken})
	require.EqualError(t, err, fmt.Sprintf(prefix+"port %d is taken, the Temporal server cannot listen on 127.0.0.1:%d; another converge dev may be running: stop it, or choose other ports with --port and --ui-port", taken, taken))
	_, err = Start(deadline(t), Options{UIPort: taken})
	require.EqualError(t, err, fmt.Sprintf(prefix+"port %d is taken, the Web UI cannot listen on 127.0.0.1:%d; another converge dev may be running: stop it, or choose other ports with --port and --ui-port", taken, taken))
	_, err = Start(deadline(t), Options{Port: 99999})
	require.ErrorContains(t, err, "the Temporal server cannot listen on 127.0.0.1:99999: ")
}

func TestFailedStartReleasesTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), DBName())
	_, err := Start(deadline(t), Options{DBFile: file, Port: 99999})
	require.Error(t, err)
	lock, err := lockDatabase(file)
	require.NoError(t, err)
	require.NoError(t, lock.release())
}

func TestFatalErrorOfTheServerFailsTheStart(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	db, err := openDatabase("", nil)
	require.NoError(t, err)
	p, err := choosePorts(0, 0)
	require.NoError(t, err)
	p.frontend.number = listener.Addr().(*net.TCPAddr).Port // lost after it was chosen

	ctx, fail := context.WithCancelCause(deadline(t))
	s := &Server{ports: p, database: db, log: newServerLog(nil, fail)}
	err = s.launch(ctx, Options{}, newSettings())
	require.ErrorContains(t, err, "Failed to start gRPC listener")
	require.ErrorContains(t, err, "address already in use")
}

func TestInvalidDatabaseFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) string {
		require.NoError(t, os.WriteFile(path(name), []byte(content), 0o644))
		return path(name)
	}
	locked := startHelper(t, "lock", path("locked.db"))
	for _, row := range []struct{ name, file, message string }{
		{"a directory", dir, " is a directory; name a file in it"},
		{"text", write("notes.txt", "Dear diary, it rained again."), " is not a SQLite database; choose another file with --db"},
		{"a few bytes", write("short.db", "SQL"), " is not a SQLite database; choose another file with --db"},
		{"of another program", newForeignDatabase(t, path("foreign.db")), " is not one of the embedded Temporal server; choose another file with --db"},
		{"of an older server", newOlderDatabase(t, path("older.db")), " has schema v0.9-00000000, this Temporal server has " + schemaVersion() + " and migrates no SQLite file; start afresh with " + path(DBName())},
		{"locked by another process", path("locked.db"), fmt.Sprintf(" is in use by process %d; stop that one, or choose another file with --db", locked.Process.Pid)},
		{"below a file", filepath.Join(path("notes.txt"), "x.db"), ": its directory cannot be created: mkdir " + path("notes.txt") + ": not a directory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := Start(deadline(t), Options{DBFile: row.file})
			require.EqualError(t, err, prefix+"database "+row.file+row.message)
		})
	}
}

func TestDamagedDatabase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "damaged.db")
	require.NoError(t, os.WriteFile(file, []byte(sqliteHeader+"and then nothing that makes sense"), 0o644))
	_, err := Start(deadline(t), Options{DBFile: file})
	require.ErrorContains(t, err, prefix+"database "+file+" cannot be read: ")
	require.ErrorContains(t, err, "file is not a database", "the message of SQLite")
}

// newForeignDatabase makes a database that was not made by the server, in SQLite's ordinary journal mode.
func newForeignDatabase(t *testing.T, file string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE songs (title TEXT)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return file
}

func newOlderDatabase(t *testing.T, file string) string {
	t.Helper()
	db := &database{sql: fileConfig(file)}
	require.NoError(t, db.setUpSchema())
	admin, err := db.admin()
	require.NoError(t, err)
	require.NoError(t, admin.UpdateSchemaVersion(versionKey, "v0.9-00000000", "v0.9-00000000"))
	return file
}

func TestForeignDatabaseIsNotChanged(t *testing.T) {
	t.Parallel()
	file := newForeignDatabase(t, filepath.Join(t.TempDir(), "songs.db"))
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	_, err = Start(deadline(t), Options{DBFile: file})
	require.Error(t, err)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Root may write anywhere, so the test uses the file system identity of the user nobody, which applies to the thread.
func TestUnwritableDirectory(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "embedded")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o555))
	file := filepath.Join(dir, "x.db")

	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if os.Geteuid() == 0 {
			_ = unix.Setfsuid(65534)
		}
		_, err := openDatabase(file, nil)
		refused <- err
	}()
	require.EqualError(t, <-refused, "database "+file+": its directory cannot be written to: open "+file+".lock: permission denied")
}

// newKilledDatabase is a database whose server was killed after a workflow had been started.
func newKilledDatabase(t *testing.T) (file, workflow string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), DBName())
	h := startHelper(t, "serve", file)
	_, err := dial(t, h.address).ExecuteWorkflow(deadline(t), client.StartWorkflowOptions{ID: "kept", TaskQueue: "nobody"}, "Any")
	require.NoError(t, err)
	require.NoError(t, h.Process.Kill())
	_ = h.Wait() // reports the kill
	return file, "kept"
}

// A database whose server was killed and whose log is gone does not continue from an earlier state, unless the user allows it. A database
// with its log continues from its last state.
func TestDatabaseWithoutItsLogIsRefused(t *testing.T) {
	t.Parallel()
	file, id := newKilledDatabase(t)
	away := filepath.Join(t.TempDir(), "wal")
	require.NoError(t, os.Rename(file+"-wal", away))
	_, err := Start(deadline(t), Options{DBFile: file})
	require.EqualError(t, err, prefix+"database "+file+" was in use when its server was killed, and its log "+file+"-wal is missing, with the latest writes: "+
		"services would return to an earlier state; restore the log, or, to continue from the earlier state, remove "+file+".open")

	require.NoError(t, os.Rename(away, file+"-wal"))
	server := startServer(t, Options{DBFile: file})
	_, err = dial(t, server.Address()).DescribeWorkflowExecution(deadline(t), id, "")
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	require.NoFileExists(t, file+".open")
	_ = os.Remove(file + "-wal") // it is empty: nothing is lost
	require.NoError(t, startServer(t, Options{DBFile: file}).Stop())
}

// Without the check, the workflow would be lost.
func TestDatabaseWithoutItsLogLosesWorkflows(t *testing.T) {
	t.Parallel()
	file, id := newKilledDatabase(t)
	require.NoError(t, os.Remove(file+"-wal"))
	require.NoError(t, os.Remove(file+".open"))
	server := startServer(t, Options{DBFile: file})
	_, err := dial(t, server.Address()).DescribeWorkflowExecution(deadline(t), id, "")
	require.ErrorContains(t, err, "not found")
}

// Damage is detected before a server uses the file, and the error has the remedy.
func TestDamagedPageIsFound(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), DBName())
	require.NoError(t, startServer(t, Options{DBFile: file}).Stop())
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for n := len(data) - 4096; n < len(data); n++ { // the last page
		data[n] = 0xA5
	}
	require.NoError(t, os.WriteFile(file, data, 0o644))
	_, err = Start(deadline(t), Options{DBFile: file})
	require.ErrorContains(t, err, prefix+"database "+file+" is damaged: ")
	require.ErrorContains(t, err, "; "+remedy)
	lock, err := lockDatabase(file)
	require.NoError(t, err, "the file is released")
	require.NoError(t, lock.release())
}

// A payload that a production server would refuse is refused here too.
func TestLargePayloadIsRefused(t *testing.T) {
	t.Parallel()
	c := dial(t, startServer(t, Options{}).Address())
	_, err := c.ExecuteWorkflow(deadline(t), client.StartWorkflowOptions{ID: "large", TaskQueue: "nobody"}, "Any", strings.Repeat("x", MaxBlob))
	require.ErrorContains(t, err, "exceeds")
	_, err = c.ExecuteWorkflow(deadline(t), client.StartWorkflowOptions{ID: "large", TaskQueue: "nobody"}, "Any", strings.Repeat("x", MaxBlob/2))
	require.NoError(t, err)
}
