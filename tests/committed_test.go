package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// largestFile, in bytes: the largest recorded history takes less than half of it.
const largestFile = 512 << 10

// What is built, cached or linked to another place of one machine breaks a clone on another.
func TestOnlySourcesAreCommitted(t *testing.T) {
	if _, err := os.Stat(filepath.Join(repository, ".git")); err != nil {
		t.Skip("not a git checkout: nothing tells what is committed")
	}
	listing, err := exec.Command("git", "-C", repository, "ls-files", "-s", "-z").Output()
	require.NoError(t, err)
	files := strings.Split(strings.TrimSuffix(string(listing), "\x00"), "\x00")
	require.Greater(t, len(files), 100)
	for _, file := range files {
		entry, path, _ := strings.Cut(file, "\t")
		mode, _, _ := strings.Cut(entry, " ")
		require.Contains(t, []string{"100644", "100755"}, mode, "%s is no regular file", path)
		data, err := os.ReadFile(filepath.Join(repository, path))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		require.NoError(t, err)
		require.LessOrEqual(t, len(data), largestFile, "%s is larger than a source", path)
		require.True(t, strings.HasSuffix(path, ".png") || !bytes.Contains(data, []byte{0}), "%s is binary", path)
	}
}
