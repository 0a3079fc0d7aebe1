// Package public fetches sets of manifests that others wrote and published, for tests of what real ones are like. They
// come through the Go module proxy, whose checksums Go verifies, and are held to the sums below as well.
package public

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Set is a folder of a published module, or a single file of it.
type Set struct {
	// Name is that of the folder that it is copied to.
	Name string
	// Module and Version say where it is from, Sum is the module's in the form of a go.sum, Folder what is taken of it: a folder, or a file
	// with the suffix .yaml, which is alone in its folder then.
	Module, Version, Sum, Folder string
}

// Manifests are 56 objects of a dozen kinds and 3 CustomResourceDefinitions in one file, install.yaml, without a
// namespace, and the kustomizations that it is made from, cluster-install being the same. No webhooks, no Jobs. One
// Deployment, argocd-redis, waits for a Secret argocd-redis with a key auth: an init container makes it, and those are
// only played in a kubelab.
func Manifests() Set {
	return Set{
		Name: "argo-cd", Module: "github.com/argoproj/argo-cd/v3", Version: "v3.4.12",
		Sum: "h1:kRvr4+C5cG65+MVaNjlefGWN+4Af3JZrfpDvu0o7SZQ=", Folder: "manifests",
	}
}

// Chart is a Helm chart. Its value apiService.create should be false: an API without a server behind it hinders the
// discovery of all others.
func Chart() Set {
	return Set{
		Name: "metrics-server", Module: "sigs.k8s.io/metrics-server", Version: "v0.9.0",
		Sum: "h1:nlqqZ2H0Xfko8eJC/1qaNVVT17hu4rxndkOi22KTZ4w=", Folder: "charts/metrics-server",
	}
}

// Rollouts are the CustomResourceDefinitions of Argo Rollouts. Its controller is built from tests/rollouts (rollouts.Program).
func Rollouts() Set {
	return Set{
		Name: "argo-rollouts", Module: "github.com/argoproj/argo-rollouts", Version: "v1.10.1",
		Sum: "h1:6oyVPGiHHxu3ixkT6mngemh88HLPDoTX1IwO6KNR1Y4=", Folder: "manifests/crds",
	}
}

// Flux are the CustomResourceDefinitions of Flux' kustomize-controller, and of what it takes its manifests from. It is built from
// tests/flux (flux.Program).
func Flux() [2]Set {
	return [2]Set{
		{
			Name: "flux-kustomize", Module: "github.com/fluxcd/kustomize-controller", Version: "v1.9.6",
			Sum: "h1:XB+G3A0mky0j5uVHZWv4oSlS2RvZBoNIUhstIvY0JKE=", Folder: "config/crd/bases",
		},
		{
			Name: "flux-source", Module: "github.com/fluxcd/source-controller", Version: "v1.9.2",
			Sum: "h1:dPaSvA6Gd/YYsVCOALG8hq8ADA23fXK36yFzbj8tv/o=", Folder: "config/crd/bases",
		},
	}
}

// ChartWithHooks is a Helm chart in two versions: 40 objects with its six CustomResourceDefinitions (crds.enabled), webhooks for its own
// kinds alone, and hooks after the installation: a ServiceAccount, a Role, its binding, and a Job. It lies there as it is before a release,
// with v0.0.0 for its version.
func ChartWithHooks() [2]Set {
	of := func(version, sum string) Set {
		return Set{Name: "cert-manager", Module: "github.com/cert-manager/cert-manager", Version: version, Sum: sum, Folder: "deploy/charts/cert-manager"}
	}
	return [2]Set{
		of("v1.20.0", "h1:czZamsFJ1YdKPhpv+SopJZN9t3W68vQBnFYUevSHGqY="), of("v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68="),
	}
}

// Path is where the set is, or will be, of the module in root.
func (s Set) Path(root string) string {
	return filepath.Join(root, ".cache", "manifests", s.Name+"@"+s.Version)
}

// Fetch copies the set to its path, unless it is there.
func (s Set) Fetch(ctx context.Context, root string) error {
	if _, err := os.Stat(s.Path(root)); err == nil {
		return nil
	}
	dir, err := s.download(ctx)
	if err != nil {
		return fmt.Errorf("download %s@%s: %w", s.Module, s.Version, err)
	}
	// Renamed when whole, so that a set that is there is complete.
	whole := s.Path(root) + ".new"
	if err := errors.Join(os.RemoveAll(whole), copyTo(whole, filepath.Join(dir, filepath.FromSlash(s.Folder)))); err != nil {
		return err
	}
	return os.Rename(whole, s.Path(root))
}

// copyTo copies a folder, or a file into a folder.
func copyTo(folder, from string) error {
	if filepath.Ext(from) != ".yaml" {
		return os.CopyFS(folder, os.DirFS(from))
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, filepath.Base(from)), data, 0o600))
}

// download returns the module's folder in Go's cache.
func (s Set) download(ctx context.Context) (string, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", s.Module+"@"+s.Version)
	command.Stderr = &stderr
	output, failure := command.Output()
	var got struct{ Dir, Sum, Error string }
	if err := json.Unmarshal(output, &got); err != nil {
		return "", errors.Join(failure, errors.New(stderr.String()))
	}
	if got.Error != "" {
		return "", errors.New(got.Error)
	}
	if got.Sum != s.Sum {
		return "", fmt.Errorf("its sum is %s, want %s", got.Sum, s.Sum)
	}
	return got.Dir, nil
}
