// Package gates tells stories of every gate and every rollback against a real Temporal server: testdata has one
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

// Every story that testdata tells; the first line of each has the requirements that it shows. One that says "on short
// runs" there has a server of its own, on which workflows end their runs after few events.
func TestStories(t *testing.T) {
	t.Parallel()
	for name, archive := range story.Load(t, "testdata") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := (*stage.World)(nil)
			if title, _, _ := strings.Cut(string(archive.Comment), "\n"); strings.Contains(title, "on short runs") {
				w = shared.OwnServer(t, 60)
			} else {
				w = shared.World(t)
			}
			story.New(w).Play(archive)
		})
	}
}
