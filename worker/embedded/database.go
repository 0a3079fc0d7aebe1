package embedded

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	temporalsql "go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	clusterName = "active"
	// retention is how long closed workflow runs can be read: longer than a long weekend.
	retention = 7 * 24 * time.Hour
	// versionKey is our row in the schema version table, which the server does not use on SQLite.
	versionKey   = "converge"
	sqliteHeader = "SQLite format 3\x00"
)

var memoryDatabases atomic.Int64

// database is a store that is ready for the server: schema and namespace exist. The lock is nil in memory.
type database struct {
	sql  *config.SQL
	lock *fileLock
	path string
}

// DBName is the file name for a database of this server's schema, such as temporal-sqlite-v0.11-1118f5fb.db.
//
// The server never migrates a SQLite file. So the name contains the schema, and an upgrade of Converge with another schema starts a new
// file next to the old one, which stays for the older Converge until it is deleted. The version is not enough, since the server has changed
// its tables under one version number: hence the digest of the statements.
func DBName() string { return "temporal-sqlite-" + schemaVersion() + ".db" }

func schemaVersion() string {
	var statements statementDigest
	if err := sqlite.SetupSchemaOnDB(&statements); err != nil {
		panic(err) // only if the schema compiled into the server cannot be split into statements
	}
	sum := sha256.Sum256(statements.text.Bytes())
	return "v" + sqlite.Version + "-" + hex.EncodeToString(sum[:4])
}

// statementDigest collects the statements that set up a schema. Its other methods are not called.
type statementDigest struct {
	sqlplugin.AdminDB
	text bytes.Buffer
}

func (d *statementDigest) Exec(statement string, _ ...any) error {
	d.text.WriteString(statement + ";\n")
	return nil
}

// main is the database of workflow executions and their timers.
func (d *database) main() *config.SQL {
	if d.lock == nil {
		return d.sql // in memory a second connection would see uncommitted data
	}
	of := *d.sql
	of.PluginName = timersPlugin
	return &of
}

// openDatabase locks the file and prepares it, before the server sees it.
func openDatabase(file string, attributes map[string]enumspb.IndexedValueType) (*database, error) {
	if file == "" {
		return newMemoryDatabase(attributes)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("database %s: its directory cannot be created: %w", path, err)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("database %s is a directory; name a file in it", path)
	}
	lock, err := lockDatabase(path)
	if err != nil {
		return nil, err
	}
	db := &database{sql: fileConfig(path), lock: lock, path: path}
	if err = createFile(path); err == nil {
		err = db.prepare(path, attributes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database %s %w", path, err), lock.release())
	}
	return db, nil
}

// createFile creates a missing file before SQLite does, because SQLite would leave the permissions to the umask. SQLite gives the same
// permissions to the files that it creates next to it.
func createFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot be created: %w", err)
	}
	return file.Close()
}

// newMemoryDatabase gives each database a unique name, since one process may run several servers. The plugin sets up its schema. It stays
// in memory until the process ends, because the server's connection pool never closes.
func newMemoryDatabase(attributes map[string]enumspb.IndexedValueType) (*database, error) {
	db := &database{sql: &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      fmt.Sprintf("converge-%d", memoryDatabases.Add(1)),
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}}
	return db, db.createNamespace(attributes)
}

// fileConfig enables write-ahead logging, which halves the work of a busy server, with one sync per checkpoint. A killed process loses
// nothing; a power cut may lose the last moments. Neither damages the file.
func fileConfig(path string) *config.SQL {
	return &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      escape(path),
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "normal"},
	}
}

// escape makes a path valid in SQLite's file: URIs, where ? % and # have a meaning.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// prepare creates schema and namespace unless they exist. A file that is not ours is not changed.
func (d *database) prepare(path string, attributes map[string]enumspb.IndexedValueType) error {
	isNew, err := isEmpty(path)
	if err == nil && !isNew {
		err = checkLog(path)
	}
	if err == nil && !isNew {
		isNew, err = inspect(path)
	}
	if err == nil && isNew {
		err = d.setUpSchema()
	}
	if err != nil {
		return err
	}
	if err := d.createNamespace(attributes); err != nil {
		return fmt.Errorf("cannot be prepared: %w", err)
	}
	return nil
}

// isEmpty reports whether there is no database yet, and refuses files for which SQLite's error would be less clear.
func isEmpty(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot be read: %w", err)
	case info.Size() == 0:
		return true, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("cannot be read: %w", err)
	}
	defer file.Close()
	header, err := io.ReadAll(io.LimitReader(file, int64(len(sqliteHeader))))
	if err != nil {
		return false, fmt.Errorf("cannot be read: %w", err)
	}
	if string(header) != sqliteHeader {
		return false, errors.New("is not a SQLite database; choose another file with --db")
	}
	return false, nil
}

