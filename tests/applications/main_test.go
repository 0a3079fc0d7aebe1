// Package applications_test takes well-known public applications through their life on a real Kubernetes API server, with their files as
// they are published: released, upgraded, edited by hand, rolled back and deleted. docs/kubernetes.md has the table of them.
package applications_test

import (
	"os"
	"testing"

	"github.com/converge-engine/converge/tests/internal/stage"
)

// shared is what the tests of this package share.
var shared = stage.New(nil)

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
