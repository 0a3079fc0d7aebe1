package operators

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
)

// poison is what a worker with a mistake cannot take.
const poison = "poison"

// mistaken is such a worker: its workflow task fails at a signal whose payload has the poison in it.
type mistaken struct {
	interceptor.WorkerInterceptorBase
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (*mistaken) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &mistakenInbound{}
	i.Next = next
	return i
}

type mistakenInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

// HandleSignal panics at the poison.
func (i *mistakenInbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	for _, p := range in.Arg.GetPayloads() {
		if bytes.Contains(p.Data, []byte(poison)) {
			panic("a mistake in the worker")
		}
	}
	return i.Next.HandleSignal(ctx, in)
}

// newer has the run of a service continue as new with a state that no worker here can read, as a newer one writes it.
func newer(w *stage.World, service string) {
	w.T.Helper()
	w.Signal(service, protocol.Refresh, `{"by":"alice"}`) // it gets a task
	input, err := converter.GetDefaultDataConverter().ToPayloads(protocol.ServiceInput{
		Application: w.App, Service: service, CarriedState: protocol.CarriedState{StateVersion: protocol.Version + 1, State: json.RawMessage(`{}`)},
	})
	require.NoError(w.T, err)
	d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(service), "")
	require.NoError(w.T, err)
	attributes := d.WorkflowExecutionInfo.SearchAttributes.GetIndexedFields()
	maps.DeleteFunc(attributes, func(name string, _ *commonpb.Payload) bool { return !strings.HasPrefix(name, "Converge") })
	answer(w, w.ID(service), &commandpb.Command{
		CommandType: enumspb.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION,
		Attributes: &commandpb.Command_ContinueAsNewWorkflowExecutionCommandAttributes{
			ContinueAsNewWorkflowExecutionCommandAttributes: &commandpb.ContinueAsNewWorkflowExecutionCommandAttributes{
				WorkflowType: &commonpb.WorkflowType{Name: protocol.ServiceWorkflow}, Input: input,
				SearchAttributes: &commonpb.SearchAttributes{IndexedFields: attributes}, TaskQueue: &taskqueuepb.TaskQueue{Name: protocol.TaskQueue},
			},
		},
	})
}

// doctor runs `converge admin doctor`, and returns the workflows that it finds failing, and its exit code.
func doctor(w *stage.World) (failing []string, code int) {
	w.T.Helper()
	out, _, code := tried(w, "admin", "doctor", "--exit-code", "--output", "json")
	var report deployment.Report
	require.NoError(w.T, json.Unmarshal([]byte(out), &report))
	for _, f := range report.Findings {
		require.Equal(w.T, deployment.FailingWorkflow, f.Code)
		require.Regexp(w.T, "^its workflow task fails repeatedly, stuck by a bug in (version|the worker) .+: .+", f.Why)
		require.Contains(w.T, f.Next, "read the worker's log")
		failing = append(failing, f.What)
	}
	slices.Sort(failing)
	return failing, code
}

// tried runs the program, and returns what it prints, what it says, and its exit code.
func tried(w *stage.World, arguments ...string) (out, said string, code int) {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), shared.Converge(w.T), append(arguments, "--address", w.Address)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w.T, err)
	}
	return string(stdout), stderr.String(), cmd.ProcessState.ExitCode()
}

// savedQuery is the one that docs/observing.md has for workflows that no worker can take.
func savedQuery(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/observing.md")
	require.NoError(t, err)
	_, queries, found := strings.Cut(string(text), "## Saved queries")
	require.True(t, found)
	query := regexp.MustCompile("\\| `(TemporalReportedProblems [^`]+)` \\|").FindStringSubmatch(queries)
	require.NotNil(t, query)
	return query[1]
}

