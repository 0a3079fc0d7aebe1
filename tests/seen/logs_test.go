package seen

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// A worker logs JSON, and each apply as a line with application, service, channel, release and runtime, and with the workflow and the
// run that it is for; one that fails with why. What concerns a service beside that names it too.
func TestLogsSayWhatTheyAreAbout_F10(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	to := []string{"--address", w.Address}
	_, said := process(t, nil, append(to, "worker", "--store", w.Store, "--log-format", "json", "--log-level", "info")...)
	w.Write(strings.Replace(commanded, `["true"]`, `[sh, -c, 'test $PVN_SERVICE_VERSION != v2 || { echo no space left; exit 1; }']`, 1))
	runs(t, nil, append(to, "config", "publish", w.Dir, "--store", w.Store)...)
	runs(t, nil, append(to, "release", w.App+"/web", "v1", "--wait")...)
	runs(t, nil, append(to, "release", w.App+"/web", "v2")...)
	lines := func(message, channel, release string) (found []map[string]any) {
		for line := range strings.Lines(said()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message && fields["channel"] == channel && fields["release"] == release {
				found = append(found, fields)
			}
		}
		return found
	}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		return len(lines("done", "production", "v1")) == 1 && len(lines("failed", "staging", "v2")) > 0, said()
	})
	run := w.History(w.ID("web"))[0].GetWorkflowExecutionStartedEventAttributes().GetOriginalExecutionRunId()
	for _, fields := range append(lines("done", "staging", "v1"), lines("failed", "staging", "v2")...) {
		require.Equal(t, w.App, fields["application"])
		require.Equal(t, "web", fields["service"])
		require.Equal(t, w.App+"-rt", fields["runtime"])
		require.Equal(t, w.ID("web"), fields["WorkflowID"])
		require.Equal(t, run, fields["RunID"])
		require.NotEmpty(t, fields["took"])
	}
	require.Contains(t, lines("failed", "staging", "v2")[0]["error"], "exited 1")

	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "by mistake"))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		for line := range strings.Lines(said()) {
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == "started again" {
				return fields["application"] == w.App && fields["service"] == "web", line
			}
		}
		return false, said()
	})
	ours := strings.NewReplacer("releases", "default", "shop", w.App, "v9", "v1", "eks-eu", w.App+"-rt")
	require.Empty(t, stage.Text(t, "../../docs/observing.md", "Logs").With(ours).Missing(said()))
}
