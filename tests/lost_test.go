package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A server that lost its memory, with a store that lost its checkpoints, must not take a service back to where it began: the store knows
// that other versions were released.
func TestInitialVersionIsOnlyForTheFirstRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web + "initialVersion: v1\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	for _, id := range []string{w.ID("web"), protocol.ApplicationID(w.App)} {
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "memory lost"))
		w.Lose(filepath.Join("checkpoints", filepath.FromSlash(id)))
	}
	require.EqualValues(t, 2, w.Publish().Incarnation, "numbers go on where the store says they were")
	s := w.Await("web", "staging CONVERGED, production CONVERGED")
	require.Equal(t, "v2", s.Channels[0].Current, "what runs is left as it is")
	require.Contains(t, strings.Join(s.Notes, "\n"), "the store has v2 of "+w.App+"/web, so this is not the first release")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// A store that lost what is newest gets it again from the next apply.
func TestLostStoreIsFilledAgain(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 0)
	w.RunWeb()
	w.Lose()
	w.Publish()
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: bye", 1))
	require.EqualValues(t, 2, w.Publish().Incarnation)
	w.AwaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}
