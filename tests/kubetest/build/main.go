// Command build builds the Kubernetes control plane for tests, unless it is built: `make kube-build`.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/converge-engine/converge/tests/kubetest/kubelab"
)

func main() {
	root, err := os.Getwd()
	if err == nil {
		err = kubelab.Build(context.Background(), root, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(kubelab.Path(root))
}
