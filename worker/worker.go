package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/runtimes/kubernetes"
	"github.com/converge-engine/converge/runtimes/secret"
	"github.com/converge-engine/converge/worker/logs"
	"github.com/converge-engine/converge/worker/monitor"
	"github.com/converge-engine/converge/workflows"
)

// Options configure a worker.
type Options struct {
	// Store is the URL or directory of the incarnation store.
	Store string
	// Runtime makes this the remote worker of that runtime: it polls runtime/<name> for readings and applies, and nothing else. Empty: the
	// common queue, workflows included.
	Runtime string
	// Roots are the directories of applications on this worker, by application, "" for all others. The default for an application is the
	// directory that it was published from.
	Roots map[string]string
	// Namespace is the Temporal namespace, to check its search attributes.
	Namespace string
	// TakeOver moves the installation of a store that belongs to another namespace here.
	TakeOver bool
	// Owner identifies a worker that may move its own stores without TakeOver: `converge dev`, whose server starts empty with another
	// schema. Empty: no owner.
	Owner string
	// AllowEnv are the variables of the worker's environment that a configuration may reference with workerEnv: NAME, or PREFIX*. Empty:
	// none.
	AllowEnv []string
	// AllowSecret are the secrets of clusters and of AWS that it may reference with kubernetesSecret and awsSecret. Empty: none.
	AllowSecret secret.ExternalPatterns
	// Sops are the keys to decrypt SOPS files. Nil: none.
	Sops *sops.Keys
	// Payloads is the codec that the client's connection encrypts and decrypts payloads with; the client uses its Converters. Nil: no
	// encryption.
	Payloads *codec.Codec
	// StopTimeout is how long applies may take to end when the worker stops. During that time it accepts no new work, and its heartbeats
	// continue. 0: five seconds.
	StopTimeout time.Duration
	// Deployment is the version that this worker serves, if versions overlap; zero: workers are replaced in place.
	Deployment Deployment
	// Tasks is that of the client's connection. A worker without one does not start.
	Tasks *Tasks
	// Monitor exposes this worker's metrics and readiness. Its Handler is that of the client. Nil: none.
	Monitor *monitor.Monitor
	// Polls are those of the client's connection. Nil: refused polls and a wrong clock are not detected.
	Polls *monitor.Polls
	// RefusedFor is how long all work may be refused before the worker ends; 0: five minutes.
	RefusedFor time.Duration
	// Interceptors wrap the workflows and activities of this worker, the first outermost (tracing, tests).
	Interceptors []interceptor.WorkerInterceptor
	// Started is called when the worker serves: the server and the store have answered. It is called again when it has started over. Nil: none.
	Started func()
	// Factories add kinds of runtime to the built-in ones (tests and simulations).
	Factories map[entities.RuntimeKind]activities.Factory
}

// Tasks reads on a connection, with its DialOption, what the server says about the worker's tasks.
type Tasks = activities.Tasks

// cachedWorkflows is how many services one worker keeps in memory between events (about 20 KiB each); an evicted one is replayed at its
// next event.
const cachedWorkflows = 20000

const (
	// DefaultStopTimeout is the default of StopTimeout for programs. It fits an apply of the default maximum duration, and the reading
	// after it.
	DefaultStopTimeout = 11 * time.Minute
	// readingStop is how long readings, evaluations and notifications may take to end when a worker stops: another worker continues them.
	readingStop = 5 * time.Second
)

// Run serves until ctx ends, or the worker gets no more work. It waits for a server and a store that do not answer when it starts. If the
// database of Temporal is replaced by a new one, or the installation of a remote worker is moved, it starts over; without TakeOver or an Owner
// the former fails with a *ReplacedError and an *ElsewhereError, since the store belongs to the namespace that is gone.
func Run(ctx context.Context, c client.Client, o Options) error {
	var replaced error
	for {
		lost := newWorkLoss()
		stop, err := startPatiently(ctx, c, o, lost.fatal)
		if errors.Is(err, errStopped) {
			return nil
		}
		if err != nil && replaced != nil {
			return fmt.Errorf("%w; the worker ends: %w", replaced, err)
		}
		if err != nil {
			return err
		}
		if o.Started != nil {
			o.Started()
		}
		err = lost.wait(ctx, o)
		stop()
		if !startsOver(err) {
			return err
		}
		replaced = err
		slog.Error("the worker starts over", "error", err)
	}
}

