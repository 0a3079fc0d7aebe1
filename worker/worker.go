package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes/kubernetes"
	"github.com/converge-engine/converge/workflows"
)

// Options say what a worker serves.
type Options struct {
	// Store is the URL or directory of the incarnation store.
	Store string
	// Runtime makes this the remote worker of that runtime: it polls runtime/<name> for readings and
	// applies, and nothing else. Empty: the common queue, workflows included.
	Runtime string
	// Namespace is the Temporal namespace, for checking its search attributes.
	Namespace string
	// Deployment is the version that this worker serves, where versions overlap; zero: workers are replaced in place.
	Deployment Deployment
	// Interceptors stand around the workflows and activities of this worker, the first outermost (tracing, tests).
	Interceptors []interceptor.WorkerInterceptor
	// Factories add kinds of runtime to the built-in ones (tests and simulations).
	Factories map[entities.RuntimeKind]activities.Factory
}

// cachedWorkflows is how many services one worker keeps in memory between turns (about 20 KiB
// each); one that was dropped is replayed when something happens to it.
const cachedWorkflows = 20000

// stopTimeout is how long readings and applies may take to end when a worker stops.
const stopTimeout = 5 * time.Second

// Run serves until ctx ends.
func Run(ctx context.Context, c client.Client, o Options) error {
	stop, err := Start(ctx, c, o)
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	return nil
}

// Start begins to serve and returns what stops it. It fails at once on what would otherwise fail
// later and quietly: a store that does not open, a namespace without the search attributes.
func Start(ctx context.Context, c client.Client, o Options) (stop func(), err error) {
	store, err := store.Open(ctx, o.Store)
	if err != nil {
		return nil, err
	}
	clusters := &kubernetes.Clusters{}
	known := factories(clusters)
	maps.Copy(known, o.Factories)
	a := activities.New(store, c, known)
	a.Clusters = clusters
	closeAll := func() {
		a.Close()
		clusters.Close()
		_ = store.Close() // nothing is being written any more
	}
	w, err := newWorker(ctx, c, o, a)
	if err == nil {
		err = w.Start()
	}
	if err != nil {
		closeAll()
		return nil, fmt.Errorf("start worker: %w", err)
	}
	stopRollout := o.Deployment.rollout(c, o.Namespace)
	return func() {
		stopRollout()
		w.Stop()
		closeAll()
	}, nil
}

func newWorker(ctx context.Context, c client.Client, o Options, a *activities.Activities) (worker.Worker, error) {
	options := worker.Options{
		WorkerStopTimeout: stopTimeout,
		// A turn over hundreds of channels takes milliseconds; on a starved machine the SDK's one second is soon over.
		DeadlockDetectionTimeout: 5 * time.Second,
		Interceptors:             append(slices.Clone(o.Interceptors), &workflows.Arrivals{}),
		DeploymentOptions:        o.Deployment.options(),
	}
	if err := o.Deployment.check(o.Runtime); err != nil {
		return nil, err
	}
	if o.Runtime != "" {
		options.DisableWorkflowWorker = true
		w := worker.New(c, protocol.RuntimeTaskQueue(o.Runtime), options)
		registerRuntimeActivities(w, a)
		return w, nil
	}
	if err := EnsureSearchAttributes(ctx, c, o.Namespace); err != nil {
		return nil, err
	}
	worker.SetStickyWorkflowCacheSize(cachedWorkflows)
	w := worker.New(c, protocol.TaskQueue, options)
	registerWorkflows(w)
	registerActivities(w, a)
	return w, nil
}
