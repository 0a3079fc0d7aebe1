// Package flux runs the kustomize-controller of Flux as it is released, built once from the module in tests/flux. It takes
// what it applies from ExternalArtifacts, whose content anybody may serve, so no other controller of Flux is needed.
package flux

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/program"
)

// Kustomizations and ExternalArtifacts are the resources that it looks after and takes from.
var (
	Kustomizations    = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	ExternalArtifacts = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "externalartifacts"}
)

// ErrNotBuilt and ErrStale are errors of Program().Check.
var (
	ErrNotBuilt = errors.New("no kustomize-controller of Flux: run make flux, five minutes of a processor once")
	ErrStale    = errors.New("the kustomize-controller of Flux was built from another version than tests/flux names now: run make flux")
)

// Program is the controller.
func Program() program.Program {
	return program.Program{
		Name: "kustomize-controller", Module: "tests/flux", Package: "github.com/fluxcd/kustomize-controller",
		NotBuilt: ErrNotBuilt, Stale: ErrStale,
	}
}

// Options say for whom a controller works.
type Options struct {
	// Program is its path.
	Program string
	// Kubeconfig is the way to the API server: its current context.
	Kubeconfig string
	// Dir is a directory for what it unpacks.
	Dir string
	// Log is where it logs to.
	Log io.Writer
	// Arguments are more flags of its own.
	Arguments []string
}

// Start starts one that looks after all namespaces, with all defaults of its own but that it takes ExternalArtifacts. It
// serves its metrics and its health on some port of the loopback interface.
func Start(o Options) (*controller.Controller, error) {
	arguments := []string{"--feature-gates=ExternalArtifact=true", "--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"}
	process := exec.CommandContext(context.Background(), o.Program, append(arguments, o.Arguments...)...)
	process.Env = append(os.Environ(), "KUBECONFIG="+o.Kubeconfig, "TMPDIR="+o.Dir, "RUNTIME_NAMESPACE=flux-system")
	return controller.Start(process, o.Log)
}
