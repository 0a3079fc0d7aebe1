package embedded

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	temporalsql "go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/resolver"
)

// The timers are those that the plugin finds, in its order, but read from their lower bound on: the plugin reads all earlier ones too.
func TestTimersAreReadByIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "temporal.db")
	d, err := openDatabase(path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.close()) })
	open := func(plugin string) sqlplugin.DB {
		c := *d.sql
		c.PluginName = plugin
		db, err := temporalsql.NewSQLDB(sqlplugin.DbKindMain, &c, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db
	}
	plain, ours := open(d.sql.PluginName), open(d.main().PluginName)
	require.IsType(t, &timersDB{}, ours)

	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var rows []sqlplugin.TimerTasksRow
	for n := range 200 { // several at a time, some of whole seconds, some of an hour ago
		when := at.Add(time.Duration(n/3) * 250 * time.Millisecond)
		rows = append(rows, sqlplugin.TimerTasksRow{ShardID: int32(1 + n%2), VisibilityTimestamp: when, TaskID: int64(1000 - n), Data: []byte{byte(n)}, DataEncoding: "proto3"})
	}
	_, err = plain.InsertIntoTimerTasks(t.Context(), rows)
	require.NoError(t, err)
	for _, from := range []time.Time{{}, at, at.Add(5 * time.Second), at.Add(5*time.Second + 250*time.Millisecond + 300*time.Nanosecond), at.Add(time.Hour)} {
		for _, task := range []int64{-1 << 63, 0, 940, 2000} {
			for _, page := range []int{1, 7, 500} {
				filter := sqlplugin.TimerTasksRangeFilter{
					ShardID: 1, InclusiveMinVisibilityTimestamp: from, InclusiveMinTaskID: task, ExclusiveMaxVisibilityTimestamp: at.Add(12 * time.Second), PageSize: page,
				}
				want, err := plain.RangeSelectFromTimerTasks(t.Context(), filter)
				require.NoError(t, err)
				found, err := ours.RangeSelectFromTimerTasks(t.Context(), filter)
				require.NoError(t, err)
				require.Len(t, found, len(want))
				for n := range want {
					want[n].ShardID = 1 // the plugin omits it
					require.Equal(t, want[n], found[n])
				}
			}
		}
	}
	require.Contains(t, planOf(t, path, timersQuery), "visibility_timestamp>? AND visibility_timestamp<?")
}

// planOf is the query plan of SQLite.
func planOf(t *testing.T, path, query string) (plan string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+escape(path)+"?mode=ro")
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, 1, 2, 3, 4, 5, 6)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var a, b, c int
		var step string
		require.NoError(t, rows.Scan(&a, &b, &c, &step))
		plan += step + "\n"
	}
	require.NoError(t, rows.Err())
	return plan
}
