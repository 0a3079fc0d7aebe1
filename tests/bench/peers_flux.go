package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/converge-engine/converge/tests/kubetest/controller"
	"github.com/converge-engine/converge/tests/kubetest/flux"
	"github.com/converge-engine/converge/tests/kubetest/public"
)

// fluxKustomize is the kustomize-controller of Flux (make flux), and for each service a Kustomization and the artifact that it
// takes its Deployment from, which is served by this program: a new version is a new artifact.
func fluxKustomize() peerKind {
	return peerKind{flux.Program(), func(ctx context.Context, b *bench, s *stand) ([]*peer, error) {
		for _, kinds := range public.Flux() {
			if err := controller.Define(ctx, s.client, kinds.Path(s.root)); err != nil {
				return nil, err
			}
		}
		on, err := s.at(ctx, "flux")
		if err != nil {
			return nil, err
		}
		source, err := flux.NewSource(ctx, s.client, on.name)
		if err != nil {
			return nil, err
		}
		for _, service := range s.services {
			// Flux has least to do so: it does not wait for what it applied.
			if err := source.Kustomize(ctx, service, nil); err != nil {
				return nil, err
			}
		}
		dir := filepath.Join(b.dir, "flux")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		declare := func(ctx context.Context, service, version string) error {
			return source.Publish(ctx, service, version, map[string]string{"deployment.yaml": deploymentOf(service, version)})
		}
		in := func(setting string, arguments ...string) *peer {
			return &peer{
				name: "Flux kustomize-controller " + public.Flux()[0].Version + setting,
				start: func(log io.Writer) (*controller.Controller, error) {
					return flux.Start(flux.Options{
						Program: flux.Program().Path(s.root), Kubeconfig: s.lab.kubeconfig, Dir: dir, Log: log, Arguments: arguments,
					})
				},
				declare: declare, at: s.client.Resource(deployments).Namespace(on.name), done: available,
			}
		}
		return []*peer{in(""), in(", 20 at a time, its client unlimited", "--concurrent=20", "--kube-api-qps=-1")}, nil
	}}
}
