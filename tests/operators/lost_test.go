package operators

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// What a worker accepted last, and could not keep in the store before it was killed, is kept by the others though nothing is
// sent to the workflow any more: once it is deleted, it comes back with that.
func TestCheckpointOfAKilledWorkerIsKeptByAnother(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	c := newCommanded(t)
	c.letGo()
	worker := c.startProcess()
	c.Publish()
	c.Release("web", "v1")
	c.Await("web", "production CONVERGED v1")
	id := c.ID("web")
	back := lose(c.World, "checkpoints")
	c.Act("web", protocol.Pause, `{"channel":"production","by":"ann","reason":"an incident"}`)
	require.NoError(t, worker.Process.Kill())
	_ = worker.Wait() // reports the kill
	back()
	kept, err := store.Open(t.Context(), c.Store)
	require.NoError(t, err)
	before, err := kept.Checkpoint(t.Context(), id)
	require.NoError(t, err)
	events := len(c.History(id))

	killed := time.Now()
	c.StartWorker()
	require.Eventually(t, func() bool {
		after, err := kept.Checkpoint(t.Context(), id)
		return err == nil && after.Event > before.Event
	}, 2*time.Minute, 100*time.Millisecond, "another worker hands it over again")
	t.Logf("kept %s after the worker was killed", time.Since(killed))
	require.Len(t, c.History(id), events, "no event, and so no action")

	run, since := runOf(c.World, id), time.Now()
	ends[1].do(c.World, id)
	managedAgain(c.World, id, run, since)
	s := c.Await("web", "production PAUSED v1")
	require.Equal(t, "an incident", s.Pauses[0].Reason)

	c.StopWorker()
	left, err := filepath.Glob(filepath.Join(c.Store, "workers", "*"))
	require.NoError(t, err)
	for _, file := range left {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		t.Log(file, string(data))
	}
	require.Empty(t, left, "of the one that was killed it is known no more, and the other was stopped")
}
