// Command converge-render renders Helm charts and kustomizations for converge, which starts it when a configuration contains some. It
// links both engines, which most commands do not need. Users do not call it.
package main

import (
	"fmt"
	"os"

	"github.com/converge-engine/converge/intent/render"
)

func main() {
	render.Serve()
	fmt.Fprintln(os.Stderr, "converge-render: converge starts this program to render Helm charts and kustomizations; do not run it directly")
	os.Exit(2)
}
