package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/worker"
)

// world is a Temporal server in another process, a Converge worker in this one, and a runtime in
// memory.
type world struct {
	dir    string
	server *server
	client client.Client
	stage  *stage
	trace  *trace
	stop   func() // of the worker
	worker worker.Options
	// unanswered are questions that got no answer in time.
	unanswered int
}

func newWorld(ctx context.Context, dir string) (*world, error) { return newWorldWith(ctx, dir, nil) }

// newWorldWith adds kinds of runtime to the one in memory.
func newWorldWith(ctx context.Context, dir string, more map[entities.RuntimeKind]activities.Factory) (*world, error) {
	w := &world{dir: dir, stage: newStage(), trace: newTrace(), stop: func() {}}
	var err error
	if w.server, err = startServer(dir); err != nil {
		return nil, err
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	tasks := &worker.Tasks{}
	w.client, err = client.DialContext(ctx, client.Options{
		HostPort: w.server.address, Logger: log.NewStructuredLogger(quiet), Interceptors: []interceptor.ClientInterceptor{w.trace},
		ConnectionOptions: client.ConnectionOptions{
			DialOptions:     []grpc.DialOption{tasks.DialOption(), worker.Bounded(), grpc.WithChainUnaryInterceptor(w.trace.call)},
			GrpcCompression: connection.Compression(w.server.address),
		},
	})
	if err != nil {
		return nil, errors.Join(err, w.server.stop())
	}
	factories := map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return w.stage, nil },
	}
	maps.Copy(factories, more)
	w.worker = worker.Options{Store: w.store(), Factories: factories, Tasks: tasks}
	w.stop, err = worker.Start(ctx, w.client, w.worker)
	if err != nil {
		w.client.Close()
		return nil, errors.Join(err, w.server.stop())
	}
	return w, nil
}

// another starts one more worker in this process.
func (w *world) another(ctx context.Context) error {
	first := w.stop
	stop, err := worker.Start(ctx, w.client, w.worker)
	if err == nil {
		w.stop = func() { stop(); first() }
	}
	return err
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

// publish makes the application's first incarnation newest. The services get to know it at once, or
// soon where there are many.
func (w *world) publish(ctx context.Context, a application) error {
	return w.publishFiles(ctx, a.name, a.files())
}

// publishFiles does that for an application that is these files.
func (w *world) publishFiles(ctx context.Context, application string, files map[string]string) error {
	dir := filepath.Join(w.dir, application)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	_, err := publish.Publish(ctx, publish.Options{Client: w.client, Dir: dir, StoreURL: w.store(), By: "bench", Fake: true})
	return err
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
