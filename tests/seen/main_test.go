// Package seen looks at running workers from outside, as those do who are called when something is wrong: their metrics,
// their health, their traces, their logs, and what `converge admin doctor` says.
package seen

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
	os.Exit(shared.Main(m))
}
