package tests

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/tests/internal/stage"
)

// shared is what the tests of this package share.
var shared = stage.New(nil)

func TestMain(m *testing.M) {
	shared.AtOnce = 6 // most of them wait for runtimes that are polled
	os.Exit(shared.Main(m))
}

// world is an application with what these tests ask of it beside.
type world struct{ *stage.World }

// newWorld gives a test an application of its own.
func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{shared.World(t)}
}

// shortRuns is a world of its own whose server wants runs to be short: to end after so many events, or 0 for as many as
// is usual.
func shortRuns(t *testing.T, events int) *world {
	t.Helper()
	return &world{shared.OwnServer(t, events)}
}
