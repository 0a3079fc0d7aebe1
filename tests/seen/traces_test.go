package seen

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/worker/tracing"
	"github.com/converge-engine/converge/workflows"
)

// commanded is two channels whose runtime is a command.
const commanded = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- {name: production, runtimes: [{name: APP-rt}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom: {apply: {command: ["true"]}}
---
apiVersion: converge/v1
kind: Service
name: web
`

// process starts converge, and returns what stops it as SIGTERM does, and what it has said.
func process(t *testing.T, env []string, arguments ...string) (stop func(), said func() string) {
	t.Helper()
	out := &lockedBuffer{}
	cmd := exec.Command(shared.Converge(t), arguments...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), env...)
	require.NoError(t, cmd.Start())
	ended := false
	stop = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait() // how it ended is said
		}
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("converge %s said:\n%s", strings.Join(arguments, " "), out)
		}
	})
	return stop, out.String
}

// runs runs converge to its end, which has to be good.
func runs(t *testing.T, env []string, arguments ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), shared.Converge(t), arguments...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "converge %s: %s", strings.Join(arguments, " "), out)
}

// A trace goes from a release over what the service decides to the applies, through three processes: read back from a collector.
// Nothing else is traced, and a release by whoever traces nothing is not. The history replays with and without.
func TestReleaseIsTraced_F10(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	c := collect(t)
	to := []string{"--address", w.Address}
	stop, _ := process(t, c.env(), append(to, "worker", "--store", w.Store)...)
	w.Write(commanded)
	runs(t, nil, append(to, "config", "publish", w.Dir, "--store", w.Store)...)
	name := w.App + "/web"
	runs(t, c.env(), append(to, "release", name, "v1", "--wait")...)
	runs(t, nil, append(to, "release", name, "v2", "--wait")...)
	stop() // hands over what is left

	asked := c.named("UpdateWorkflow:release", "")
	require.Len(t, asked, 1)
	trace := asked[0].trace
	require.Equal(t, "converge", asked[0].process)
	require.Empty(t, strings.Trim(asked[0].parent, "0"))
	handled := c.named("HandleUpdate:release", trace)
	require.Len(t, handled, 1)
	require.Equal(t, asked[0].id, handled[0].parent)
	require.Equal(t, "converge-worker", handled[0].process)
	decided, applied := c.named("Decide:"+protocol.ActivityApply, trace), c.named("RunActivity:"+protocol.ActivityApply, trace)
	require.Len(t, decided, 2)
	require.Len(t, applied, 2)
	for n, channel := range []string{"staging", "production"} {
		about := map[string]string{
			"converge.application": w.App, "converge.service": "web", "converge.channel": channel, "converge.release": "v1", "converge.runtime": w.App + "-rt",
		}
		require.Equal(t, handled[0].id, decided[n].parent)
		require.Equal(t, w.ID("web"), decided[n].attributes["temporalWorkflowID"])
		run := slices.IndexFunc(applied, func(s span) bool { return s.parent == decided[n].id })
		require.GreaterOrEqual(t, run, 0)
		for key, value := range about {
			require.Equal(t, value, decided[n].attributes[key])
			require.Equal(t, value, applied[run].attributes[key])
		}
	}
	c.mu.Lock()
	names := map[string]int{}
	for _, s := range c.spans {
		require.Equal(t, trace, s.trace, "%s is in a trace of its own", s.name)
		names[s.name]++
	}
	c.mu.Unlock()
	t.Log(names)

	events := w.History(w.ID("web"))
	require.Equal(t, []string{"activity Apply", "activity Apply", "update release"}, headers(events), "of v1 alone")
	traced, err := tracing.Start(t.Context(), "replay", func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + c.address}[name]
	})
	require.NoError(t, err)
	around, err := traced.Worker()
	require.NoError(t, err)
	replays(t, events, around)
	replays(t, events, nil)
	w.StartWorkerAs(worker.Options{}) // a world in which nobody traces
	w.Write(commanded + strings.Replace(stage.Web, "name: web", "name: other", 1))
	runs(t, nil, append(to, "config", "publish", w.Dir, "--store", w.Store)...)
	runs(t, nil, append(to, "release", w.App+"/other", "v1", "--wait")...)
	require.Empty(t, headers(w.History(w.ID("other"))))
}

// headers are the kinds of events that a header came with.
func headers(events []*historypb.HistoryEvent) (all []string) {
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); len(a.GetHeader().GetFields()) > 0 {
			all = append(all, "activity "+a.GetActivityType().GetName())
		}
		if u := e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput(); len(u.GetHeader().GetFields()) > 0 {
			all = append(all, "update "+u.GetName())
		}
	}
	slices.Sort(all)
	return all
}

func replays(t *testing.T, events []*historypb.HistoryEvent, around []interceptor.WorkerInterceptor) {
	t.Helper()
	r, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
		Interceptors: append(around, &workflows.Arrivals{}),
	})
	require.NoError(t, err)
	r.RegisterWorkflowWithOptions(workflows.Service, workflow.RegisterOptions{Name: protocol.ServiceWorkflow})
	require.NoError(t, r.ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: events}))
}

// lockedBuffer is what a process says, read while it goes on.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
