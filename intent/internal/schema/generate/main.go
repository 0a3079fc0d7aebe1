// Command generate writes the JSON Schema of the configuration; `go generate ./intent/config` runs it.
package main

import (
	"fmt"
	"os"

	"github.com/converge-engine/converge/intent/internal/schema"
)

func main() {
	data, err := schema.Generate()
	if err == nil {
		err = os.WriteFile("converge.schema.json", data, 0o644) //nolint:gosec // for everyone to read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
