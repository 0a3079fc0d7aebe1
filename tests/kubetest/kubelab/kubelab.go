// Package kubelab is the program of tests/kube, as it is built once.
package kubelab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/tests/kubetest/program"
)

// release is that of k8s.io/kubernetes in tests/kube/go.mod, which the components report as theirs.
const release = "v1.36.3"

// Errors of Check.
var (
	ErrNotBuilt = errors.New("no Kubernetes control plane: run make kube-build, ten minutes of a processor once")
	ErrStale    = errors.New("the Kubernetes control plane was built from other sources than tests/kube has now: run make kube-build")
)

// Program is the control plane.
func Program() program.Program {
	number := strings.Split(strings.TrimPrefix(release, "v"), ".")
	const version = "k8s.io/component-base/version."
	return program.Program{
		Name: "kubelab", Module: "tests/kube", Package: ".",
		Flags:    fmt.Sprintf("-X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", version, release, number[0], number[1]),
		NotBuilt: ErrNotBuilt, Stale: ErrStale,
	}
}
