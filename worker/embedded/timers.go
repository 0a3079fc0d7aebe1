package embedded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	temporalsql "go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
)

// This file makes the server find its next timers by the index of their table. The query of the plugin has its lower bound in an OR, which
// SQLite cannot use as a bound of the index: each query scans all timers that have fired and are not deleted yet. With a thousand services
// that was most of the server's work, and the scans grew with its backlog.

const timersPlugin = "sqlite-timers"

// timersQuery is the query of the plugin with an additional lower bound.
const timersQuery = `SELECT visibility_timestamp, task_id, data, data_encoding FROM timer_tasks
  WHERE shard_id = ? AND visibility_timestamp >= ? AND visibility_timestamp < ?
  AND (visibility_timestamp > ? OR task_id >= ?)
  ORDER BY visibility_timestamp, task_id LIMIT ?`

func init() { temporalsql.RegisterPlugin(timersPlugin, timers{}) }

// timers is the server's plugin for SQLite with its own reader of timers.
type timers struct{}

// GetVisibilityQueryConverter implements sqlplugin.Plugin. The visibility store uses the original plugin.
func (timers) GetVisibilityQueryConverter() sqlplugin.VisibilityQueryConverter {
	converter, err := temporalsql.GetPluginVisibilityQueryConverter(sqliteplugin.PluginName)
	if err != nil {
		panic(err) // it is linked
	}
	return converter
}

// CreateDB implements sqlplugin.Plugin.
func (timers) CreateDB(
	kind sqlplugin.DbKind, c *config.SQL, r resolver.ServiceResolver, l log.Logger, m metrics.Handler,
) (sqlplugin.GenericDB, error) {
	of := *c
	of.PluginName = sqliteplugin.PluginName
	db, err := temporalsql.NewSQLDB(kind, &of, r, l, m)
	if err != nil {
		return nil, err
	}
	reader, err := sql.Open("sqlite", "file:"+c.DatabaseName+"?mode=ro&_time_format=sqlite&_pragma=busy_timeout=5000")
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", c.DatabaseName, err)
	}
	reader.SetMaxOpenConns(1)
	return &timersDB{DB: db, admins: admins{db.(sqlplugin.AdminDB)}, reader: reader}, nil //nolint:forcetypeassert // one type for both
}

// timersDB reads timers on a separate connection, which sees all committed data (the log is written ahead) and does not wait for writers.
type timersDB struct {
	sqlplugin.DB
	admins
	reader *sql.DB
}

// admins are the methods that only an AdminDB has. The extra level gives the methods of DB precedence.
type admins struct{ sqlplugin.AdminDB }

// Close implements sqlplugin.GenericDB.
func (d *timersDB) Close() error {
	return errors.Join(d.reader.Close(), d.DB.Close())
}

// RangeSelectFromTimerTasks implements sqlplugin.HistoryTimerTask.
func (d *timersDB) RangeSelectFromTimerTasks(ctx context.Context, f sqlplugin.TimerTasksRangeFilter) ([]sqlplugin.TimerTasksRow, error) {
	from, until := toDatabaseTime(f.InclusiveMinVisibilityTimestamp), toDatabaseTime(f.ExclusiveMaxVisibilityTimestamp)
	found, err := d.reader.QueryContext(ctx, timersQuery, f.ShardID, from, until, from, f.InclusiveMinTaskID, f.PageSize)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []sqlplugin.TimerTasksRow
	for found.Next() {
		row := sqlplugin.TimerTasksRow{ShardID: f.ShardID}
		if err := found.Scan(&row.VisibilityTimestamp, &row.TaskID, &row.Data, &row.DataEncoding); err != nil {
			return nil, err
		}
		row.VisibilityTimestamp = row.VisibilityTimestamp.UTC()
		rows = append(rows, row)
	}
	return rows, found.Err()
}

// toDatabaseTime is a time in the form that the plugin writes.
func toDatabaseTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return t.UTC().Truncate(time.Microsecond)
}
