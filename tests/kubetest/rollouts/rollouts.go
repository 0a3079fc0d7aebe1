// Package rollouts runs the controller of Argo Rollouts as it is released, built once from the module in tests/rollouts. It
// looks after the Rollouts of a cluster or of one namespace, and takes part in nothing else.
package rollouts

import (
	"context"
	"errors"
	"io"
	"os/exec"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/program"
)

// ErrNotBuilt and ErrStale are errors of Program().Check.
var (
	ErrNotBuilt = errors.New("no controller of Argo Rollouts: run make rollouts, five minutes of a processor once")
	ErrStale    = errors.New("the controller of Argo Rollouts was built from another version than tests/rollouts names now: run make rollouts")
)

// Resource is that of Rollouts.
var Resource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}

// Program is the controller.
func Program() program.Program {
	return program.Program{
		Name: "rollouts-controller", Module: "tests/rollouts", Package: "github.com/argoproj/argo-rollouts/cmd/rollouts-controller",
		NotBuilt: ErrNotBuilt, Stale: ErrStale,
	}
}

// Options say for whom a controller works.
type Options struct {
	// Program is its path.
	Program string
	// Kubeconfig is the way to the API server, and Context that of it which counts; empty: the current one.
	Kubeconfig, Context string
	// Namespace is the only one that it looks after; empty: all.
	Namespace string
	// Log is where it logs to.
	Log io.Writer
	// Arguments are more flags of its own.
	Arguments []string
}

// Start starts one, with all defaults of its own but two. It does not wait to be elected, since there is no other. And it
// serves neither metrics nor health: it can do so on all addresses of the machine only, or, with a port that cannot be, on
// none, of which it makes a line of its log.
func Start(o Options) (*controller.Controller, error) {
	arguments := []string{"--kubeconfig", o.Kubeconfig, "--leader-elect=false", "--metricsPort=-1", "--healthzPort=-1"}
	if o.Context != "" {
		arguments = append(arguments, "--context", o.Context)
	}
	if o.Namespace != "" {
		arguments = append(arguments, "--namespaced", "--namespace", o.Namespace)
	}
	return controller.Start(exec.CommandContext(context.Background(), o.Program, append(arguments, o.Arguments...)...), o.Log)
}
