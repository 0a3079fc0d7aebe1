package kubelab

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(path, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	source := filepath.Join(sources(root), "agent", "agent.go")
	write(source, "package agent")
	require.ErrorIs(t, Check(root), ErrNotBuilt)

	digest, err := digest(sources(root))
	require.NoError(t, err)
	write(digestPath(root), digest)
	require.ErrorIs(t, Check(root), ErrNotBuilt, "a digest alone is no program")
	write(Path(root), "")
	require.NoError(t, Check(root))

	write(filepath.Join(sources(root), "agent", "agent_test.go"), "package agent")
	require.NoError(t, Check(root), "tests are not built")
	write(source, "package agent // changed")
	require.ErrorIs(t, Check(root), ErrStale)
	write(source, "package agent")
	require.NoError(t, Check(root))
	require.NoError(t, os.Rename(source, source+".go"))
	require.ErrorIs(t, Check(root), ErrStale, "renamed")
}
