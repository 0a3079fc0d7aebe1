package temporaltest

import (
	"os"
	"path/filepath"
	"testing"
)

// cliEnv names the stock temporal CLI, in place of the one that `make temporal-cli` builds.
const cliEnv = "CONVERGE_TEMPORAL_CLI"

// CLI is the path of the stock temporal CLI. Without one the test is skipped, and says how to get it.
func CLI(t testing.TB) string {
	t.Helper()
	path := os.Getenv(cliEnv)
	if path == "" {
		path = filepath.Join(moduleRoot(t), ".cache", "bin", "temporal")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no temporal CLI: run make temporal-cli, or set %s (%v)", cliEnv, err)
	}
	return path
}

// moduleRoot is the nearest directory above the test's that has a go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("the working directory is in no module")
		}
	}
}
