// Package programtest writes programs that a test runs while others start theirs.
package programtest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Write makes a program of a text, for instance a script of shell, with the folders around it. A process that another test
// starts while the file is open for writing would have it open too, and while it does, who runs the program is told "text file
// busy" (golang.org/issue/22315): none is started meanwhile.
func Write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755)) //nolint:gosec // it is to be executed
	require.NoError(t, os.Chmod(path, 0o755))                   //nolint:gosec // one that was there keeps its mode else
}
