package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/client/serve"
	"github.com/converge-engine/converge/client/serve/apiv1"
	"github.com/converge-engine/converge/client/serve/board"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/runtimes/secret"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/worker/monitor"
	"github.com/converge-engine/converge/worker/tracing"
)

type options struct {
	dir           string
	port, uiPort  int
	apiPort       int
	db            string
	allowEnv      []string
	allowSecret   []string
	ageKeys       []string // FILE or APPLICATION=FILE
	keys          *sops.Keys
	allowCommands bool
	metrics       string
}

// run starts everything, applies the directory, and follows it until ctx ends. It reports errors in the directory before it starts
// anything.
func run(ctx context.Context, o options, out io.Writer) error {
	if len(o.allowEnv) == 0 {
		o.allowEnv = []string{os.Getenv("CONVERGE_ALLOW_ENV")}
	}
	allowed, err := secret.ParseAllowed(o.allowEnv...)
	if err != nil {
		return fmt.Errorf("--allow-env: %w", err)
	}
	o.allowEnv = allowed
	if len(o.allowSecret) == 0 {
		o.allowSecret = []string{os.Getenv("CONVERGE_ALLOW_SECRET")}
	}
	if o.allowSecret, err = secret.ParseExternal(o.allowSecret...); err != nil {
		return fmt.Errorf("--allow-secret: %w", err)
	}
	if o.keys, err = sops.Load(o.ageKeys, os.Getenv); err != nil {
		return err
	}
	if err := check(ctx, o.dir, o.allowCommands); err != nil {
		return err
	}
	stateDir, err := createStateDir(o.dir)
	if err != nil {
		return err
	}
	if o.db == "" {
		o.db = filepath.Join(stateDir, embedded.DBName())
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	server, err := embedded.Start(ctx, embedded.Options{
		DBFile: o.db, Port: o.port, UIPort: o.uiPort, SearchAttributes: worker.SearchAttributes(), Log: log, UIView: &services,
	})
	if err != nil {
		return err
	}
	store := filepath.Join(stateDir, "store")
	err = work(ctx, o, server, store, log, out)
	return errors.Join(err, server.Stop())
}

// services is what the Web UI opens: the services, with what Converge says of each.
var services = embedded.View{
	Name: "Services of Converge", Query: fmt.Sprintf("WorkflowType=%q", protocol.ServiceWorkflow),
	Columns: []string{"Workflow ID", protocol.AttrStatus, protocol.AttrVersion, protocol.AttrWaitingFor, protocol.AttrApplication, "Start", "Status"},
}

// check returns the errors in the directory. For an empty directory it says how to begin.
func check(ctx context.Context, dir string, allowCommands bool) error {
	loaded, err := compile.LoadWith(dir, config.Options{RunCommand: publish.Commands(ctx, allowCommands)})
	if err == nil {
		_, err = compile.Compile(loaded)
	}
	var problems config.Problems
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &problems):
		return fmt.Errorf("%w; nothing was started", err)
	case len(problems) == 1 && problems[0].Code == "no-configuration":
		return fmt.Errorf("%s: %s; expected %s\ncreate one with: converge config init %s",
			dir, problems[0].Message, problems[0].Expected, dir)
	}
	if !slices.ContainsFunc(problems, func(p config.Problem) bool { return p.Code != config.UnknownLibrary }) {
		return nil // the store has its definition, once there is a store
	}
	if problems[0].Code == config.DuplicateApplication {
		return fmt.Errorf("%s contains more than one application; nothing was started:\n%w\nfor example: converge dev %s",
			dir, problems, filepath.Join(dir, filepath.Dir(problems[0].File)))
	}
	return fmt.Errorf("%s is invalid; nothing was started:\n%w", dir, err)
}

