package tests

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/fake"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/publish"
)

// patience is the deadline of every wait: long enough for a loaded machine, never slept through.
const patience = 90 * time.Second

// world is one application on the shared server and worker, with runtimes in memory.
type world struct {
	t      *testing.T
	client client.Client
	app    string
	dir    string
	store  string
	fake   *fake.Runtime
	// Of a world with a server of its own.
	startWorker, stopWorker func()
}

// shared is what all worlds of this program share: a worker, its store and its fake runtime.
var shared struct {
	once sync.Once
	err  error
	dir  string
	fake *fake.Runtime
	stop func()
}

// atOnce is how many tests run at the same time unless -parallel says otherwise: more than there are cores, since they
// wait for most of their time. A test that measures is not Parallel, so it runs alone.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// newWorld gives a test an application of its own. Files of its configuration are written with
// write; publish makes them the newest incarnation.
func newWorld(t *testing.T) *world {
	t.Helper()
	env := temporaltest.Start(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "converge-store-"); shared.err == nil {
			shared.fake = fake.New(nil)
			shared.stop, shared.err = startWorker(env.Address, shared.dir, shared.fake)
		}
	})
	require.NoError(t, shared.err)
	return &world{
		t: t, client: env.Client, app: temporaltest.Unique(t), dir: t.TempDir(), store: shared.dir, fake: shared.fake,
	}
}

// startWorker serves with a connection of its own, so that it may outlive the test that starts it.
func startWorker(address, store string, runtime *fake.Runtime) (stop func(), err error) {
	c, err := client.Dial(client.Options{HostPort: address, Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	stopWorker, err := worker.Start(context.Background(), c, worker.Options{
		Store: store,
		Factories: map[entities.RuntimeKind]activities.Factory{
			entities.RuntimeFake:       func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return runtime, nil },
			entities.RuntimeKubernetes: recordedKubernetes,
		},
	})
	return func() { stopWorker(); c.Close() }, err
}

// quiet discards the SDK's chatter; a failing workflow task is worth seeing.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(m string, kv ...any) {
	if strings.Contains(m, "panic") || strings.Contains(m, "workflow task") {
		fmt.Fprintln(os.Stderr, m, kv)
	}
}
func (quiet) Error(m string, kv ...any) { fmt.Fprintln(os.Stderr, m, kv) }

// twoChannels is staging before production, looked at as fast as is decent.
const twoChannels = `apiVersion: converge/v1
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

// web is a service of which production has a greeting of its own.
const web = `---
apiVersion: converge/v1
kind: Service
name: web
parameters:
- {name: greeting, type: string, default: hello}
custom: {env: {GREETING: "${{ params.greeting }}", VERSION: "${{ version }}"}}
`

// write replaces the configuration; APP stands for the application's name.
func (w *world) write(yaml string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, "converge.yaml"), []byte(strings.ReplaceAll(yaml, "APP", w.app)), 0o600))
}

// publish applies the directory as `converge apply` does.
func (w *world) publish() publish.Result {
	w.t.Helper()
	result, err := publish.Publish(w.t.Context(), publish.Options{
		Client: w.client, Dir: w.dir, StoreURL: w.store, By: "test", Fake: true,
	})
	require.NoError(w.t, err)
	return result
}

func (w *world) id(service string) string { return protocol.ServiceID(w.app, service) }

// update calls a verb as an update and decodes the answer into it. A workflow that ended its run just
// then has forgotten the call: as the CLI does, it is made again.
func (w *world) update(id, verb string, payload, answer any) error {
	w.t.Helper()
	raw, err := w.updateOnce(id, verb, payload)
	var notReady *serviceerror.WorkflowNotReady
	for n := 0; errors.As(err, &notReady) && n < 5; n++ {
		raw, err = w.updateOnce(id, verb, payload)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, answer)
}

func (w *world) updateOnce(id, verb string, payload any) (raw json.RawMessage, err error) {
	handle, err := w.client.UpdateWorkflow(w.t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: verb, Args: []any{payload}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return nil, err
	}
	err = handle.Get(w.t.Context(), &raw)
	return raw, err
}

func (w *world) release(service, version string) protocol.ReleaseAnswer {
	w.t.Helper()
	var answer protocol.ReleaseAnswer
	require.NoError(w.t, w.update(w.id(service), protocol.Release,
		protocol.ReleaseRequest{Act: protocol.Act{By: "test"}, Version: version}, &answer))
	return answer
}

func (w *world) act(service, verb, payload string) string {
	w.t.Helper()
	var answer protocol.Answer
	require.NoError(w.t, w.update(w.id(service), verb, json.RawMessage(payload), &answer))
	return answer.Message
}

func (w *world) signal(service, verb, payload string) {
	w.t.Helper()
	require.NoError(w.t, w.client.SignalWorkflow(w.t.Context(), w.id(service), "", verb, json.RawMessage(payload)))
}

func (w *world) status(service string) protocol.Status {
	w.t.Helper()
	var s protocol.Status
	value, err := w.client.QueryWorkflow(w.t.Context(), w.id(service), "", protocol.QueryStatus)
	require.NoError(w.t, err)
	require.NoError(w.t, value.Get(&s))
	return s
}

// channels is a status in one line: "staging CONVERGED v2, production CONVERGING v2".
func channels(s protocol.Status) string {
	var parts []string
	for _, c := range s.Channels {
		parts = append(parts, strings.TrimSpace(c.Name+" "+c.Status+" "+c.Target))
	}
	return strings.Join(parts, ", ")
}

// await waits until the status in one line is as wanted.
func (w *world) await(service, want string) protocol.Status {
	w.t.Helper()
	return w.awaitThat(service, want, func(s protocol.Status) bool { return channels(s) == want })
}

func (w *world) awaitThat(service, what string, cond func(protocol.Status) bool) protocol.Status {
	w.t.Helper()
	var last protocol.Status
	temporaltest.WaitFor(w.t, patience, func() (bool, string) {
		value, err := w.client.QueryWorkflow(w.t.Context(), w.id(service), "", protocol.QueryStatus)
		if err != nil {
			return false, fmt.Sprintf("want %s; %v", what, err)
		}
		last = protocol.Status{}
		if err := value.Get(&last); err != nil {
			return false, err.Error()
		}
		reasons, _ := json.MarshalIndent(last, "", " ")
		have := fmt.Sprintf("want %s, have %s\n%s", what, channels(last), reasons)
		return cond(last), have[:min(len(have), 8000)]
	})
	return last
}

// history is the present run of a workflow, whole.
func (w *world) history(id string) []*historypb.HistoryEvent {
	w.t.Helper()
	var out []*historypb.HistoryEvent
	events := w.client.GetWorkflowHistory(w.t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(w.t, err)
		out = append(out, e)
	}
	return out
}
