// Package helm names the helm command, built once from the module in tests/helm.
package helm

import (
	"errors"

	"github.com/converge-engine/converge/tests/kubetest/program"
)

// ErrNotBuilt and ErrStale are errors of Program().Check.
var (
	ErrNotBuilt = errors.New("no helm command: run make helm, three minutes of a processor once")
	ErrStale    = errors.New("the helm command was built from another version than tests/helm names now: run make helm")
)

// Program is the command.
func Program() program.Program {
	return program.Program{Name: "helm", Module: "tests/helm", Package: "helm.sh/helm/v4/cmd/helm", NotBuilt: ErrNotBuilt, Stale: ErrStale}
}