// listed are the workflows that a query finds, sorted.
func listed(w *stage.World, query string) (ids []string) {
	w.T.Helper()
	page, err := w.Client.ListWorkflow(w.T.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
	require.NoError(w.T, err)
	for _, e := range page.Executions {
		ids = append(ids, e.Execution.WorkflowId)
	}
	slices.Sort(ids)
	return ids
}

// failure is why the first workflow task of a run failed that did; empty: none has.
func failure(w *stage.World, id string) string {
	w.T.Helper()
	for _, e := range w.History(id) {
		if failed := e.GetWorkflowTaskFailedEventAttributes(); failed != nil {
			return failed.GetFailure().GetMessage()
		}
	}
	return ""
}

// Services whose workflow task fails again and again, of a payload or of a state that cannot be read, block themselves and
// nobody else, and doctor, status and explain name them. What they were told meanwhile is carried out once the poison is taken
// away, by a worker without the mistake or by ending the workflow; a reset to before the poison that may leave out what came
// since has them go on as well. Nothing is applied twice.
func TestPoisonedWorkflowHoldsUpNoOther_F1_F3_F5(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := shared.OwnServer(t, 0)
	poisoned := []string{"ended", "mended", "newer", "reset"}
	services := append([]string{"well"}, poisoned...)
	yaml := stage.TwoChannels
	for _, name := range services {
		yaml += strings.Replace(stage.Web, "name: web", "name: "+name, 1)
	}
	w.Write(yaml)
	w.Publish()
	everywhere := func(version string, services ...string) {
		for _, name := range services {
			w.Await(name, fmt.Sprintf("staging CONVERGED %[1]s, production CONVERGED %[1]s", version))
		}
	}
	for _, name := range services {
		w.Release(name, "v1")
	}
	everywhere("v1", services...)

	w.StopWorker()
	newer(w, "newer")
	stop := w.StartWorkerAs(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&mistaken{}}})
	reading := completed(w, w.ID("reset"))
	for _, name := range poisoned {
		if name != "newer" {
			w.Signal(name, protocol.Refresh, `{"by":"`+poison+`"}`)
		}
		w.Signal(name, protocol.Release, `{"by":"ci","version":"v2"}`)
	}
	for name, why := range map[string]string{"mended": "a mistake in the worker", "newer": fmt.Sprintf("is newer than this worker knows (%d): upgrade the worker", protocol.Version)} {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			said := failure(w, w.ID(name))
			return strings.Contains(said, why), said
		})
	}
	began := time.Now()
	w.Release("well", "v2")
	everywhere("v2", "well")
	w.Write(strings.ReplaceAll(yaml, "kind: Service\n", "kind: Service\ndescription: published meanwhile\n"))
	require.True(t, w.Publish().Notified)
	w.AwaitThat("well", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	t.Logf("another service was released and notified within %s", time.Since(began).Round(time.Millisecond))

	all := slices.Clone(poisoned)
	for n, name := range all {
		all[n] = w.ID(name)
	}
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		failing, code := doctor(w)
		return slices.Equal(failing, all) && code == 2, fmt.Sprint(failing, code)
	})
	t.Logf("doctor named them after %s", time.Since(began).Round(time.Second))
	out, _, _ := tried(w, "admin", "doctor")
	require.Regexp(t, `(?m)^failing-workflow\s`+w.ID("newer")+`\sits workflow task fails repeatedly`, out)
	out, said, code := tried(w, "status", w.App)
	require.Equal(t, 1, code)
	require.Regexp(t, `(?m)^well\sstaging\sCONVERGED`, out)
	for _, id := range all[:3] {
		require.Regexp(t, "no worker answers for "+id+": a worker failed on it.* stuck by a bug in the worker .+: (a mistake in the worker|.* is newer than this worker knows)", said)
	}
	require.Contains(t, said, "and 1 more")
	_, said, code = tried(w, "explain", w.App+"/mended")
	require.Equal(t, 1, code)
	require.Contains(t, said, "a worker failed on it")
	require.Equal(t, all, listed(w, savedQuery(t)))

	for _, name := range []string{"ended", "newer"} {
		run, since := runOf(w, w.ID(name)), time.Now()
		require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID(name), "", "its task fails"))
		managedAgain(w, w.ID(name), run, since)
	}
	run, since := runOf(w, w.ID("reset")), time.Now()
	_, err := resetWithout(w, w.ID("reset"), run, reading[len(reading)-1])
	require.NoError(t, err)
	managedAgain(w, w.ID("reset"), run, since)
	w.Release("reset", "v2") // what it was sent after the poison may be left out with it
	everywhere("v2", "ended", "newer", "reset")
	stop()
	w.StartWorker()
	since = time.Now()
	everywhere("v2", "mended")
	t.Logf("a worker without the mistake had taken it on after %s", time.Since(since).Round(time.Second))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		failing, code := doctor(w)
		return len(failing) == 0 && code == 0, fmt.Sprint(failing, code)
	})
	for _, name := range services {
		require.Equal(t, []string{"v1", "v2"}, appliedTo(w, name+"/production")[name+"/production"])
	}
}
