package histories_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/histories"
)

// recorded are the histories of this repository.
const recorded = "../../testdata/histories"

func TestFrozenHistoriesAreUnchanged(t *testing.T) {
	wrong, err := histories.Check(recorded)
	require.NoError(t, err)
	require.Empty(t, wrong, "histories of released versions are never recorded again: CONTRIBUTING.md, Workflows and recorded histories")
}

// The freeze holds: on a copy of what is recorded, frozen as `make freeze-histories` does it.
func TestFreeze(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "histories")
	require.NoError(t, os.CopyFS(dir, os.DirFS(recorded)))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "FROZEN")))
	says := func(want ...string) {
		t.Helper()
		wrong, err := histories.Check(dir)
		require.NoError(t, err)
		require.Equal(t, want, wrong)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, data []byte) { require.NoError(t, os.WriteFile(file(name), data, 0o600)) }
	original, err := os.ReadFile(file("v1/service-1.json"))
	require.NoError(t, err)

	require.NoError(t, histories.Writable(dir, "v1"))
	added, err := histories.Freeze(dir)
	require.NoError(t, err)
	require.Contains(t, added, "v1")
	says()
	require.ErrorContains(t, histories.Writable(dir, "v1"), "v1 is released and frozen: put the change behind workflow.GetVersion and record it into v")

	changed := append([]byte{}, original...)
	changed[len(changed)/2]++
	write("v1/service-1.json", changed)
	says("v1/service-1.json is frozen and has changed")
	_, err = histories.Freeze(dir)
	require.EqualError(t, err, "v1/service-1.json is frozen and has changed", "no freeze covers up what has changed")

	require.NoError(t, os.Remove(file("v1/service-1.json")))
	write("v1/other-1.json", []byte("{}"))
	says("v1/service-1.json is frozen and is gone", "v1/other-1.json was added to a frozen folder")

	write("v1/service-1.json", original)
	require.NoError(t, os.Remove(file("v1/other-1.json")))
	says()
	added, err = histories.Freeze(dir)
	require.NoError(t, err)
	require.Empty(t, added)
}

// What is recorded after a release is in a folder of its own, which is free until the next.
func TestFreezeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	for _, folder := range []string{"v1", "v2"} {
		require.NoError(t, histories.Writable(dir, folder))
		put(folder + "/service-1.json")
		put(folder + "/application-1.json")
		added, err := histories.Freeze(dir)
		require.NoError(t, err)
		require.Equal(t, []string{folder}, added)
	}
	require.EqualError(t, histories.Writable(dir, "v1"), "v1 is released and frozen: put the change behind workflow.GetVersion and record it into v3")
	require.NoError(t, histories.Writable(dir, "v3"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "FROZEN"), []byte("# people\nabc  v1/service-1.json\n"), 0o600))
	_, err := histories.Check(dir)
	require.EqualError(t, err, `FROZEN: "abc  v1/service-1.json": expected the digest and the path of a file, once each`)
}
