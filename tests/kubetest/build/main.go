// Command build makes what tests of Kubernetes need, unless it is there: kubelab, the control plane, and manifests, the
// public sets of manifests.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/converge-engine/converge/tests/kubetest/kubelab"
	"github.com/converge-engine/converge/tests/kubetest/public"
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
	switch {
	case len(args) == 1 && args[0] == "kubelab":
		fmt.Println(kubelab.Path(root))
		return kubelab.Build(ctx, root, os.Stderr)
	case len(args) == 1 && args[0] == "manifests":
		for _, set := range []public.Set{public.Manifests(), public.Chart()} {
			fmt.Println(set.Path(root))
			if err := set.Fetch(ctx, root); err != nil {
				return err
			}
		}
		return nil
	default:
		return errors.New("usage: build kubelab|manifests, in the root of the module")
	}
}
