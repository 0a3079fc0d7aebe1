// Package operators does to running services what operators do: it cancels their workflows, and holds up what comes
// between worker and server. Whatever is done, each declared service is managed again soon, and nothing is applied twice.
package operators

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// shared is what the tests of this package share.
var shared = stage.New(nil)

func TestMain(m *testing.M) {
	custom.RunWatchdog()
	if playServer(os.Args) {
		return
	}
	shared.AtOnce = 8 // most of them wait for timeouts of the product
	os.Exit(shared.Main(m))
}
