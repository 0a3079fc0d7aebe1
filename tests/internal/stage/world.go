package stage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
)

// World is one application, with runtimes in memory. Files of its configuration are written with Write; Publish makes
// them the newest incarnation. What goes wrong in a method ends the test.
type World struct {
	T      *testing.T
	Client client.Client
	// App is the application's name, Dir the directory of its configuration, Store that of the worker's store.
	App   string
	Dir   string
	Store string
	Fake  *fakeruntime.Runtime
	// StartWorker and StopWorker are nil unless the world has a server of its own. StopWorker stops the one that was started
	// last; all are stopped when the test is over.
	StartWorker, StopWorker func()
	// Address is where that server serves; StartWorkerAt starts the worker through something that stands before it.
	Address       string
	StartWorkerAt func(address string)
	// StartWorkerOver starts the worker with something between it and each call of that server.
	StartWorkerOver func(grpc.UnaryClientInterceptor)
	// StartWorkerAs starts one more, with options of its own.
	StartWorkerAs func(worker.Options) (stop func())

	notifying atomic.Bool // the last publication ended before all services were notified
}

// TwoChannels is staging before production, observed as fast as is decent.
const TwoChannels = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- {name: production, runtimes: [{name: APP-rt}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}
`

// Web is a service with a parameter, for TwoChannels.
const Web = `---
apiVersion: converge/v1
kind: Service
name: web
parameters:
- {name: greeting, type: string, default: hello}
custom: {env: {GREETING: "${{ params.greeting }}", VERSION: "${{ version }}"}}
`

// Write replaces the configuration; APP stands for the application's name.
func (w *World) Write(yaml string) {
	w.T.Helper()
	require.NoError(w.T, os.WriteFile(filepath.Join(w.Dir, "converge.yaml"), []byte(strings.ReplaceAll(yaml, "APP", w.App)), 0o600))
}

// Lose takes folders of the store away, or all of it, each at once: workers go on writing meanwhile. What is not there is lost.
func (w *World) Lose(folders ...string) {
	w.T.Helper()
	if len(folders) == 0 {
		entries, err := os.ReadDir(w.Store)
		require.NoError(w.T, err)
		for _, e := range entries {
			folders = append(folders, e.Name())
		}
	}
	lost := w.T.TempDir()
	for i, folder := range folders {
		if err := os.Rename(filepath.Join(w.Store, folder), filepath.Join(lost, strconv.Itoa(i))); !errors.Is(err, fs.ErrNotExist) {
			require.NoError(w.T, err)
		}
	}
}

// Publish applies the directory as `converge config publish` does.
func (w *World) Publish() publish.Result {
	w.T.Helper()
	result, err := publish.Publish(w.T.Context(), publish.Options{
		Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true,
	})
	require.NoError(w.T, err)
	w.notifying.Store(!result.Notified)
	return result
}

// Retire ends services for good when a test is over: what is observed for ever would be observed until the program ends. The
// application is notified first, or each would be started again; one that nothing was published of, or whose worker is gone,
// gets no notification.
func (w *World) Retire(services ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // no test depends on it
	defer cancel()
	_, _ = w.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: protocol.ApplicationID(w.App), UpdateName: protocol.Unmanage, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{protocol.ManageRequest{RequestMeta: protocol.RequestMeta{By: "test", Reason: retired}}},
	})
	for _, service := range services {
		_ = w.Client.TerminateWorkflow(context.Background(), w.ID(service), "", retired) // it may not have begun
	}
}

// retired is why a service is ended.
const retired = "the test is over"

// ID is the workflow id of a service.
func (w *World) ID(service string) string { return protocol.ServiceID(w.App, service) }

// Update calls a verb as an update and decodes the answer into it. A workflow that ended its run just then has forgotten
// the call, and one whose workflow task failed takes none until a later one succeeded: as the CLI does, it is made again. So is one
// that was not answered in time, under the same id: a run carries it out once. A service may still be started if the last publication
// ended before all were notified.
func (w *World) Update(id, verb string, payload, answer any) error {
	w.T.Helper()
	var raw json.RawMessage
	var err error
	call := rand.Text()
	temporaltest.WaitFor(w.T, Patience, func() (bool, string) {
		raw, err = w.updateOnce(call, id, verb, payload)
		again := errors.As(err, new(*serviceerror.WorkflowNotReady)) || errors.As(err, new(*client.WorkflowUpdateServiceTimeoutOrCanceledError)) ||
			w.notifying.Load() && errors.As(err, new(*serviceerror.NotFound))
		return !again || w.T.Context().Err() != nil, fmt.Sprint(err)
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, answer)
}

func (w *World) updateOnce(call, id, verb string, payload any) (raw json.RawMessage, err error) {
	handle, err := w.Client.UpdateWorkflow(w.T.Context(), client.UpdateWorkflowOptions{
		UpdateID: call, WorkflowID: id, UpdateName: verb, Args: []any{payload}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return nil, err
	}
	err = handle.Get(w.T.Context(), &raw)
	return raw, err
}

// RunWeb publishes the service web with TwoChannels, and has v1 of it run in both.
func (w *World) RunWeb() {
	w.T.Helper()
	w.Write(TwoChannels + Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// Release releases a version by an update.
func (w *World) Release(service, version string) protocol.ReleaseAnswer {
	w.T.Helper()
	var answer protocol.ReleaseAnswer
	require.NoError(w.T, w.Update(w.ID(service), protocol.Release,
		protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "test"}, Version: version}, &answer))
	return answer
}

// Act calls any other verb by an update, with a payload in JSON, and returns what it answers.
func (w *World) Act(service, verb, payload string) string {
	w.T.Helper()
	var answer protocol.Answer
	require.NoError(w.T, w.Update(w.ID(service), verb, json.RawMessage(payload), &answer))
	return strings.Join(append([]string{answer.Message}, answer.Next...), "\n")
}

// Signal calls any verb by a signal, with a payload in JSON.
func (w *World) Signal(service, verb, payload string) {
	w.T.Helper()
	require.NoError(w.T, w.Client.SignalWorkflow(w.T.Context(), w.ID(service), "", verb, json.RawMessage(payload)))
}

// Status asks a service, by a query.
func (w *World) Status(service string) protocol.Status {
	w.T.Helper()
	var s protocol.Status
	require.NoError(w.T, w.Query(w.ID(service), protocol.QueryStatus, &s))
	return s
}

// Query asks any workflow, in parts where the answer is large.
func (w *World) Query(id, query string, into any) error {
	return protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		value, err := temporaltest.Query(w.T.Context(), w.Client, id, query, q)
		if err == nil {
			err = value.Get(&raw)
		}
		return raw, err
	}, into)
}

// Channels is a status in one line: "staging CONVERGED v2, production CONVERGING v2".
func Channels(s protocol.Status) string {
	var parts []string
	for _, c := range s.Channels {
		parts = append(parts, strings.TrimSpace(c.Name+" "+c.Status+" "+c.Target))
	}
	return strings.Join(parts, ", ")
}

// Await waits until the status in one line is as wanted.
func (w *World) Await(service, want string) protocol.Status {
	w.T.Helper()
	return w.AwaitThat(service, want, func(s protocol.Status) bool { return Channels(s) == want })
}

// AwaitThat waits until cond holds for the status; what names it.
func (w *World) AwaitThat(service, what string, cond func(protocol.Status) bool) protocol.Status {
	w.T.Helper()
	var last protocol.Status
	temporaltest.WaitFor(w.T, Patience, func() (bool, string) {
		last = protocol.Status{}
		if err := w.Query(w.ID(service), protocol.QueryStatus, &last); err != nil {
			return false, fmt.Sprintf("want %s; %v", what, err)
		}
		reasons, err := json.MarshalIndent(last, "", " ")
		if err != nil {
			return false, err.Error()
		}
		have := fmt.Sprintf("want %s, have %s\n%s", what, Channels(last), reasons)
		return cond(last), have[:min(len(have), 8000)]
	})
	return last
}

// History is the present run of a workflow, whole.
func (w *World) History(id string) []*historypb.HistoryEvent {
	w.T.Helper()
	var out []*historypb.HistoryEvent
	events := w.Client.GetWorkflowHistory(w.T.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(w.T, err)
		out = append(out, e)
	}
	return out
}

// Long marks a test that takes minutes, and of what: it is skipped in the short form of the tests.
func Long(t *testing.T, of string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("takes %s; not with -short: make test-long runs it", of)
	}
}