// inspect reports whether the database has no tables, as after a start that was killed while it created them, and refuses one of another
// schema. It opens a separate connection, since the server's connection changes the file to write-ahead logging and is never closed.
func inspect(path string) (isNew bool, err error) {
	db, err := sql.Open("sqlite", "file:"+escape(path)+"?mode=ro") // the driver that the server's plugin registers
	if err != nil {
		return false, err
	}
	defer db.Close()
	var tables int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return false, fmt.Errorf("cannot be read: %w; %s", err, remedy)
	}
	if tables == 0 {
		return true, nil
	}
	var version string
	if err := db.QueryRow("SELECT curr_version FROM schema_version WHERE db_name = ?", versionKey).Scan(&version); err != nil {
		return false, errors.New("is not one of the embedded Temporal server; choose another file with --db")
	}
	if version != schemaVersion() {
		return false, fmt.Errorf("has schema %s, this Temporal server has %s and migrates no SQLite file; start afresh with %s",
			version, schemaVersion(), filepath.Join(filepath.Dir(path), DBName()))
	}
	return false, check(db)
}

// check detects damage before a server uses the file: it reads the file once, from start to end.
func check(db *sql.DB) error {
	var found string
	if err := db.QueryRow("PRAGMA quick_check(1)").Scan(&found); err != nil {
		found = err.Error()
	}
	if found == "ok" {
		return nil
	}
	return fmt.Errorf("is damaged: %s; %s", strings.TrimSpace(found), remedy)
}

// remedy is the advice for a damaged database.
const remedy = "restore it from a backup, with its -wal if there is one, or move both away to start afresh: " +
	"deployed objects stay (docs/backup.md, \"Temporal is lost\")"

// While the server runs, a file next to the database marks it as in use: the latest writes are then only in the write-ahead log, and a
// database without its log is outdated.
const openSuffix = ".open"

// checkLog refuses a database whose server was not stopped and whose log is gone: it would continue from the last checkpoint, and roll
// every service back to it.
func checkLog(path string) error {
	if sizeOf(path+openSuffix) < 0 || sizeOf(path+"-wal") > 0 {
		return nil // it was stopped, or the log exists
	}
	return fmt.Errorf("was in use when its server was killed, and its log %s-wal is missing, with the latest writes: services would return to an earlier state; "+
		"restore the log, or, to continue from the earlier state, remove %s", path, path+openSuffix)
}

// markOpen marks that the server writes to the log from now on.
func (d *database) markOpen() error {
	if d.lock == nil {
		return nil
	}
	if sizeOf(d.path+"-wal") <= 0 {
		return nil // it has no data that could be lost
	}
	return os.WriteFile(d.path+openSuffix, nil, 0o600)
}

// sizeOf is the size of a file in bytes, negative if it does not exist.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// setUpSchema creates all tables or none, so that a start that is killed halfway leaves none. The statements share a transaction because
// the server's connection pool has exactly one connection.
func (d *database) setUpSchema() error {
	admin, err := d.admin()
	if err != nil {
		return fmt.Errorf("cannot be created: %w", err)
	}
	defer admin.Close()
	if err := admin.Exec("BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("cannot be written to: %w", err)
	}
	err = errors.Join(
		sqlite.SetupSchemaOnDB(admin),
		admin.CreateSchemaVersionTables(),
		admin.UpdateSchemaVersion(versionKey, schemaVersion(), schemaVersion()),
	)
	if err != nil {
		return fmt.Errorf("cannot be set up: %w", errors.Join(err, admin.Exec("ROLLBACK")))
	}
	return admin.Exec("COMMIT")
}

// createNamespace does nothing if the namespace exists.
func (d *database) createNamespace(attributes map[string]enumspb.IndexedValueType) error {
	namespace, err := sqlite.NewNamespaceConfig(clusterName, Namespace, false, attributes)
	if err != nil {
		return err
	}
	namespace.Detail.Config.Retention = durationpb.New(retention)
	return sqlite.CreateNamespaces(d.sql, namespace)
}

// close releases the file in a complete state: the log is written back first.
func (d *database) close() error {
	if d.lock == nil {
		return nil
	}
	if err := os.Remove(d.path + openSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, d.lock.release())
	}
	admin, err := d.admin()
	if err == nil {
		err = errors.Join(admin.Exec("PRAGMA wal_checkpoint(TRUNCATE)"), admin.Close())
	}
	return errors.Join(err, d.lock.release())
}

func (d *database) admin() (sqlplugin.AdminDB, error) {
	return temporalsql.NewSQLAdminDB(sqlplugin.DbKindUnknown, d.sql, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
}
