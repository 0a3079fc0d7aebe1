package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

var update = flag.Bool("update", false, "write the golden texts")

// now is the time in every test.
var now = time.Date(2026, 11, 20, 10, 50, 20, 0, time.UTC)

// fakeAPI simulates a Temporal server. Each service answers its statuses one after another, and then repeats the last one. An error is
// one answer.
type fakeAPI struct {
	mu                sync.Mutex
	statuses          map[string][]any // by workflow id: protocol.Status or error
	updates           []string         // "workflow verb payload"
	requestIDs        []string         // of the updates
	answer            any              // of updates
	progress          []protocol.Progress
	alterations       []deployment.Alteration
	refuse            []error                  // of updates, in order
	endedServices     []connection.ServiceName // services that ended abnormally
	howEnded          string                   // how the run of every workflow ended
	terminationReason string                   // why the installation's workflow was terminated
	computed          func(id string) any      // the answers to queries, instead of statuses
}

func (f *fakeAPI) Query(_ context.Context, id, _ string, into any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.computed != nil {
		return copyInto(f.computed(id), into)
	}
	queue := f.statuses[id]
	if len(queue) == 0 {
		return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
	}
	if len(queue) > 1 {
		f.statuses[id] = queue[1:]
	}
	if err, ok := queue[0].(error); ok {
		return err
	}
	return copyInto(queue[0], into)
}

func (f *fakeAPI) Progress(context.Context, string) ([]protocol.Progress, error) {
	return f.progress, nil
}

func (f *fakeAPI) Altered(_ context.Context, id string) (all []deployment.Alteration, _ error) {
	for _, a := range f.alterations {
		if a.Workflow == id {
			all = append(all, a)
		}
	}
	return all, nil
}

func (f *fakeAPI) Paused(context.Context, string) (ids []string, _ error) {
	for _, a := range f.alterations {
		ids = append(ids, a.Workflow)
	}
	return slices.Compact(ids), nil
}

func (f *fakeAPI) Update(_ context.Context, id, verb, requestID string, act, into any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, _ := json.Marshal(act)
	f.requestIDs = append(f.requestIDs, requestID)
	f.updates = append(f.updates, strings.ReplaceAll(id+" "+verb+" "+string(data), requestID, "ID"))
	if len(f.refuse) > 0 {
		err := f.refuse[0]
		f.refuse = f.refuse[1:]
		if err != nil {
			return err
		}
	}
	if _, ok := f.statuses[id]; !ok {
		return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
	}
	return copyInto(f.answer, into)
}

func (f *fakeAPI) Start(_ context.Context, id, _ string, input any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, _ := json.Marshal(input)
	f.updates = append(f.updates, id+" start "+string(data))
	if f.statuses[id] == nil {
		f.statuses[id] = []any{protocol.RuntimeStatus{}}
	}
	return nil
}

func (f *fakeAPI) Services(_ context.Context, application string) ([]connection.ServiceName, error) {
	var names []connection.ServiceName
	for id := range f.statuses {
		if app, svc, ok := protocol.ParseServiceID(id); ok && (application == "" || app == application) {
			names = append(names, connection.ServiceName{Application: app, Service: svc})
		}
	}
	return connection.SortNames(names), nil
}

func (f *fakeAPI) ListServices(context.Context, connection.ServiceFilter, int, []byte) (page []connection.ListedService, next []byte, _ error) {
	return nil, nil, errors.New("no command lists services by pages")
}

func (f *fakeAPI) Healthy(context.Context) error { return nil }

func (f *fakeAPI) EndedServices(_ context.Context, application string) ([]connection.ServiceName, error) {
	return slices.DeleteFunc(slices.Clone(f.endedServices), func(n connection.ServiceName) bool { return application != "" && n.Application != application }), nil
}

func (f *fakeAPI) TerminationReason(context.Context, string) (string, error) {
	return f.terminationReason, nil
}

func (f *fakeAPI) HowEnded(context.Context, string) string { return f.howEnded }

func (f *fakeAPI) Applications(context.Context) ([]string, error) {
	var names []string
	for id := range f.statuses {
		if name, ok := strings.CutPrefix(id, "application/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f *fakeAPI) Plans(_ context.Context, application string) (ids []string, _ error) {
	for id := range f.statuses {
		if strings.HasPrefix(id, "plan/"+application) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (f *fakeAPI) Temporal() (client.Client, string) { return nil, "default" }
func (f *fakeAPI) Close()                            {}

func copyInto(from, into any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// console is one run of the command against a fake.
type console struct {
	*Factory
	api      *fakeAPI
	out, err bytes.Buffer
	mu       sync.Mutex
	slept    time.Duration
	stop     context.CancelCauseFunc
	stopAt   time.Duration // Ctrl-C after this much waiting; 0: never
}

func newConsole(t *testing.T, api *fakeAPI) *console {
	c := &console{api: api}
	dir := t.TempDir()
	c.Factory = &Factory{
		In: strings.NewReader(""), Out: &c.out, Err: &c.err, Raw: &c.out,
		Env: func(name string) string {
			return map[string]string{"CONVERGE_BY": "alice", "CONVERGE_CONFIG_DIR": dir}[name]
		},
		WorkDir: func() (string, error) { return dir, nil },
		Now: func() time.Time {
			c.mu.Lock()
			defer c.mu.Unlock()
			return now.Add(c.slept)
		},
		Sleep: c.sleep,
		Dial: func(context.Context, connection.Settings) (connection.API, error) {
			if api == nil {
				return nil, errors.New("no Temporal server")
			}
			return api, nil
		},
	}
	return c
}

// sleep advances the time without waiting.
func (c *console) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
	if c.stopAt > 0 && c.slept >= c.stopAt {
		c.stop(errInterrupted)
	}
	if d >= time.Second {
		time.Sleep(time.Millisecond) // a timeout of milliseconds is real
	}
	return ctx.Err()
}

// run returns the exit code and the whole output, with stderr marked.
func (c *console) run(t *testing.T, line string) (code int, output string) {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	c.stop = stop
	code = run(ctx, c.Factory, strings.Fields(line))
	output = c.out.String()
	for l := range strings.Lines(c.err.String()) {
		output += "! " + l
	}
	return code, output
}
