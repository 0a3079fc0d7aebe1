// Command converge-render makes objects of Helm charts and kustomizations for converge, which starts it when a configuration
// has some: it has the engines of both inside, which most commands do not need. It is not for people.
package main

import (
	"fmt"
	"os"

	"github.com/converge-engine/converge/intent/render"
)

func main() {
	render.Serve()
	fmt.Fprintln(os.Stderr, "converge-render: converge starts this program by itself, for Helm charts and kustomizations")
	os.Exit(2)
}