// errStopped: the worker was stopped before it started.
var errStopped = errors.New("stopped before it started")

// startsOver reports that a worker can serve again if it starts over.
func startsOver(err error) bool {
	return errors.As(err, new(*ReplacedError)) || errors.As(err, new(*MovedError))
}

// startRetryDelay is how often a worker tries to start while the server or the store does not answer.
const startRetryDelay = 2 * time.Second

// startPatiently is start, and retries while the server or the store does not answer: whoever restarts an ended worker waits ever longer.
func startPatiently(ctx context.Context, c client.Client, o Options, fatal func(error)) (stop func(), err error) {
	logged := false
	for {
		stop, err = start(ctx, c, o, fatal)
		if err != nil && ctx.Err() != nil {
			return nil, errStopped
		}
		if !isUnavailable(err) {
			return stop, err
		}
		if !logged {
			slog.Warn("the worker cannot start yet, and retries", "error", err)
			logged = true
		}
		select {
		case <-ctx.Done():
			return nil, errStopped
		case <-time.After(startRetryDelay):
		}
	}
}

// isUnavailable reports that Temporal or the store does not answer.
func isUnavailable(err error) bool {
	return errors.As(err, new(*serviceerror.Unavailable)) || errors.As(err, new(*serviceerror.DeadlineExceeded)) || store.IsUnavailable(err)
}

// open opens the store, as far as a worker may write to it, and only if the worker can decrypt the data of others.
func open(ctx context.Context, o Options) (*store.Store, error) {
	s, err := store.Open(ctx, o.Store)
	if err != nil {
		return nil, err
	}
	if o.Runtime != "" {
		s.RestrictToRemote(o.Runtime)
	}
	if err := checkPayloadKey(ctx, o.Payloads, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Start starts to serve and returns a function that stops the worker. It fails at once on problems that would otherwise fail later and
// unnoticed: a store that does not open, a namespace without the search attributes. A worker that gets no more work only logs the reason.
func Start(ctx context.Context, c client.Client, o Options) (stop func(), err error) {
	return start(ctx, c, o, func(err error) { slog.Error("the worker gets no more work", "error", err) })
}

// start is Start, and calls fatal when the worker can get no more work: the SDK gives up polling, or the namespace is another one.
func start(ctx context.Context, c client.Client, o Options, fatal func(error)) (stop func(), err error) {
	if o.Payloads == nil {
		o.Payloads = &codec.Codec{}
	}
	store, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	a, disconnect := assemble(c, o, store)
	installation, err := installationFor(ctx, c, o, store)
	if err != nil {
		a.Close()
		disconnect()
		return nil, errors.Join(err, store.Close())
	}
	a.Payloads, a.Installation, a.Epoch = o.Payloads, installation.ID, installation.Epoch
	if o.Polls != nil {
		a.ClockOffset = o.Polls.ClockOffset
	}
	addReadinessChecks(o.Monitor, c, a)
	checkpoints := activities.NewCheckpoints(store, cmp.Or(o.Tasks, &Tasks{}))
	checkpoints.Metrics = a.Metrics
	removePresence := func() {} // nothing to stop yet
	closeAll := func() {
		a.Close()
		if checkpoints.Close() {
			removePresence()
		}
		disconnect()
		_ = store.Close() // no writer is left
	}
	readingCtx, cancelReadings := context.WithCancel(context.Background())
	w, err := newWorker(ctx, c, o, a, fatal, &stopInterceptor{stopCtx: readingCtx}, &workflows.Checkpoints{To: checkpoints})
	var supervisor *supervisor
	if err == nil && o.Runtime == "" { // a remote worker may do none of that
		supervisor = newSupervisor(c, o.Namespace, a, installation, checkpoints, fatal)
		err = supervisor.prepare(ctx, a, o.Payloads)
	}
	if err == nil {
		err = w.Start()
	}
	if err != nil {
		cancelReadings()
		closeAll()
		return nil, fmt.Errorf("start worker: %w", err)
	}
	a.TakeOver()
	endSupervision := func() {}
	if supervisor != nil {
		endSupervision, removePresence = supervisor.start(), supervisor.removePresence
	}
	keysCtx, stopKeys := context.WithCancel(context.Background())
	go refreshPayloadKeys(keysCtx, o.Payloads, store, slog.Default())
	if o.Runtime != "" {
		go watchInstallation(keysCtx, store, installation, fatal)
	}
	stopRollout := o.Deployment.rollout(c, o.Namespace)
	return func() {
		stopRollout()
		stopKeys()
		endSupervision()
		soon := time.AfterFunc(readingStop, cancelReadings)
		w.Stop()
		soon.Stop()
		cancelReadings()
		closeAll()
	}, nil
}

// prepare does what must be done before the first workflow task: it records the key of payloads, starts the installation, and restarts
// workflows that went back.
func (s *supervisor) prepare(ctx context.Context, a *activities.Activities, payloads *codec.Codec) error {
	if err := recordPayloadKey(ctx, payloads, s.store); err != nil {
		return err
	}
	if err := a.StartInstallation(ctx, protocol.StartMode{Adopt: true}); err != nil {
		return err
	}
	return s.examineBeforeStart(ctx)
}

// assemble makes the activities of a worker and the connections that its runtimes share, which are closed after them.
func assemble(c client.Client, o Options, s *store.Store) (a *activities.Activities, disconnect func()) {
	clusters, accounts := &kubernetes.Clusters{}, &ecs.Accounts{}
	secrets := &secret.Worker{
		Environment: secret.Environment{Allowed: o.AllowEnv}, External: o.AllowSecret,
		Kubernetes: secret.Clusters{Client: clusters.Client}, AWS: &secret.SecretsManager{},
	}
	on := custom.Worker{Clusters: clusters, Tasks: accounts, Secrets: secrets, Workflows: activities.UserWorkflows{Client: c}}
	known := factories(clusters, accounts, on)
	maps.Copy(known, o.Factories)
	a = activities.New(s, c, known)
	a.Commands, a.Tasks, a.Roots, a.Sops, a.Runtime = on, o.Tasks, o.Roots, o.Sops, o.Runtime
	secrets.Captured = a.Captured
	return a, func() {
		clusters.Close()
		accounts.Close()
	}
}

// installationFor is the installation of a worker. A remote worker may have no access to the namespace: it trusts the store.
func installationFor(ctx context.Context, c client.Client, o Options, s *store.Store) (protocol.Installation, error) {
	if o.Runtime == "" {
		return join(ctx, c, s, o)
	}
	i, err := s.Installation(ctx)
	if store.IsNotFound(err) {
		return i, nil
	}
	return i, err
}

// pollers adjusts the number of pollers to the load that the server reports: two are too few if the server is far away, and fifty are a
// waste when idle.
func pollers() worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{InitialNumberOfPollers: 2, MinimumNumberOfPollers: 2, MaximumNumberOfPollers: 50})
}

