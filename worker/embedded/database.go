package embedded

import (
	"bytes"
	"crypto/sha256"
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
	"go.temporal.io/server/common/persistence/sql"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	clusterName = "active"
	// retention is how long closed workflow runs can be looked at: over a long weekend.
	retention = 7 * 24 * time.Hour
	// versionKey is our row in the schema version table, which the server itself leaves out on SQLite.
	versionKey   = "converge"
	sqliteHeader = "SQLite format 3\x00"
)

var memoryDatabases atomic.Int64

// database is a store that is ready for the server: schema and namespace exist. The lock is nil in memory.
type database struct {
	sql  *config.SQL
	lock *fileLock
}

// DBName is the file name to keep a database of this server's schema under, such as temporal-sqlite-v0.11-1118f5fb.db.
//
// The server never migrates a SQLite file. So the name carries the schema, and an upgrade of Converge that brings
// another schema starts a new file beside the old one, which stays for the older Converge until it is deleted. The
// version alone would not do, since the server has changed its tables under one version number: hence the digest of
// the statements.
func DBName() string { return "temporal-sqlite-" + schemaVersion() + ".db" }

func schemaVersion() string {
	var statements statementDigest
	if err := sqlite.SetupSchemaOnDB(&statements); err != nil {
		panic(err) // only if the schema compiled into the server cannot be split into statements
	}
	sum := sha256.Sum256(statements.text.Bytes())
	return "v" + sqlite.Version + "-" + hex.EncodeToString(sum[:4])
}

// statementDigest collects the statements that set a schema up. The other methods are not called for that.
type statementDigest struct {
	sqlplugin.AdminDB
	text bytes.Buffer
}

func (d *statementDigest) Exec(statement string, _ ...any) error {
	d.text.WriteString(statement + ";\n")
	return nil
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("database %s: its directory cannot be made: %w", path, err)
	}
	if err := checkFile(path); err != nil {
		return nil, err
	}
	lock, err := lockDatabase(path)
	if err != nil {
		return nil, err
	}
	db := &database{sql: fileConfig(path), lock: lock}
	if err := db.prepare(path, attributes); err != nil {
		return nil, errors.Join(fmt.Errorf("database %s: %w", path, err), lock.release())
	}
	return db, nil
}

// newMemoryDatabase names each database apart, since one process may run several servers. Its schema is set up by the
// plugin; it stays in memory until the process ends, because the server's connection pool never closes.
func newMemoryDatabase(attributes map[string]enumspb.IndexedValueType) (*database, error) {
	db := &database{sql: &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      fmt.Sprintf("converge-%d", memoryDatabases.Add(1)),
		ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
	}}
	return db, db.createNamespace(attributes)
}

// fileConfig asks for write-ahead logging, several times faster than the rollback journal, with one sync for each
// checkpoint: a killed process loses nothing, a power cut perhaps the last moments, and neither harms the file.
func fileConfig(path string) *config.SQL {
	escaped := (&url.URL{Path: path}).EscapedPath() // the name becomes a file: URI, where ? % and # mean something
	return &config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      escaped,
		ConnectAttributes: map[string]string{"mode": "rwc", "journal_mode": "wal", "synchronous": "normal"},
	}
}

// checkFile turns away what SQLite would report less clearly. A missing or empty file is fine: it becomes a database.
func checkFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("database %s: %w", path, err)
	case info.IsDir():
		return fmt.Errorf("database %s is a directory; name a file in it", path)
	case info.Size() == 0:
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	defer file.Close()
	header, err := io.ReadAll(io.LimitReader(file, int64(len(sqliteHeader))))
	if err != nil {
		return fmt.Errorf("database %s: %w", path, err)
	}
	if string(header) != sqliteHeader {
		return fmt.Errorf("database %s is not a SQLite database; choose another file with --db", path)
	}
	return nil
}

func (d *database) prepare(path string, attributes map[string]enumspb.IndexedValueType) error {
	admin, err := openAdmin(d.sql)
	if err != nil {
		return err
	}
	defer admin.Close()
	tables, err := admin.ListTables("")
	if err != nil {
		return err
	}
	if len(tables) == 0 {
		err = setUpSchema(admin)
	} else {
		err = checkSchema(admin, filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	return d.createNamespace(attributes)
}

func openAdmin(cfg *config.SQL) (sqlplugin.AdminDB, error) {
	return sql.NewSQLAdminDB(sqlplugin.DbKindUnknown, cfg, resolver.NewNoopResolver(), log.NewNoopLogger(), metrics.NoopMetricsHandler)
}

// setUpSchema makes all tables or none, so that a start killed half way leaves an empty file, which is set up again.
// The statements share a transaction because the pool holds exactly one connection.
func setUpSchema(admin sqlplugin.AdminDB) error {
	if err := admin.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := errors.Join(
		sqlite.SetupSchemaOnDB(admin),
		admin.CreateSchemaVersionTables(),
		admin.UpdateSchemaVersion(versionKey, schemaVersion(), schemaVersion()),
	)
	if err != nil {
		return errors.Join(err, admin.Exec("ROLLBACK"))
	}
	return admin.Exec("COMMIT")
}

func checkSchema(admin sqlplugin.AdminDB, dir string) error {
	found, err := admin.ReadSchemaVersion(versionKey)
	if err != nil && strings.Contains(err.Error(), "no such table") {
		return errors.New("not a database of the embedded Temporal server; choose another file with --db")
	}
	if err != nil {
		return err
	}
	if found != schemaVersion() {
		return fmt.Errorf("its schema is %s, this Temporal server has %s and migrates no SQLite file; start afresh with %s",
			found, schemaVersion(), filepath.Join(dir, DBName()))
	}
	return nil
}

// createNamespace does nothing when the namespace exists, whatever its search attributes.
func (d *database) createNamespace(attributes map[string]enumspb.IndexedValueType) error {
	namespace, err := sqlite.NewNamespaceConfig(clusterName, Namespace, false, attributes)
	if err != nil {
		return err
	}
	namespace.Detail.Config.Retention = durationpb.New(retention)
	return sqlite.CreateNamespaces(d.sql, namespace)
}
