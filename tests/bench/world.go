package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/worker"
)

const releaseVerb = protocol.Release

// world is a Temporal server in another process, a Converge worker in this one, and a runtime in
// memory.
type world struct {
	dir    string
	server *server
	client client.Client
	stage  *stage
	trace  *trace
	stop   func() // of the worker
}

func newWorld(ctx context.Context, dir string) (*world, error) {
	w := &world{dir: dir, stage: newStage(), trace: newTrace(), stop: func() {}}
	var err error
	if w.server, err = startServer(dir); err != nil {
		return nil, err
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	w.client, err = client.DialContext(ctx, client.Options{
		HostPort: w.server.address, Logger: log.NewStructuredLogger(quiet), Interceptors: []interceptor.ClientInterceptor{w.trace},
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(w.trace.call)}},
	})
	if err != nil {
		return nil, errors.Join(err, w.server.stop())
	}
	w.stop, err = worker.Start(ctx, w.client, worker.Options{
		Store: w.store(),
		Factories: map[entities.RuntimeKind]activities.Factory{
			entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return w.stage, nil },
		},
	})
	if err != nil {
		w.client.Close()
		return nil, errors.Join(err, w.server.stop())
	}
	return w, nil
}

func (w *world) store() string { return filepath.Join(w.dir, "store") }

// close stops everything, the server last.
func (w *world) close() error {
	w.stop()
	w.client.Close()
	return w.server.stop()
}

// spent is what the server and this process have used so far.
func (w *world) spent() (spent, error) {
	server, err := w.server.used()
	return spent{server: server, worker: used()}, err
}

// application is a configuration to publish.
type application struct {
	name     string
	channels int
	services []string
	version  string        // the services' initial version; empty for none
	steady   time.Duration // between looks at what is steady
}

// yaml declares channels c1, c2, … each behind the one before.
func (a application) yaml() string {
	text := fmt.Sprintf("apiVersion: converge/v1\nkind: Application\nname: %s\nreleaseChannels:\n", a.name)
	for n := 1; n <= a.channels; n++ {
		text += fmt.Sprintf("- name: %s\n  runtimes: [{name: %s-rt}]\n", channel(n), a.name)
		if n > 1 {
			text += fmt.Sprintf("  preconditions: [{releaseChannelStable: {releaseChannel: %s}}]\n", channel(n-1))
		}
	}
	text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Runtime\nname: %s-rt\nfake: {steadyPollInterval: %s}\n", a.name, a.steady)
	for _, s := range a.services {
		text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Service\nname: %s\n", s)
		if a.version != "" {
			text += fmt.Sprintf("initialVersion: %s\n", a.version)
		}
		text += "parameters:\n- {name: greeting, type: string, default: hello}\n" +
			"custom: {env: {GREETING: \"${{ params.greeting }}\", VERSION: \"${{ version }}\"}}\n"
	}
	return text
}

func channel(n int) string { return fmt.Sprintf("c%d", n) }

func serviceNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("s%04d", i)
	}
	return out
}

// publish makes the application's first incarnation newest, and returns when all services know.
func (w *world) publish(ctx context.Context, a application) error {
	request, err := w.compile(ctx, a)
	if err != nil {
		return err
	}
	handle, err := w.client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: w.client.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: protocol.ApplicationID(a.name), TaskQueue: protocol.TaskQueue,
			WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, protocol.ApplicationWorkflow, protocol.ApplicationInput{Application: a.name}),
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateName: protocol.Publish, WaitForStage: client.WorkflowUpdateStageCompleted, Args: []any{request},
		},
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	if err != nil {
		return err
	}
	return until(ctx, 50*time.Millisecond, func() (bool, error) {
		var s protocol.ApplicationStatus
		value, err := w.client.QueryWorkflow(ctx, protocol.ApplicationID(a.name), "", protocol.QueryStatus)
		if err == nil {
			err = value.Get(&s)
		}
		return s.Told == request.Manifest, err
	})
}

// compile writes everything that an incarnation needs into the store.
func (w *world) compile(ctx context.Context, a application) (protocol.PublishRequest, error) {
	request := protocol.PublishRequest{Act: protocol.Act{By: "bench"}, Store: w.store(), Services: len(a.services)}
	dir := filepath.Join(w.dir, a.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return request, err
	}
	if err := os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(a.yaml()), 0o600); err != nil {
		return request, err
	}
	config, err := intent.LoadWith(dir, intent.Options{AllowFake: true})
	if err != nil {
		return request, err
	}
	compiled, err := intent.Compile(config)
	if err != nil {
		return request, err
	}
	specs, err := compiled.Specs()
	if err != nil {
		return request, err
	}
	store, err := intent.OpenStore(ctx, w.store())
	if err != nil {
		return request, err
	}
	defer store.Close() // nothing is written any more
	for _, d := range compiled.Runtimes {
		if _, err := store.PublishRuntime(ctx, d); err != nil {
			return request, err
		}
	}
	for _, spec := range specs {
		if _, err := store.PutSpec(ctx, spec); err != nil {
			return request, err
		}
	}
	request.Origin.Path = dir
	if request.Hash, err = store.PutIncarnation(ctx, compiled.Incarnation); err != nil {
		return request, err
	}
	request.Manifest, err = store.PutManifest(ctx, intent.ManifestOf(specs))
	return request, err
}

// until asks again and again until done, an error or the end of ctx.
func until(ctx context.Context, interval time.Duration, ask func() (bool, error)) error {
	for {
		done, err := ask()
		if done || err != nil {
			return err
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
