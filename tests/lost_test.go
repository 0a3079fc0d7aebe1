package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// A server that lost its memory must not take a service back to where it began: the store knows
// that other versions were released.
func TestInitialVersionIsOnlyForTheFirstRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web + "initialVersion: v1\n")
	w.publish()
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.release("web", "v2")
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")
	for _, id := range []string{w.id("web"), protocol.ApplicationID(w.app)} {
		require.NoError(t, w.client.TerminateWorkflow(t.Context(), id, "", "memory lost"))
	}
	require.EqualValues(t, 2, w.publish().Incarnation, "numbers go on where the store says they were")
	s := w.await("web", "staging CONVERGED, production CONVERGED")
	require.Equal(t, "v2", s.Channels[0].Current, "what runs is left as it is")
	require.Contains(t, strings.Join(s.Notes, "\n"), "the store knows v2 of "+w.app+"/web, so this is not its first release")
	w.release("web", "v2")
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// A store that lost what is newest gets it again from the next apply.
func TestLostStoreIsFilledAgain(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 0)
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	entries, err := os.ReadDir(w.store)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.RemoveAll(filepath.Join(w.store, e.Name())))
	}
	w.publish()
	w.write(twoChannels + strings.Replace(web, "default: hello", "default: bye", 1))
	require.EqualValues(t, 2, w.publish().Incarnation)
	w.awaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	w.release("web", "v2")
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")
}
