package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/store"
)

// What is published says in which order its services are fitted together, to whoever asks for the application by name; and what its
// commands run is in the store.
func TestPublishedPlanIsShown_E16(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "media")
	out, err := exec.Command("cp", "-R", "../examples/media", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	d := shared.Dev(t, dir)
	d.Start()
	d.Await("home/traefik", "live CONVERGED v1")
	named, code := d.Converge("run", "plan", "home", "--if-fails", "sonarr")
	require.Zero(t, code, named)
	require.Contains(t, readPage(t, "docs/plans.md").text, "\n"+named)
	directory, code := d.Converge("run", "plan", dir, "--if-fails", "sonarr")
	require.Zero(t, code, directory)
	require.Equal(t, directory, named)

	opened, err := store.Open(t.Context(), filepath.Join(dir, ".converge", "store"))
	require.NoError(t, err)
	defer opened.Close()
	incarnations, err := os.ReadDir(filepath.Join(dir, ".converge", "store", "incarnations"))
	require.NoError(t, err)
	require.Len(t, incarnations, 1)
	inc, err := opened.Incarnation(t.Context(), incarnations[0].Name())
	require.NoError(t, err)
	runs := inc.Work("live").AllCommands()
	require.Len(t, runs, 7)
	for _, run := range runs {
		_, err := opened.Extension(t.Context(), run.Definition)
		require.NoError(t, err)
	}
}
