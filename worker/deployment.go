package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/worker/deployment"
)

// Deployment names a version of the workers, in Temporal's terms a build of a worker deployment. Workflows are pinned to the version with
// which their run started, so that workers of several versions can serve in parallel.
type Deployment struct {
	Name, Build string
	// SetCurrent makes this build the current one of the deployment once it serves.
	SetCurrent bool
	// Wave is how many workflows of other versions are woken per second; 0 is 50.
	Wave int
	// PollTimeout is how long workers may be silent before they count as gone. 0 fits every server unless it is configured to answer polls in
	// less than a minute.
	PollTimeout time.Duration
}

func (d Deployment) versioned() bool { return d.Name != "" || d.Build != "" }

func (d Deployment) version() worker.WorkerDeploymentVersion {
	return worker.WorkerDeploymentVersion{DeploymentName: d.Name, BuildID: d.Build}
}

// check refuses names that no worker could serve under.
func (d Deployment) check(runtime string) error {
	switch {
	case !d.versioned() && d.SetCurrent:
		return errors.New("a version needs a deployment and a build to become current; expected both names")
	case !d.versioned():
		return nil
	case d.Name == "" || d.Build == "":
		return errors.New("a version has a deployment and a build; expected both names or neither")
	case runtime != "":
		return errors.New("a remote worker serves all versions and has none itself; omit its deployment and build")
	}
	return nil
}

func (d Deployment) options() worker.DeploymentOptions {
	if !d.versioned() {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{
		UseVersioning: true, Version: d.version(), DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}
}

// rollout moves the workflows of other versions to this one while this one is current, until it is stopped.
func (d Deployment) rollout(c client.Client, namespace string) (stop func()) {
	if !d.versioned() {
		return func() {}
	}
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	r := deployment.Rollout{
		Namespace: deployment.Namespace{Client: c, Name: namespace, PollTimeout: d.PollTimeout}, Version: d.version(), SetCurrent: d.SetCurrent,
		Wave: d.Wave, Log: slog.Default(),
	}
	if r.Wave == 0 {
		r.Wave = 50
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}
