package operators

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// beside is a second service.
const beside = `---
apiVersion: converge/v1
kind: Service
name: api
custom: {env: {VERSION: "${{ version }}"}}
`

// cli runs the program, and returns what it prints.
func cli(w *stage.World, arguments ...string) string {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), shared.Converge(w.T), append(arguments, "--address", w.Address)...)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	require.NoError(w.T, err, "%v: %s%s", arguments, out, &talk)
	return string(out)
}

// shown is what `converge status` says of a service, in one line.
func shown(w *stage.World, service string) string {
	w.T.Helper()
	var s protocol.Status
	require.NoError(w.T, json.Unmarshal([]byte(cli(w, "status", w.App+"/"+service, "--output", "json")), &s))
	return s.Status + ": " + s.Headline
}

// awaitEnded waits until the last run of a workflow is terminated.
func awaitEnded(w *stage.World, id string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
		if err != nil {
			return false, err.Error()
		}
		status := d.WorkflowExecutionInfo.Status
		return status == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, status.String()
	})
}

// awaitLook waits until a worker has looked for what is gone: until it has brought back this.
func awaitLook(w *stage.World, id string) {
	w.T.Helper()
	run, since := runOf(w, id), time.Now()
	require.NoError(w.T, w.Client.TerminateWorkflow(w.T.Context(), id, "", "to see a look"))
	managedAgain(w, id, run, since)
}

// A service that is unmanaged stays down, over looks of the supervisor and over a publication, and says who wanted that and
// why; once it is managed it goes on with what it had, and with what was published meanwhile. It costs it no restart.
func TestUnmanagedStaysDown(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web + beside)
	w.Publish()
	for _, service := range []string{"web", "api"} {
		w.Release(service, "v1")
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	w.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)

	id := w.ID("web")
	run := runOf(w, id)
	cli(w, "config", "unmanage", w.App+"/web", "--reason", "moves away")
	awaitEnded(w, id)
	awaitLook(w, w.ID("api"))
	w.Write(stage.TwoChannels + stage.Web + "description: published meanwhile\n" + beside)
	w.Publish()
	awaitNotified(w, 2)
	require.Equal(t, run, runOf(w, id), "no other run was started")
	awaitEnded(w, id)
	require.Regexp(t, `^UNMANAGED: unmanaged by .+: moves away; since .+ UTC; until: converge config manage .+$`, shown(w, "web"))
	require.Contains(t, cli(w, "status", w.App), "UNMANAGED")

	since := time.Now()
	cli(w, "config", "manage", w.App+"/web")
	managedAgain(w, id, run, since)
	s := w.Await("web", "staging CONVERGED v1, production PAUSED v1")
	require.Contains(t, journal(s), "continues from its checkpoint: managed again by ")
	w.AwaitThat("web", "what was published meanwhile", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Equal(t, 1, w.Fake.At(w.App, "web", "staging").Applies(), "nothing is applied for this")
}

// A pause that ended while its service was away is over for it too; one that began meanwhile is not.
func TestPauseThatEndedDuringAnOutageIsOver_A16(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	cli(w, "pause", w.App, "--yes", "--reason", "drill")
	w.Await("web", "staging PAUSED v1, production PAUSED v1")
	away := func() {
		cli(w, "config", "unmanage", w.App+"/web", "--reason", "moves away")
		awaitEnded(w, w.ID("web"))
	}
	away()
	cli(w, "resume", w.App, "--yes")
	cli(w, "config", "manage", w.App+"/web")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	cli(w, "pause", w.App, "--yes", "--reason", "another")
	w.Await("web", "staging PAUSED v1, production PAUSED v1")
	away()
	cli(w, "resume", w.App, "--yes")
	cli(w, "pause", w.App, "--yes", "--reason", "a third")
	cli(w, "config", "manage", w.App+"/web")
	w.AwaitThat("web", "the pause that is in force", func(s protocol.Status) bool {
		return stage.Channels(s) == "staging PAUSED v1, production PAUSED v1" && strings.Contains(reasons(s), "a third")
	})
}

// awaitNotified waits until all services that are looked after know an incarnation.
func awaitNotified(w *stage.World, n int64) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		s := applicationOf(w)
		return s.Notified == n, fmt.Sprint(s.Notified, s.Problem)
	})
}

func applicationOf(w *stage.World) (s protocol.ApplicationStatus) {
	w.T.Helper()
	query(w, protocol.ApplicationID(w.App), &s)
	return s
}

// All of an application is kept down, what is declared meanwhile included, and what is started all the same is ended.
func TestUnmanagedApplicationStaysDown(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	cli(w, "config", "unmanage", w.App, "--reason", "drill", "--yes")
	awaitEnded(w, w.ID("web"))
	w.Write(stage.TwoChannels + stage.Web + beside)
	w.Publish()
	awaitNotified(w, 2)
	_, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("api"), "")
	require.Error(t, err, "it was never started")

	awaitLook(w, protocol.ApplicationID(w.App))
	_, err = w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: w.ID("web"), TaskQueue: protocol.TaskQueue}, protocol.ServiceWorkflow,
		protocol.ServiceInput{Application: w.App, Service: "web", StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(t, err)
	awaitEnded(w, w.ID("web"))
	require.Regexp(t, `^UNMANAGED: unmanaged by .+: drill; since .+ UTC; until: converge config manage .+$`, shown(w, "web"))

	cli(w, "config", "manage", w.App, "--yes")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Release("api", "v1")
	w.Await("api", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, 1, w.Fake.At(w.App, "web", "staging").Applies())
}
