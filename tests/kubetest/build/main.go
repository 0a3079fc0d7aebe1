// Command build makes what tests of Kubernetes and the benchmark need, unless it is there: kubelab, the control plane, oldest, the same of the
// oldest Kubernetes that is supported, rollouts, the controller of Argo Rollouts, flux, that of Flux, helm, the command, manifests, the public sets
// of manifests, and applications, those of the long form of tests/applications.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/converge-engine/converge/tests/kubetest/flux"
	"github.com/converge-engine/converge/tests/kubetest/helm"
	"github.com/converge-engine/converge/tests/kubetest/kubelab"
	"github.com/converge-engine/converge/tests/kubetest/program"
	"github.com/converge-engine/converge/tests/kubetest/public"
	"github.com/converge-engine/converge/tests/kubetest/rollouts"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return errUsage
	}
	switch args[0] {
	case "kubelab":
		return build(ctx, root, kubelab.Program())
	case "oldest":
		return build(ctx, root, kubelab.Oldest())
	case "rollouts":
		return errors.Join(build(ctx, root, rollouts.Program()), fetch(ctx, root, public.Rollouts()))
	case "flux":
		kinds := public.Flux()
		return errors.Join(build(ctx, root, flux.Program()), fetch(ctx, root, kinds[:]...))
	case "helm":
		return build(ctx, root, helm.Program())
	case "manifests":
		short, _ := public.Applications()
		hooked := public.ChartWithHooks()
		return fetch(ctx, root, append(append(public.SetsOf(short), hooked[:]...), public.Manifests(), public.Chart(), public.Rollouts())...)
	case "applications":
		short, long := public.Applications()
		return fetch(ctx, root, append(public.SetsOf(short), public.SetsOf(long)...)...)
	default:
		return errUsage
	}
}

var errUsage = errors.New("usage: build kubelab|oldest|rollouts|flux|helm|manifests|applications, in the root of the module")

func build(ctx context.Context, root string, p program.Program) error {
	fmt.Println(p.Path(root))
	return p.Build(ctx, root, os.Stderr)
}

func fetch(ctx context.Context, root string, sets ...public.Set) error {
	for _, set := range sets {
		fmt.Println(set.Path(root))
		if err := set.Fetch(ctx, root); err != nil {
			return err
		}
	}
	return nil
}
