// Freeze keeps the recorded histories of a version that is being released from being changed: `make freeze-histories`.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/converge-engine/converge/tests/internal/histories"
)

func main() {
	added, err := histories.Freeze("tests/testdata/histories")
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case len(added) == 0:
		fmt.Println("nothing to freeze: all that is recorded is frozen")
	default:
		fmt.Println("frozen:", strings.Join(added, ", "))
	}
}
