package security

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	updatepb "go.temporal.io/api/update/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// inEncoding is a payload that says of itself how it is encoded; empty: it says nothing.
func inEncoding(as, data string) *commonpb.Payload {
	p := &commonpb.Payload{Data: []byte(data)}
	if as != "" {
		p.Metadata = map[string][]byte{"encoding": []byte(as)}
	}
	return p
}

// sent is what goes over the wire as the input of a signal, an update or a query.
func sent(payloads ...*commonpb.Payload) *commonpb.Payloads {
	return &commonpb.Payloads{Payloads: payloads}
}

// signals sends a signal as it is; updates an update, and returns what was wrong with it.
func signals(w *stage.World, id, name string, input *commonpb.Payloads) (err error) {
	request := &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id}, SignalName: name, Input: input,
		RequestId: rand.Text(), Identity: "mallory",
	}
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) { // a run that is just ending takes none
		_, err = w.Client.WorkflowService().SignalWorkflowExecution(w.T.Context(), request)
		return !errors.As(err, new(*serviceerror.ResourceExhausted)), fmt.Sprint(err)
	})
	return err
}

func updates(w *stage.World, id, name string, input *commonpb.Payloads) error {
	answer, err := w.Client.WorkflowService().UpdateWorkflowExecution(w.T.Context(), &workflowservice.UpdateWorkflowExecutionRequest{
		Namespace: client.DefaultNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
		WaitPolicy: &updatepb.WaitPolicy{LifecycleStage: enumspb.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED},
		Request:    &updatepb.Request{Meta: &updatepb.Meta{UpdateId: rand.Text(), Identity: "mallory"}, Input: &updatepb.Input{Name: name, Args: input}},
	})
	if err != nil {
		return err
	}
	if failure := answer.GetOutcome().GetFailure(); failure != nil {
		return fmt.Errorf("%s", failure.GetMessage())
	}
	return nil
}

// noise does not compress.
func noise(bytes int) string {
	var b strings.Builder
	for b.Len() < bytes {
		b.WriteString(rand.Text())
	}
	return b.String()[:bytes]
}

// poisoned is what comes to a verb, and what is said of it, as an update and as a signal.
type poisoned struct {
	name           string
	payload        *commonpb.Payloads
	update, signal string
}

