package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/interceptor"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/runtimes/secret"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
	"github.com/converge-engine/converge/worker/logs"
	"github.com/converge-engine/converge/worker/monitor"
	"github.com/converge-engine/converge/worker/tracing"
)

type workerOptions struct {
	f       *Factory
	store   string
	runtime string
	// roots are the unparsed arguments: DIR or APPLICATION=DIR.
	roots []string
	// takeOver moves an installation to this namespace, or continues with a lost store.
	takeOver    bool
	stopTimeout time.Duration
	allowEnv    []string
	allowSecret []string // secrets
	ageKeys     []string // FILE or APPLICATION=FILE
	version     worker.Deployment
	metrics     string // address to serve metrics on: PORT or HOST:PORT; empty: none
	format      string // of the log
	level       string
}

func newCmdWorker(f *Factory, runF func(context.Context, *workerOptions) error) *cobra.Command {
	o := &workerOptions{f: f}
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker",
		Long: `Run a worker for the services of a Temporal namespace until Ctrl-C: decide, observe
runtimes and apply. Any number of workers share the work. With --runtime, serve only the
readings and applies of one runtime with worker: remote.

After Ctrl-C or SIGTERM, applies in progress may finish: allow the worker as much time to
stop as --stop-timeout. A second signal ends it at once.

Workers of two versions can run at the same time if each names itself as a build of a
worker deployment: a workflow run stays with the build that started it. The workers of the
current build wake the other workflows in waves; each starts its next run on the current
build. --set-current makes a build the current one as soon as it serves, unless it was
current before and was replaced.`,
		Example: `  converge worker --store s3://releases?region=eu-west-1
  converge worker --root shop=/srv/shop --root /srv/others
  converge worker --runtime edge --store s3://releases?region=eu-west-1
  converge worker --metrics 9464
  converge worker --deployment converge --build v1.5.0 --set-current`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func([]string) error { return o.check() }),
	}
	cmd.Flags().StringVar(&o.store, "store", "", "incarnation store: a URL or a directory (CONVERGE_STORE; default: .converge/store of the directory's application)")
	cmd.Flags().StringVar(&o.runtime, "runtime", "", "serve this remote runtime only")
	cmd.Flags().StringArrayVar(&o.roots, "root", nil, "working directory of the commands of an application: DIR for all, or APPLICATION=DIR; repeatable (default: the directory that it was published from)")
	cmd.Flags().BoolVar(&o.takeOver, "take-over", false, "move the installation of the store to this namespace, from one that no longer exists; or resume with a store that was lost")
	cmd.Flags().StringSliceVar(&o.allowEnv, "allow-env", nil, "environment variables that a configuration may reference with workerEnv, as NAME or PREFIX* (CONVERGE_ALLOW_ENV)")
	cmd.Flags().StringSliceVar(&o.allowSecret, "allow-secret", nil, "secrets that a configuration may reference: kubernetes:[CONTEXT/]NAMESPACE/NAME, aws:[REGION:]NAME or aws:ARN; a trailing * matches any suffix (CONVERGE_ALLOW_SECRET)")
	cmd.Flags().StringArrayVar(&o.ageKeys, "sops-age-key-file", nil, "file of age identities that decrypt SOPS files: FILE for all applications, or APPLICATION=FILE; repeatable (default: SOPS_AGE_KEY_FILE and SOPS_AGE_KEY)")
	cmd.Flags().DurationVar(&o.stopTimeout, "stop-timeout", worker.DefaultStopTimeout, "how long applies may take to finish when the worker stops")
	cmd.Flags().StringVar(&o.metrics, "metrics", "", "serve /metrics, /healthz and /readyz at PORT, on the loopback address only, or at HOST:PORT (CONVERGE_METRICS)")
	cmd.Flags().StringVar(&o.format, "log-format", "text", "format of the log on stderr: text or json")
	cmd.Flags().StringVar(&o.level, "log-level", "warn", "debug, info, warn or error; info logs each apply")
	cmd.Flags().StringVar(&o.version.Name, "deployment", "", "name of the worker deployment (default: none, workers are replaced in place)")
	cmd.Flags().StringVar(&o.version.Build, "build", "", "with --deployment: build id of this worker")
	cmd.Flags().BoolVar(&o.version.SetCurrent, "set-current", false, "make this build the current one of its deployment")
	return cmd
}

func (o *workerOptions) check() error {
	if o.stopTimeout < 0 {
		return fmt.Errorf("worker: --stop-timeout %s must not be negative", o.stopTimeout)
	}
	if _, err := logs.New(io.Discard, o.format, o.level); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	if _, err := monitor.Address(cmp.Or(o.metrics, "0")); err != nil {
		return fmt.Errorf("worker: --metrics %w", err)
	}
	if _, err := secret.ParseAllowed(o.allowEnv...); err != nil {
		return fmt.Errorf("worker: --allow-env: %w", err)
	}
	if _, err := secret.ParseExternal(o.allowSecret...); err != nil {
		return fmt.Errorf("worker: --allow-secret: %w", err)
	}
	_, err := rootsOf(o.roots)
	return err
}

