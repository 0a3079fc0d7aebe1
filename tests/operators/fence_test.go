package operators

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A run that is reset while the store has lost its checkpoints knows nothing of what was applied later. It is refused to
// apply what is older, says so, and goes there only when a person says so.
func TestResetWithoutCheckpointsIsNotAppliedBackwards_F2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web + "maestro: {strategy: train}\n") // both releases come again, and neither is skipped
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
	w.Lose("checkpoints/service")
	_, err := reset(w, id, run, last)
	require.NoError(t, err)
	w.StartWorker()
	s := w.AwaitThat("web", "a refusal in staging", func(s protocol.Status) bool {
		return strings.Contains(reasons(s), "refused: a run that is unknown here claimed v3 later (3")
	})
	require.Equal(t, applied, w.Fake.Applies(), "nothing was applied")
	require.Contains(t, reasons(s), "converge retry "+w.App+"/web v2 --channel staging")

	w.Act("web", protocol.Retry, `{"by":"alice","version":"v2"}`)
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return len(w.Fake.Applies()) > len(applied) }))
	require.Equal(t, "v2", w.Fake.Applies()[len(applied)].Version)
}

// ordered is a runtime of commands whose apply refuses what comes after something later, by what it kept, and writes down
// what it was given.
const ordered = `#!/bin/sh
place=$((CONVERGE_EPOCH * 1000000000000 + CONVERGE_SEQUENCE))
[ "$place" -ge "$(cat place || echo 0)" ] || { echo "something later is there" >&2; exit 75; }
echo "$place" > place
echo "$CONVERGE_EPOCH $CONVERGE_SEQUENCE $PVN_SERVICE_VERSION" >> log
echo "$PVN_SERVICE_VERSION" > live
`

// Commands see the place of what they apply among all targets of the instance: it rises with each, a return to an earlier
// version among them, and stays for a repair. A script that keeps it can refuse what is earlier.
func TestCommandsSeeThePlaceOfTheirTarget(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), ordered)
	w.Write(`apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: production, runtimes: [{name: APP-rt}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom:
  apply: {command: [./apply.sh]}
  fetch: {command: [sh, -c, '[ "$(cat live)" = "$PVN_SERVICE_VERSION" ] || exit 2'], mode: exitCode}
  pollInterval: 50ms
  steadyPollInterval: 100ms
` + stage.Web)
	w.Publish()
	applied := func() []string {
		log, _ := os.ReadFile(filepath.Join(w.Dir, "log")) // it may not be there yet
		return strings.Split(strings.TrimSpace(string(log)), "\n")
	}
	w.Release("web", "v1")
	w.Await("web", "production CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "production CONVERGED v2")
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "live"), []byte("by hand"), 0o600))
	require.Eventually(t, func() bool { return len(applied()) == 3 }, stage.Patience, 20*time.Millisecond, "a repair")
	w.Await("web", "production CONVERGED v2")
	w.Act("web", protocol.Rollback, `{"by":"alice","version":"v2"}`)
	w.AwaitThat("web", "v1 again", func(protocol.Status) bool { return len(applied()) == 4 })
	require.Equal(t, []string{"1 1 v1", "1 2 v2", "1 2 v2", "1 3 v1"}, applied())
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