// interceptors are those of every worker, and its own ones.
func interceptors(o Options, own []interceptor.WorkerInterceptor) []interceptor.WorkerInterceptor {
	return append(append(slices.Clone(o.Interceptors), &activities.Deadlines{}, &workflows.Arrivals{}, &workflows.Starts{}, &logs.Activities{}), own...)
}

func newWorker(ctx context.Context, c client.Client, o Options, a *activities.Activities, fatal func(error), own ...interceptor.WorkerInterceptor) (worker.Worker, error) {
	options := worker.Options{
		WorkerStopTimeout: max(o.StopTimeout, readingStop),
		// A reconciliation of hundreds of channels takes milliseconds; on an overloaded machine that can exceed the SDK's limit of one second.
		DeadlockDetectionTimeout: 5 * time.Second,
		Interceptors:             interceptors(o, own),
		DeploymentOptions:        o.Deployment.options(),
		OnFatalError:             fatal,

		MaxConcurrentActivityExecutionSize: activities.MaxConcurrent,
		WorkflowTaskPollerBehavior:         pollers(),
		ActivityTaskPollerBehavior:         pollers(),
	}
	if err := o.Deployment.check(o.Runtime); err != nil {
		return nil, err
	}
	if !o.Tasks.Connected() {
		return nil, errors.New("the client was connected without the DialOption of Options.Tasks")
	}
	if o.Runtime != "" {
		options.DisableWorkflowWorker = true
		w := worker.New(c, protocol.RuntimeTaskQueue(o.Runtime), options)
		registerRuntimeActivities(w, a)
		return w, nil
	}
	if _, err := EnsureSearchAttributes(ctx, c, o.Namespace); err != nil {
		return nil, err
	}
	worker.SetStickyWorkflowCacheSize(cachedWorkflows)
	w := worker.New(c, protocol.TaskQueue, options)
	registerWorkflows(w)
	registerActivities(w, a)
	return w, nil
}
