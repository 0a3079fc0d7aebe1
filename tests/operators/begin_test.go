package operators

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/internal/proxy"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A worker that is started while Temporal does not answer, and then while its store does not, waits for both, says so once each,
// and serves as soon as they are back. It does not end: what starts an ended process again waits ever longer.
func TestWorkerWaitsAtItsStartForServerAndStore_F1(t *testing.T) {
	t.Parallel()
	setBucketCredentials()
	server := newKillable(t)
	w := shared.At(t, server.address())
	server.kill()
	bucket := httptest.NewServer(buckettest.New())
	t.Cleanup(bucket.Close)
	toStore, err := proxy.New(strings.TrimPrefix(bucket.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(toStore.Close)
	toStore.Cut()
	w.Store = buckettest.URL("http://" + toStore.Address())
	writeNoted(w)

	worker := startProgram(w, "worker")
	prints := func(what string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			require.True(t, worker.runs(), worker.out.String())
			return strings.Contains(worker.out.String(), what), worker.out.String()
		})
	}
	prints("no Temporal server at " + server.address())
	prints("the worker waits for it")
	server.start()
	prints("the worker cannot start yet, and retries")
	require.NotContains(t, worker.out.String(), "serving; ", "neither of the two was reached before")
	toStore.Restore()
	prints("serving; store " + w.Store)
	awaitApply(w)
	w.Release("web", "v1")
	w.Await("web", "production CONVERGED v1")
	require.True(t, worker.runs(), worker.out.String())
	require.Equal(t, 1, strings.Count(worker.out.String(), "the worker waits for it"))
	require.Equal(t, 1, strings.Count(worker.out.String(), "the worker cannot start yet"))
}