func poison(verb string) []poisoned {
	plain := func(data string) *commonpb.Payloads { return sent(inEncoding("json/plain", data)) }
	nested := func(n int) string {
		return `{"by":"mallory","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}
	const undecodable = "unable to decode the input for update"
	of := "payload of " + verb + ": "
	return []poisoned{
		{"1 MB, which the server takes of an update only", plain(`{"by":"` + noise(1<<20) + `"}`), of + "too large: 10486", ""},
		{"400 KB, which it does", plain(`{"by":"` + noise(400<<10) + `"}`), of + "too large: 409652", of + "409609 bytes; at most 65536"},
		{"a field twice", plain(`{"by":"alice","by":"mallory"}`), `"by" occurs twice`, `"by" occurs twice`},
		{"a field twice, in capitals", plain(`{"by":"alice","BY":"mallory"}`), `"BY" occurs twice`, `"BY" occurs twice`},
		{"a field nobody knows", plain(`{"by":"mallory","sudo":true}`), `unknown field "sudo"`, `unknown field "sudo"`},
		{"100,000 levels", plain(nested(100_000)), of + "too large: 200064", of + "200021 bytes; at most 65536"},
		{"30,000 levels", plain(nested(30_000)), undecodable, of + "not JSON"},
		{"9,990 levels", plain(nested(9_990)), `unknown field "x"`, "nested deeper than 100 levels"},
		{"no UTF-8", plain("{\"by\":\"mall\xffory\"}"), of + "not UTF-8", of + "not UTF-8"},
		{"a number beyond any", plain(`{"by":1e999}`), of + `"by" is a number; expected a text`, of + `"by" is a number; expected a text`},
		{"half a payload", plain(`{"by":`), undecodable, of + "not JSON"},
		{"two in one", plain(`{"by":"alice"} {"by":"mallory"}`), undecodable, of + "not JSON"},
		{"null", plain(`null`), `"by" is missing`, `"by" is missing`},
		{"a list", plain(`[{"by":"mallory"}]`), of + "an array; expected an object", of + "an array; expected an object"},
		{"nothing", sent(), verb + " without a payload", verb + " without a payload"},
		{"no input at all", nil, verb + " without a payload", verb + " without a payload"},
		{"nil", sent(inEncoding("binary/null", "")), verb + " without a payload", verb + " without a payload"},
		{"bytes", sent(inEncoding("binary/plain", "\xff\x00x")), of + "not JSON", of + "not JSON"},
		{"protobuf", sent(inEncoding("binary/protobuf", "\x0a\x05alice")), undecodable, of + "not JSON"},
		{"protobuf as JSON", sent(inEncoding("json/protobuf", `{"by":"mallory","sudo":1}`)), undecodable, `unknown field "sudo"`},
		{"an encoding of nobody", sent(inEncoding("x/y", `{"by":"mallory","sudo":1}`)), undecodable, `unknown field "sudo"`},
		{"no encoding", sent(inEncoding("", `{"by":"mallory","sudo":1}`)), undecodable, `unknown field "sudo"`},
		{"two payloads, of which the first counts", sent(inEncoding("json/plain", `{"sudo":1}`), inEncoding("json/plain", `{"by":"alice"}`)), `unknown field "sudo"`, `unknown field "sudo"`},
		{"a reason without end", plain(`{"by":"mallory","reason":"` + strings.Repeat("x", 3000) + `"}`), `"reason" is 3000 bytes long`, `"reason" is 3000 bytes long`},
	}
}

// Whatever comes to a verb of a service, an application, a runtime or the installation is refused and says why, to whoever waits
// for an answer and in the status: no payload, name or query has a workflow task fail, and none is passed over in silence. In the
// histories there is nothing of it, and the next verb is carried out.
func TestPoisonIsRefusedByEveryWorkflow_G1_G6(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	runtime := protocol.RuntimeID("eu")
	_, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: runtime, TaskQueue: protocol.TaskQueue},
		protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: "eu", StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(t, err)
	for _, id := range []string{w.ID("web"), protocol.ApplicationID(w.App), runtime, protocol.InstallationID()} {
		for _, p := range poison(protocol.Pause) {
			require.ErrorContains(t, updates(w, id, protocol.Pause, p.payload), p.update, "%s: update of %s", p.name, id)
			refusedSignal(w, id, protocol.Pause, p.payload, p.signal, p.name)
		}
		good := sent(inEncoding("json/plain", `{"by":"mallory"}`))
		for _, name := range []string{"frobnicate", "Pause", "__temporal_pause", "__stack_trace", "lease-call", "pause\n", strings.Repeat("x", 999)} {
			require.ErrorContains(t, updates(w, id, name, good), "unknown update", name)
			refusedSignal(w, id, name, good, "no such verb; expected one of", name)
		}
		require.Error(t, updates(w, id, strings.Repeat("x", 1001), good))
		require.Error(t, signals(w, id, strings.Repeat("x", 1001), good))
		oddQueries(w, id)
		require.NoError(t, updates(w, id, protocol.Pause, sent(inEncoding("json/plain", `{"by":"alice","reason":"a drill"}`))), id)
		require.NoError(t, updates(w, id, protocol.Resume, sent(inEncoding("json/plain", `{"by":"alice"}`))), id)
		require.Zero(t, failedTasks(w, id), id)
	}
	for _, number := range []string{"9223372036854775808", "-1", "1e400", "1.5", `"1"`} {
		payload := sent(inEncoding("json/plain", `{"by":"mallory","incarnation":`+number+`}`))
		require.Error(t, updates(w, protocol.ApplicationID(w.App), protocol.Pin, payload), number)
		refusedSignal(w, protocol.ApplicationID(w.App), protocol.Pin, payload, "", number)
	}
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	for _, of := range []string{w.App + "/web", w.App, "runtime/eu", "--installation"} {
		said, code := history(w, of)
		require.Zero(t, code, said)
		require.NotContains(t, said, "mallory", of)
		require.Contains(t, said, "a drill", of)
	}
}

// refusedSignal sends a signal and waits until the status says why it was refused. Without a reason the server may refuse it.
func refusedSignal(w *stage.World, id, name string, input *commonpb.Payloads, why, what string) {
	w.T.Helper()
	before := standing(w.T, w.Client, id).Refused
	if err := signals(w, id, name, input); err != nil {
		require.Empty(w.T, why, "%s: %v", what, err)
		return
	}
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		now := standing(w.T, w.Client, id).Refused
		fresh := slices.DeleteFunc(slices.Clone(now), func(r entities.Refusal) bool { return slices.Contains(before, r) })
		return slices.ContainsFunc(fresh, func(r entities.Refusal) bool { return strings.Contains(r.Reason, why) }),
			fmt.Sprintf("%s: want a signal to %s refused: %s; %v", what, id, why, fresh)
	})
}

// oddQueries asks what nobody should, and with arguments that no query has.
func oddQueries(w *stage.World, id string) {
	w.T.Helper()
	ask := func(name string, args *commonpb.Payloads) error {
		_, err := w.Client.WorkflowService().QueryWorkflow(w.T.Context(), &workflowservice.QueryWorkflowRequest{
			Namespace: client.DefaultNamespace, Execution: &commonpb.WorkflowExecution{WorkflowId: id},
			Query: &querypb.WorkflowQuery{QueryType: name, QueryArgs: args},
		})
		return err
	}
	for _, name := range []string{protocol.QueryStatus, protocol.QueryHistory, "__stack_trace"} {
		for _, args := range []*commonpb.Payloads{sent(inEncoding("x/y", "\xff")), sent(inEncoding("json/plain", strings.Repeat("[", 50_000))), sent(inEncoding("json/plain", `"`+noise(400<<10)+`"`)), sent(nil)} {
			if err := ask(name, args); err != nil { // what says how to answer is understood, or refused
				require.ErrorContains(w.T, err, "unable to decode the input for queryType: "+name)
			}
		}
		require.NoError(w.T, ask(name, nil), name)
	}
	require.ErrorContains(w.T, ask("secrets", nil), "unknown queryType")
}

// failedTasks counts the workflow tasks of a run that failed.
func failedTasks(w *stage.World, id string) (n int) {
	w.T.Helper()
	for _, e := range w.History(id) {
		if failedTask(e) {
			n++
		}
	}
	return n
}

// failedTask tells whether a workflow task failed, and not only because something came while it ended its run, or because so much had
// come meanwhile that the server closed it, as it does on a machine that is slow.
func failedTask(e *historypb.HistoryEvent) bool {
	failed := e.GetWorkflowTaskFailedEventAttributes()
	return failed != nil && failed.Cause != enumspb.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND &&
		failed.Cause != enumspb.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
}

// Of 5,000 signals to one service, of which four in five are junk or in the name of another, none that is right is lost: they are
// carried out in their order, in runs that end when they should. A second service is released meanwhile.
func TestFloodOfJunkLosesNothing_G1_F6(t *testing.T) {
	if testing.Short() {
		t.Skip("it sends 5,000 signals, for a minute; not with -short")
	}
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{ContinueAsNewAfter: 1000})
	w.Write(stage.TwoChannels + stage.Web + strings.ReplaceAll(stage.Web, "web", "api"))
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	const all = 5000
	forged, err := json.Marshal(protocol.ServicePublish{Incarnation: 1 << 40, Hash: "00", Spec: "00"})
	require.NoError(t, err)
	junk := []*commonpb.Payloads{
		sent(inEncoding("json/plain", `{"by":"alice","by":"mallory"}`)), sent(inEncoding("json/plain", `{"by":`)), sent(inEncoding("x/y", "\xff")), nil,
	}
	began := time.Now()
	for n := range all {
		switch {
		case n%5 == 0:
			verb := []string{protocol.Pause, protocol.Resume}[n/5%2]
			w.Signal("web", verb, fmt.Sprintf(`{"channel":"staging","by":"ann","reason":"%d"}`, n))
		case n%5 == 1:
			require.NoError(t, signals(w, w.ID("web"), protocol.Publish, sent(inEncoding("json/plain", string(forged)))))
		default:
			name := []string{protocol.Pause, "frobnicate", protocol.SignalGranted, protocol.SignalScopePause}[n%4]
			require.NoError(t, signals(w, w.ID("web"), name, junk[n%len(junk)]))
		}
		if n == all/2 {
			w.Release("api", "v1")
		}
	}
	t.Logf("sent within %s", time.Since(began))
	w.Await("api", "staging CONVERGED v1, production CONVERGED v1")
	w.Signal("web", protocol.Pause, `{"channel":"staging","by":"ann","reason":"the last"}`)
	w.AwaitThat("web", "the last pause", func(s protocol.Status) bool { return len(s.Pauses) == 1 && s.Pauses[0].Reason == "the last" })
	t.Logf("carried out after %s", time.Since(began))
	w.Act("web", protocol.Resume, `{"channel":"staging","by":"ann"}`)
	w.Release("web", "v2")
	s := w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Len(t, s.Refused, 10, "the newest that were refused")

	said, code := history(w, w.App+"/web", "--output", "json")
	require.Zero(t, code, said)
	next := 0
	var answer protocol.HistoryAnswer
	require.NoError(t, json.Unmarshal([]byte(said), &answer))
	for _, line := range answer.Entries {
		if line.Kind == entities.EventPause && line.Reason == fmt.Sprint(next) {
			next += 10 // between them are the ends, which have no reason
		}
		require.NotContains(t, fmt.Sprint(line), "mallory")
	}
	require.Equal(t, all, next, "pauses in their order")
	longest, runs := lengths(w, w.ID("web"))
	t.Logf("%d runs, the longest of %d events", runs, longest)
	require.Greater(t, runs, 2)
	require.Less(t, longest, 10_000)
}

// lengths are how many events the longest run of a workflow has, and how many runs there are.
func lengths(w *stage.World, id string) (longest, runs int) {
	w.T.Helper()
	d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
	require.NoError(w.T, err)
	for run := d.WorkflowExecutionInfo.Execution.RunId; run != ""; runs++ {
		history, events := w.Client.GetWorkflowHistory(w.T.Context(), id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT), 0
		run = ""
		for ; history.HasNext(); events++ {
			e, err := history.Next()
			require.NoError(w.T, err)
			if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
				run = started.ContinuedExecutionRunId
			}
			require.False(w.T, failedTask(e), "%s", e)
		}
		longest = max(longest, events)
	}
	return longest, runs
}
