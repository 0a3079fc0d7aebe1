package origin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/gittest"
)

const serviceYAML = "apiVersion: converge/v1\nkind: Service\nname: web # ours\ncustom: {env: {PRICE: \"%s\", COLOUR: \"%s\"}}\n"

// newWritableRepo returns a repository that is served and accepts pushes, and its URL.
func newWritableRepo(t *testing.T, before func(http.ResponseWriter, *http.Request) bool) (*gittest.Repo, string) {
	r := gittest.New(t)
	config, err := r.Config()
	require.NoError(t, err)
	config.Raw.Section("http").SetOption("receivepack", "true")
	config.Raw.Section("receive").SetOption("denyCurrentBranch", "ignore")
	require.NoError(t, r.SetConfig(config))
	return r, "git::" + r.Serve(t, before) + "//deploy?ref=main"
}

func setPrice(value string) Edit {
	return Edit{Path: "Service/web.custom.env.PRICE", Value: value, Author: "Ada", Email: "ada@acme.dev", Message: "Sell at " + value}
}

// editor returns a source that can be edited.
func editor(t *testing.T, name string) Editor {
	t.Helper()
	s, err := Parse(name)
	require.NoError(t, err)
	return s.(Editor)
}

// newest returns deploy/converge.yaml in main, and the author and message of the newest commit.
func newest(t *testing.T, r *git.Repository) (text, line string) {
	t.Helper()
	head, err := r.Reference("refs/heads/main", true)
	require.NoError(t, err)
	commit, err := r.CommitObject(head.Hash())
	require.NoError(t, err)
	file, err := commit.File("deploy/converge.yaml")
	require.NoError(t, err)
	text, err = file.Contents()
	require.NoError(t, err)
	return text, fmt.Sprintf("%s <%s>: %s", commit.Author.Name, commit.Author.Email, commit.Message)
}

// An edit is a commit with one changed value, both by a push over HTTP and in a bare repository of this machine.
func TestEditIsACommit_D28(t *testing.T) {
	useTempCache(t)
	r, url := newWritableRepo(t, nil)
	base := r.Commit(t, "begin", map[string]string{"deploy/converge.yaml": fmt.Sprintf(serviceYAML, "1", "red"), "README": "stays", "deploy/run": "x"})
	bare := filepath.Join(t.TempDir(), "bare.git")
	copied, err := git.PlainClone(bare, true, &git.CloneOptions{URL: r.Dir})
	require.NoError(t, err)
	for name, repo := range map[string]*git.Repository{url: r.Repository, "git::file://" + bare + "//deploy": copied} {
		s := editor(t, name)
		checked := ""
		e := setPrice("2")
		e.Check = func(_ context.Context, tree Tree) error {
			data, err := os.ReadFile(filepath.Join(tree.Dir, "converge.yaml"))
			checked = string(data)
			return err
		}
		done, err := s.Edit(t.Context(), e)
		require.NoError(t, err)
		text, line := newest(t, repo)
		require.Equal(t, fmt.Sprintf(serviceYAML, "2", "red"), text)
		require.Equal(t, text, checked)
		require.Equal(t, "Ada <ada@acme.dev>: Sell at 2", line)
		commit, err := repo.CommitObject(plumbing.NewHash(done.Commit))
		require.NoError(t, err)
		require.Equal(t, []plumbing.Hash{base}, commit.ParentHashes)
		require.Equal(t, Edited{File: "converge.yaml", Before: "1", After: "2", Commit: commit.Hash.String()}, done)
		other, err := commit.File("README")
		require.NoError(t, err)
		content, err := other.Contents()
		require.NoError(t, err)
		require.Equal(t, "stays", content)

		done, err = s.Edit(t.Context(), setPrice("2"))
		require.NoError(t, err)
		require.Empty(t, done.Commit, "it has the value already")
		one := "1"
		e = setPrice("3")
		e.Expected = &one
		_, err = s.Edit(t.Context(), e)
		require.ErrorContains(t, err, `Service/web.custom.env.PRICE is "2"; expected "1"`)
		no := errors.New("not at that price")
		e = setPrice("3")
		e.Check = func(context.Context, Tree) error { return no }
		_, err = s.Edit(t.Context(), e)
		require.ErrorIs(t, err, no)
		text, _ = newest(t, repo)
		require.Equal(t, fmt.Sprintf(serviceYAML, "2", "red"), text, "nothing was pushed")
	}
}

// Another client pushes between read and write: its change of another value is kept, and its change of the same value is not overwritten.
func TestConcurrentEdits_D28(t *testing.T) {
	useTempCache(t)
	for _, row := range []struct{ theirs, text, want string }{
		{fmt.Sprintf(serviceYAML, "1", "blue"), fmt.Sprintf(serviceYAML, "2", "blue"), ""},
		{fmt.Sprintf(serviceYAML, "7", "red"), fmt.Sprintf(serviceYAML, "7", "red"), `PRICE is "7"; expected "1"`},
	} {
		var r *gittest.Repo
		pushed := false
		r, url := newWritableRepo(t, func(_ http.ResponseWriter, q *http.Request) bool {
			if !pushed && strings.HasSuffix(q.URL.Path, "/git-receive-pack") && q.Method == http.MethodPost { // ours has begun
				pushed = true
				r.Commit(t, "theirs", map[string]string{"deploy/converge.yaml": row.theirs})
			}
			return false
		})
		r.Commit(t, "begin", map[string]string{"deploy/converge.yaml": fmt.Sprintf(serviceYAML, "1", "red")})
		_, err := editor(t, url).Edit(t.Context(), setPrice("2"))
		if row.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, row.want)
		}
		require.True(t, pushed)
		text, _ := newest(t, r.Repository)
		require.Equal(t, row.text, text)
	}
}

func TestEditRefuses(t *testing.T) {
	useTempCache(t)
	r := gittest.New(t)
	first := r.Commit(t, "begin", map[string]string{"deploy/converge.yaml": fmt.Sprintf(serviceYAML, "1", "red")})
	require.NoError(t, os.Symlink("converge.yaml", filepath.Join(r.Dir, "deploy", "a.converge.yaml")))
	tree, err := r.Worktree()
	require.NoError(t, err)
	_, err = tree.Add("deploy/a.converge.yaml")
	require.NoError(t, err)
	r.Commit(t, "link", nil)
	for name, want := range map[string]string{
		r.URL() + "//deploy":                               "main is checked out in",
		r.Serve(t, nil) + "//deploy?ref=gone":              "it has no branch or tag gone",
		r.Serve(t, nil) + "//deploy":                       "it is a link, and links are not followed",
		r.URL() + "//deploy?ref=gone":                      "it has no branch gone",
		r.Serve(t, nil) + "//deploy?ref=" + first.String(): "is not a branch",
	} {
		_, err := editor(t, "git::"+name).Edit(t.Context(), setPrice("2"))
		require.ErrorContains(t, err, want, name)
	}
	require.NoError(t, os.Remove(filepath.Join(r.Dir, "deploy", "a.converge.yaml")))
	_, err = tree.Add("deploy/a.converge.yaml")
	require.NoError(t, err)
	r.Commit(t, "no link", nil)
	_, err = editor(t, "git::"+r.Serve(t, nil)+"//deploy").Edit(t.Context(), setPrice("2"))
	require.ErrorContains(t, err, "push:", "the server accepts no push")
}
