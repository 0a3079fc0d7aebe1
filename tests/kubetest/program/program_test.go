package program

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	p := Program{Name: "lab", Module: "tests/lab", Package: ".", NotBuilt: errors.New("not built"), Stale: errors.New("stale")}
	write := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	source := filepath.Join(p.sources(root), "agent", "agent.go")
	write(source, "package agent")
	require.ErrorIs(t, p.Check(root), p.NotBuilt)

	digest, err := p.digest(root)
	require.NoError(t, err)
	write(p.digestPath(root), digest)
	require.ErrorIs(t, p.Check(root), p.NotBuilt, "a digest alone is no program")
	write(p.Path(root), "")
	require.NoError(t, p.Check(root))

	write(filepath.Join(p.sources(root), "agent", "agent_test.go"), "package agent")
	require.NoError(t, p.Check(root), "tests are not built")
	write(source, "package agent // changed")
	require.ErrorIs(t, p.Check(root), p.Stale)
	write(source, "package agent")
	require.NoError(t, p.Check(root))
	require.NoError(t, os.Rename(source, source+".go"))
	require.ErrorIs(t, p.Check(root), p.Stale, "renamed")
	require.NoError(t, os.Rename(source+".go", source))

	write(filepath.Join(p.sources(root), "other.mod"), "module lab")
	require.NoError(t, p.Check(root), "of another program")
	p.ModFile = "other.mod"
	require.ErrorIs(t, p.Check(root), p.Stale)
}
