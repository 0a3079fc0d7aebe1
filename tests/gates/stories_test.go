// Package gates tells stories of every gate and every way back against a real Temporal server: testdata has one
// archive for each, which tests/internal/story plays.
package gates

import (
	"os"
	"strings"
	"testing"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/internal/story"
)

// shared is what the stories share: a server and a worker.
var shared = stage.New(nil)

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// Every story that testdata tells (A5, A10, A13–A24, C10, D13–D22). One whose first line says "short runs" has a server
// of its own, on which workflows end their runs after few events.
func TestStories(t *testing.T) {
	t.Parallel()
	for name, archive := range story.Load(t, "testdata") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := (*stage.World)(nil)
			if strings.HasPrefix(string(archive.Comment), "short runs") {
				w = shared.OwnServer(t, 60)
			} else {
				w = shared.World(t)
			}
			story.New(w).Play(archive)
		})
	}
}
