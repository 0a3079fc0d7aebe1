package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkout is a module in a repository, with a test that fails in each second run.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"go.mod": "module example.test/m\n\ngo 1.26\n",
		"m_test.go": `package m

import (
	"os"
	"testing"
)

func TestEachSecond(t *testing.T) {
	const mark = "../been-here"
	if os.Remove(mark) == nil {
		t.Fatal("it is there")
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
`,
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "m"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "m", path), []byte(text), 0o600))
	}
	dir = filepath.Join(dir, "m")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.test", "commit", "-qm", "first"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return dir
}

func TestRunsAreKeptAndGoOn(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	var out bytes.Buffer
	o := options{times: 2, packages: []string{"./..."}, module: dir, dir: t.TempDir(), out: &out}
	failed, err := stress(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 1, failed, out.String())
	require.Contains(t, out.String(), "ok    example.test/m 1/2")
	require.Contains(t, out.String(), "FAIL  example.test/m 2/2")
	require.Contains(t, out.String(), "example.test/m: 2 runs, 1 failed")
	require.Contains(t, out.String(), "TestEachSecond")
	kept, err := filepath.Glob(filepath.Join(o.dir, "*", "example.test_m-2.log"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "what the failing run printed is kept")

	out.Reset()
	o.times = 3
	failed, err = stress(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, 1, failed, "what failed before counts")
	require.NotContains(t, out.String(), "1/3")
	require.NotContains(t, out.String(), "2/3")
	require.Contains(t, out.String(), "3/3", "it goes on where it was")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "more.go"), []byte("package m\n"), 0o600))
	out.Reset()
	o.times = 1
	failed, err = stress(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, out.String(), "1/1", "another state begins from the first run")
	require.Equal(t, 1, failed)
}

func TestResultsAreOfTheirState(t *testing.T) {
	t.Parallel()
	r, err := openResults(filepath.Join(t.TempDir(), "deeper", "results.jsonl"))
	require.NoError(t, err)
	defer r.close()
	key := result{State: "a", Package: "p"}
	require.NoError(t, r.add(result{State: "a", Package: "p", N: 1, Passed: true}))
	require.NoError(t, r.add(result{State: "b", Package: "p", N: 1}))
	require.NoError(t, r.add(result{State: "a", Package: "p", N: 1, Short: true}))
	require.Len(t, r.of(key), 1)
	again, err := openResults(r.file.Name())
	require.NoError(t, err)
	defer again.close()
	require.Equal(t, r.all, again.all)
}
