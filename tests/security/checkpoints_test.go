package security

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// checkpointed are the checkpoints that the store had of a service at a moment.
type checkpointed struct {
	t   *testing.T
	dir string
	of  map[string][]byte
}

// keptCheckpoints remembers them, once there is one.
func keptCheckpoints(t *testing.T, w *stage.World, service string) checkpointed {
	t.Helper()
	at, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer at.Close() // only read
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		_, err := at.Checkpoint(t.Context(), w.ID(service))
		return err == nil, "no checkpoint"
	})
	c := checkpointed{t: t, dir: filepath.Join(w.Store, "checkpoints", "service", w.App, service), of: map[string][]byte{}}
	for _, file := range c.files() {
		c.of[file], err = os.ReadFile(file)
		require.NoError(t, err)
	}
	return c
}

func (c checkpointed) files() []string {
	files, err := filepath.Glob(filepath.Join(c.dir, "*"))
	require.NoError(c.t, err)
	return files
}

// restore has the store know no later ones, as when the worker had not got to write any.
func (c checkpointed) restore() {
	c.t.Helper()
	for _, file := range c.files() {
		require.NoError(c.t, os.Remove(file))
	}
	for file, content := range c.of {
		require.NoError(c.t, os.WriteFile(file, content, 0o600))
	}
}
