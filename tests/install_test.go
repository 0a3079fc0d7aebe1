package tests

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
)

// The first way of docs/install.md ends as the page shows. `make packages-test` goes it with the artefacts of a release.
func TestInstallOnALaptopFromThePage(t *testing.T) {
	stage.Long(t, "builds the programs")
	t.Parallel()
	root := t.TempDir()
	d := shared.Dev(t, root)
	_, code := d.Run("converge", "config", "init", "hello")
	require.Zero(t, code)
	d.Dir = filepath.Join(root, "hello")
	d.Start()
	d.Dir = root
	d.RunPage(stage.Only(t, "../docs/install.md", "A laptop"))
}
