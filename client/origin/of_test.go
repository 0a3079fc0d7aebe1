package origin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

func TestRepositoryOf(t *testing.T) {
	for remote, want := range map[string]string{
		"https://github.com/acme/shop.git":          "github.com/acme/shop",
		"https://user:secret@github.com/acme/shop":  "github.com/acme/shop",
		"ssh://git@git.acme.dev:2222/acme/shop.git": "git.acme.dev/acme/shop",
		"git@github.com:acme/shop.git":              "github.com/acme/shop",
		"github.com:acme/shop/":                     "github.com/acme/shop",
		"/srv/git/shop.git":                         "",
		"../shop":                                   "",
		"file:///srv/git/shop.git":                  "",
	} {
		require.Equal(t, want, repositoryOf(remote), remote)
	}
}

func TestOfDirectory(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, protocol.Origin{Path: dir}, Of(t.Context(), dir), "no repository")

	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	deploy := filepath.Join(dir, "deploy", "shop")
	require.NoError(t, os.MkdirAll(deploy, 0o755))
	file := filepath.Join(deploy, "converge.yaml")
	require.NoError(t, os.WriteFile(file, []byte("a"), 0o600))
	git("init", "-q")
	require.Equal(t, protocol.Origin{Path: deploy, Dirty: true}, Of(t.Context(), deploy), "nothing committed")

	git("add", ".")
	git("commit", "-q", "-m", "a")
	git("remote", "add", "origin", "https://token@git.acme.dev/acme/mono.git")
	origin := Of(t.Context(), deploy)
	require.Len(t, origin.Commit, 40)
	require.Equal(t, protocol.Origin{Path: "git.acme.dev/acme/mono//deploy/shop", Commit: origin.Commit}, origin)
	require.Equal(t, "git.acme.dev/acme/mono//", Of(t.Context(), dir).Path)

	require.NoError(t, os.MkdirAll(filepath.Join(deploy, ".converge"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(deploy, ".converge", "db"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "elsewhere"), nil, 0o600))
	require.False(t, Of(t.Context(), deploy).Dirty, "only the directory counts, without our own state")
	require.NoError(t, os.WriteFile(file, []byte("b"), 0o600))
	require.True(t, Of(t.Context(), deploy).Dirty)
}

// A repository whose files hang, such as a named pipe that has no writer, delays one reading and collects no goroutines.
func TestOfDirectoryThatHangs(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput()
	require.NoError(t, err, string(out))
	head := filepath.Join(dir, ".git", "HEAD")
	require.NoError(t, os.Remove(head))
	require.NoError(t, syscall.Mkfifo(head, 0o600))
	t.Cleanup(func() { // the reading ends
		pipe, err := os.OpenFile(head, os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, pipe.Close())
	})
	before := runtime.NumGoroutine()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // the deadline is what is tested
		require.Equal(t, protocol.Origin{Path: dir}, Of(ctx, dir))
		cancel()
	}
	require.Less(t, runtime.NumGoroutine(), before+10)
}
