// Package security tries to get past gates: by configuration, and by whoever can reach the workflows. Nobody does, and the
// audit trail says what was tried.
package security

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
	shared.AtOnce = 6 // most of them wait for supervision and timers of the product
	os.Exit(shared.Main(m))
}
