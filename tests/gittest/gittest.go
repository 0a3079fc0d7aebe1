// Package gittest makes git repositories for tests, and serves them.
package gittest

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"
)

// Repo is a git repository that the test commits to, with a work tree.
type Repo struct {
	*git.Repository
	Dir  string
	When time.Time // of the last commit
}

// New makes an empty one, called shop.git, whose branch is main.
func New(t *testing.T) *Repo {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shop.git")
	made, err := git.PlainInitWithOptions(dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: "refs/heads/main"}})
	require.NoError(t, err)
	return &Repo{made, dir, time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
}

// URL is that of the repository on this machine.
func (r *Repo) URL() string { return "file://" + filepath.ToSlash(r.Dir) }

// Commit has Ada write and commit files, by their names, and returns the commit.
func (r *Repo) Commit(t *testing.T, message string, files map[string]string) plumbing.Hash {
	t.Helper()
	tree, err := r.Worktree()
	require.NoError(t, err)
	for name, content := range files {
		path := filepath.Join(r.Dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err = tree.Add(name)
		require.NoError(t, err)
	}
	r.When = r.When.Add(time.Minute)
	who := &object.Signature{Name: "Ada", Email: "ada@acme.dev", When: r.When}
	hash, err := tree.Commit(message, &git.CommitOptions{Author: who, Committer: who, AllowEmptyCommits: true})
	require.NoError(t, err)
	return hash
}

// Serve serves the repository by HTTP, as git's own server does, and returns its URL. before is asked first, if there is one, and
// says whether it answered. Without git's server the test is skipped.
func (r *Repo) Serve(t *testing.T, before func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	if _, missing := os.Stat(backend); err != nil || missing != nil {
		t.Skip("git has no http-backend here")
	}
	handler := &cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(r.Dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if before == nil || !before(w, q) {
			handler.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/" + filepath.Base(r.Dir)
}
