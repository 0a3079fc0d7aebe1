// Package kubelab is the program of tests/kube, as it is built once.
package kubelab

import (
	"errors"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/tests/kubetest/program"
)

// The releases of k8s.io/kubernetes in tests/kube/go.mod and oldest.mod, which the components report as theirs.
const (
	release       = "v1.36.3"
	oldestRelease = "v1.34.5"
)

// Errors of Check.
var (
	ErrNotBuilt = errors.New("no Kubernetes control plane: run make kube-build, ten minutes of a processor once")
	ErrStale    = errors.New("the Kubernetes control plane was built from other sources than tests/kube has now: run make kube-build")

	ErrNoOldest    = errors.New("no Kubernetes control plane of the oldest release: run make kube-oldest, ten minutes of a processor once")
	ErrStaleOldest = errors.New("the oldest Kubernetes control plane was built from other sources than tests/kube has now: run make kube-oldest")
)

// Program is the control plane.
func Program() program.Program {
	p := of(release)
	p.Name, p.NotBuilt, p.Stale = "kubelab", ErrNotBuilt, ErrStale
	return p
}

// Oldest is the control plane of the oldest release that the tests run on.
func Oldest() program.Program {
	p := of(oldestRelease)
	p.Name, p.ModFile, p.NotBuilt, p.Stale = "kubelab-oldest", "oldest.mod", ErrNoOldest, ErrStaleOldest
	return p
}

func of(release string) program.Program {
	number := strings.Split(strings.TrimPrefix(release, "v"), ".")
	const version = "k8s.io/component-base/version."
	return program.Program{
		Module: "tests/kube", Package: ".",
		Flags: fmt.Sprintf("-X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", version, release, number[0], number[1]),
	}
}
