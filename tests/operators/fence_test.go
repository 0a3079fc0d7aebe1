package operators

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A run that is reset while the store has lost its checkpoints knows nothing of what was applied later. It is refused to
// apply what is older, says so, and goes there only when a person says so.
func TestResetWithoutCheckpointsIsNotAppliedBackwards_F2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	id := w.ID("web")
	run, events := runOf(w, id), completed(w, id)
	last := events[len(events)-1]
	for _, version := range []string{"v2", "v3"} {
		w.Signal("web", protocol.Release, `{"by":"ci","version":"`+version+`"}`)
		w.Await("web", "staging CONVERGED "+version+", production CONVERGED "+version)
	}
	applied := w.Fake.Applies()
	w.StopWorker()
	require.NoError(t, os.RemoveAll(filepath.Join(w.Store, "checkpoints", "service")))
	_, err := reset(w, id, run, last)
	require.NoError(t, err)
	w.StartWorker()
	s := w.AwaitThat("web", "a refusal in staging", func(s protocol.Status) bool {
		return strings.Contains(reasons(s), "refused, since v3 was claimed for it later (3)")
	})
	require.Equal(t, applied, w.Fake.Applies(), "nothing was applied")
	require.Contains(t, reasons(s), "converge retry "+w.App+"/web v2 --channel staging")

	w.Act("web", protocol.Retry, `{"by":"alice","version":"v2"}`)
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return len(w.Fake.Applies()) > len(applied) }))
	require.Equal(t, "v2", w.Fake.Applies()[len(applied)].Version)
}

// reasons are all that a status says why.
func reasons(s protocol.Status) (text string) {
	for _, c := range s.Channels {
		for _, r := range c.Reasons {
			text += c.Name + ": " + r.Text + "\n"
		}
	}
	return text
}
