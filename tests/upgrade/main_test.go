// Package upgrade replaces workers by those of another version while services live: side by side, with workflows pinned
// and moved in waves, and with the old version gone.
package upgrade

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/tests/internal/stage"
)

// shared is what the tests of this package share.
var shared = stage.New(nil)

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