// rootsOf parses the directories of applications. The entry "" is for all applications that are not named.
func rootsOf(values []string) (map[string]string, error) {
	roots := map[string]string{}
	for _, text := range values {
		application, dir, named := strings.Cut(text, "=")
		if !named {
			application, dir = "", text
		}
		absolute, err := filepath.Abs(dir)
		if info, statErr := os.Stat(absolute); dir == "" || err != nil || statErr != nil || !info.IsDir() {
			return nil, fmt.Errorf("worker: --root %s: expected a directory, or APPLICATION=DIR", text)
		}
		if roots[application] != "" {
			return nil, fmt.Errorf("worker: --root %s: given twice for the same application", text)
		}
		roots[application] = absolute
	}
	return roots, nil
}

func (o *workerOptions) run(ctx context.Context) error {
	roots, err := rootsOf(o.roots)
	if err != nil {
		return err
	}
	store := first(o.store, o.f.Env("CONVERGE_STORE"))
	if store == "" {
		dir, err := o.f.WorkDir()
		if err != nil {
			return err
		}
		_, root := publish.FindApplication(dir)
		if root == "" {
			return fmt.Errorf("worker: no store; name one with --store or CONVERGE_STORE")
		}
		store = filepath.Join(root, ".converge", "store")
	}
	allowed, err := secret.ParseAllowed(first(strings.Join(o.allowEnv, ","), o.f.Env("CONVERGE_ALLOW_ENV")))
	if err != nil {
		return fmt.Errorf("worker: CONVERGE_ALLOW_ENV: %w", err)
	}
	allowedSecrets, err := secret.ParseExternal(first(strings.Join(o.allowSecret, ","), o.f.Env("CONVERGE_ALLOW_SECRET")))
	if err != nil {
		return fmt.Errorf("worker: CONVERGE_ALLOW_SECRET: %w", err)
	}
	keys, err := sops.Load(o.ageKeys, o.f.Env)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	mon, stopMonitor, err := o.f.monitor(ctx, o.metrics)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer stopMonitor()
	traced, err := o.f.traceWorker(ctx)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	tasks := &worker.Tasks{}
	log, err := logs.New(o.f.Err, o.format, o.level)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	slog.SetDefault(log)
	o.f.conn.OwnKeys, o.f.conn.Log, o.f.conn.Identity = true, log, deployment.Identity(first(o.version.Build, programVersion()))
	polls := &monitor.Polls{}
	if mon != nil {
		polls = mon.Polls()
	}
	o.f.conn.Dial = []grpc.DialOption{tasks.DialOption(), worker.Bounded(), polls.DialOption()}
	api, err := o.connect(ctx)
	if err != nil || api == nil {
		return err
	}
	c, namespace := api.Temporal()
	context.AfterFunc(ctx, func() { o.f.note("stopping; applies have %s to finish. Ctrl-C again stops at once.", o.stopTimeout) })
	started := func() { o.f.note("serving; store %s. Ctrl-C stops the worker, not the services.", store) }
	return worker.Run(ctx, c, worker.Options{Store: store, Started: started, Runtime: o.runtime, Namespace: namespace, StopTimeout: o.stopTimeout, TakeOver: o.takeOver, Deployment: o.version, Tasks: tasks, Roots: roots, AllowEnv: allowed, AllowSecret: allowedSecrets, Sops: keys, Payloads: o.f.conn.Payloads, Monitor: mon, Polls: polls, Interceptors: traced})
}

// connectDelay is how often a worker tries to connect to a server that does not answer.
const connectDelay = 2 * time.Second

// connect waits until the server answers, or ctx ends: then it returns nil. A worker that ended instead would be restarted after ever
// longer delays, and come back minutes after the server.
func (o *workerOptions) connect(ctx context.Context) (connection.API, error) {
	for noted := false; ; noted = true {
		api, err := o.f.client(ctx)
		if !errors.Is(err, connection.ErrNoServer) {
			return api, err
		}
		if ctx.Err() == nil && !noted {
			o.f.note("%v; the worker waits for it", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(connectDelay):
		}
	}
}

// traceWorker returns the tracing interceptors of a worker, if a collector is configured.
func (f *Factory) traceWorker(ctx context.Context) (traced []interceptor.WorkerInterceptor, err error) {
	if f.tracing, err = tracing.Start(ctx, "converge-worker", f.Env); err != nil || f.tracing == nil {
		return nil, err
	}
	return f.tracing.Worker()
}

// monitor serves the metrics and health of a worker at an address, or at the one of CONVERGE_METRICS, and measures the connection.
// Without an address it does nothing.
func (f *Factory) monitor(ctx context.Context, address string) (m *monitor.Monitor, stop func(), err error) {
	if address = first(address, f.Env("CONVERGE_METRICS")); address == "" {
		return nil, func() {}, nil
	}
	m, err = monitor.New(programVersion())
	if err != nil {
		return nil, nil, err
	}
	addr, stop, err := m.Serve(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	f.note("metrics at http://%s/metrics, readiness at /readyz", addr)
	f.conn.Metrics = m.Handler()
	return m, stop, nil
}