// work runs the worker, the HTTP API and the follower on a server that is up.
func work(ctx context.Context, o options, server *embedded.Server, store string, log *slog.Logger, out io.Writer) error {
	mon, stopMonitor, err := o.monitor(ctx, out)
	if err != nil {
		return err
	}
	defer stopMonitor()
	traces, err := tracing.Start(ctx, "converge-worker", os.Getenv)
	if err != nil {
		return err
	}
	defer traces.Stop()
	var traced []interceptor.WorkerInterceptor
	if traces != nil {
		if traced, err = traces.Worker(); err != nil {
			return err
		}
	}
	tasks := &worker.Tasks{}
	payloads, err := codec.Load(os.Getenv("CONVERGE_STORE_KEY"), os.Getenv(codec.Setting))
	if err != nil {
		return err
	}
	data, failures := payloads.Converters()
	options := client.Options{
		DataConverter: data, FailureConverter: failures,
		HostPort: server.Address(), Logger: sdklog.NewStructuredLogger(log), Identity: "converge dev",
		ConnectionOptions: client.ConnectionOptions{
			DialOptions: []grpc.DialOption{tasks.DialOption(), worker.Bounded()}, GrpcCompression: connection.Compression(server.Address()),
		},
	}
	if mon != nil {
		options.MetricsHandler = mon.Handler()
		options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, mon.Polls().DialOption())
	}
	c, err := client.Dial(options)
	if err != nil {
		return err
	}
	defer c.Close()
	stop, err := worker.Start(ctx, c, worker.Options{Store: store, Owner: "converge dev", Tasks: tasks, AllowEnv: o.allowEnv, AllowSecret: o.allowSecret, Sops: o.keys, Payloads: payloads, Monitor: mon, Interceptors: traced})
	if err != nil {
		return err
	}
	defer stop()
	api := connection.Of(c, server.Address(), embedded.Namespace, data)
	known := overview.New(api, time.Now)
	go known.Run(ctx)
	defer known.OpenSlow()()
	stopAPI, err := serveAPI(ctx, o, api, known, store, log, out)
	if err != nil {
		return err
	}
	defer stopAPI()
	fmt.Fprintf(out, "Temporal   %s (state in %s)\nWeb UI     %s\nfollowing  %s; Ctrl-C stops\n\n", server.Address(), o.db, server.UIAddress(), o.dir)
	go (&collector{client: c, payloads: payloads, store: store, out: out}).run(ctx)
	f := &follower{client: c, dir: o.dir, store: store, out: out, allowCommands: o.allowCommands, report: newReport(known, o, out)}
	err = f.follow(ctx)
	fmt.Fprintln(out, "\nstopping; deployed services keep running, and are managed again after the next start")
	return err
}

// serveAPI serves the HTTP API until it is stopped.
func serveAPI(ctx context.Context, o options, c *connection.Client, known *overview.Overview, store string, log *slog.Logger, out io.Writer) (stop func(), err error) {
	stores, previews := read.Store{Configured: store}.Keep(), preview.NewServed()
	temporal, namespace := c.Temporal()
	examine := deployment.Namespace{Client: temporal, Name: namespace, Attributes: worker.SearchAttributes()}.Examine
	server, err := serve.Listen(ctx, serve.Options{
		Listen: fmt.Sprintf("127.0.0.1:%d", o.apiPort), Log: log, Ready: c.Healthy,
		Mount: func(mux *http.ServeMux, _ *url.URL, stopping <-chan struct{}) http.Handler {
			board.Mount(mux, board.Options{Calls: c, Stores: stores, Overview: known, Now: time.Now, Previews: previews, Examine: examine})
			apiv1.Mount(mux, apiv1.Options{Calls: c, Stores: stores, Now: time.Now, Stopping: stopping, Overview: known, Previews: previews})
			return mux
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%w; choose another port with --api-port", err)
	}
	fmt.Fprintf(out, "Board      %s (the API is under /api/v1)\n", server.URL())
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(ctx); err != nil {
			log.Error("the HTTP API ended: " + err.Error())
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// monitor serves the metrics and health of the worker, if requested.
func (o options) monitor(ctx context.Context, out io.Writer) (m *monitor.Monitor, stop func(), err error) {
	address := cmp.Or(o.metrics, os.Getenv("CONVERGE_METRICS"))
	if address == "" {
		return nil, func() {}, nil
	}
	m, err = monitor.New("dev")
	if err != nil {
		return nil, nil, err
	}
	addr, stop, err := m.Serve(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(out, "metrics    http://%s/metrics\n", addr)
	return m, stop, nil
}

// createStateDir makes the directory with all state of a dev server, and excludes it from version control.
func createStateDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	stateDir := filepath.Join(dir, ".converge")
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", fmt.Errorf("create the state directory: %w", err)
	}
	ignore := filepath.Join(stateDir, ".gitignore")
	if err := os.WriteFile(ignore, []byte("*\n"), 0o644); err != nil {
		return "", fmt.Errorf("create the state directory: %w", err)
	}
	return stateDir, nil
}
