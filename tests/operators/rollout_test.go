package operators

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// appends is an apply that writes down, in one line, what it brought where.
const appends = `#!/bin/sh
echo "$PVN_INSTANCE=$PVN_SERVICE_VERSION" >>log
`

// selectedFleet is one channel over so many runtimes of commands, with these steps.
func selectedFleet(n int, steps string) string {
	text := `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: production, runtimes: [{selector: {app: APP}}], rollout: {steps: [` + steps + `]}}]
`
	for i := range n {
		text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Runtime\nname: APP-%d\nlabels: {app: APP}\ncustom: {apply: {command: [./apply.sh]}}\n", i+1)
	}
	return text
}

// brought is what was applied of a version, in the order in which it was.
func brought(t *testing.T, w *stage.World, version string) (instances []string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(w.Dir, "log"))
	require.NoError(t, err)
	for _, line := range strings.Fields(string(log)) {
		instance, of, _ := strings.Cut(line, "=")
		if strings.HasPrefix(of, version) {
			instances = append(instances, strings.TrimPrefix(instance, w.App+"-"))
		}
	}
	return instances
}

// A worker that is killed between two steps loses none and repeats none: another one goes on where the rollout was, and asks for
// the pauses from when its instances were there, not from when it came itself (D23, D24).
func TestWorkersKilledBetweenSteps_D24_F2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), appends)
	c := commanded{w}
	steps := func(pause string) {
		t.Helper()
		w.Write(selectedFleet(6, `{instances: 1}, {pause: `+pause+`}, {instances: "50%"}, {pause: `+pause+`}, {instances: "100%"}`) + stage.Web)
	}
	all := func(version string) func(s protocol.Status) bool {
		return func(s protocol.Status) bool {
			return len(s.Channels) == 1 && s.Channels[0].Fleet != nil && s.Channels[0].Fleet.AtVersion == 6 && s.Channels[0].Status == "CONVERGED" && s.Channels[0].Fleet.Version == version
		}
	}
	says := func(text string) {
		t.Helper()
		w.AwaitThat("web", text, func(s protocol.Status) bool { return strings.Contains(reasons(s), text) })
	}
	steps("1s")
	worker := c.startProcess()
	w.Publish()
	w.Release("web", "v1")
	w.AwaitThat("web", "all at v1", all("v1"))

	steps("10s") // who asks a worker that was killed is answered by another one some seconds later
	w.Publish()
	w.Release("web", "v2")
	for _, step := range []string{"1 of 6 at v2; next 2 at ", "3 of 6 at v2; next 3 at "} {
		says(step)
		require.NoError(t, worker.Process.Kill())
		_ = worker.Wait() // reports the kill
		worker = c.startProcess()
	}
	w.AwaitThat("web", "all at v2", all("v2"))
	order := brought(t, w, "v2")
	require.Len(t, order, 6, "each once")
	require.Equal(t, "1", order[0])
	require.ElementsMatch(t, []string{"2", "3"}, order[1:3])
	require.ElementsMatch(t, []string{"4", "5", "6"}, order[3:])
}
