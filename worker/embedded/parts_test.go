package embedded

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"golang.org/x/sys/unix"
)

// If this fails, the server was upgraded and its SQLite schema has changed: put the new name here, and mention in the release notes that
// `converge dev` starts with a new database.
func TestDBName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "temporal-sqlite-v0.11-1118f5fb.db", DBName())
}

func TestInterruptedSetUpStartsAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	db := &database{sql: fileConfig(path)}
	admin, err := db.admin()
	require.NoError(t, err)
	require.NoError(t, admin.Exec("CREATE TABLE tasks (id INT)")) // conflicts with the set-up, which fails halfway
	require.Error(t, db.setUpSchema())
	tables, err := admin.ListTables("")
	require.NoError(t, err)
	require.Equal(t, []string{"tasks"}, tables, "all or nothing")

	require.NoError(t, admin.DropTable("tasks"))
	require.NoError(t, db.prepare(path, nil))
	require.NoError(t, db.prepare(path, nil), "a second call changes nothing")
}

func TestReleasedLockIsFreeWhileACopyIsOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	lock, err := lockDatabase(path)
	require.NoError(t, err)
	copied, err := unix.Dup(int(lock.file.Fd())) // as a child has it between fork and exec
	require.NoError(t, err)
	defer unix.Close(copied)
	require.NoError(t, lock.release())
	again, err := lockDatabase(path)
	require.NoError(t, err)
	require.NoError(t, again.release())
}

func TestChosenPortsDiffer(t *testing.T) {
	t.Parallel()
	p, err := choosePorts(0, -1)
	require.NoError(t, err)
	seen := map[port]bool{}
	for _, chosen := range []port{p.frontend, p.history, p.matching, p.worker, p.ui} {
		require.NotZero(t, chosen.number)
		seen[chosen] = true
	}
	require.Len(t, seen, 5)
}

func TestServerLog(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	withoutTime := &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	server := newServerLog(slog.New(slog.NewTextHandler(&out, withoutTime)), nil)
	tagged := log.With(server, tag.NewStringTag("service", "history"))
	tagged.Debug("dropped")
	tagged.Info("dropped too")
	tagged.Warn("slow")
	tagged.Error("broken", tag.NewInt("attempt", 3))
	require.Equal(t, "level=DEBUG msg=slow service=history\nlevel=ERROR msg=broken service=history attempt=3\n", out.String())

	server.stopping()
	tagged.Error("the other services are stopped")
	require.NotContains(t, out.String(), "are stopped")
}

func TestFatalAfterTheStartPanics(t *testing.T) {
	t.Parallel()
	server := newServerLog(nil, nil)
	server.started()
	require.PanicsWithError(t, "lost its shard shard=1", func() { server.Fatal("lost its shard", tag.NewInt("shard", 1)) })
}
