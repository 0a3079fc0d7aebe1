package origin

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/gittest"
)

// testSource is a source that can be changed, for the suite that each kind passes.
type testSource struct {
	name    string                             // as a user writes it
	write   func(t *testing.T, content string) // changes converge.yaml
	remove  func(t *testing.T)                 // makes the source unavailable
	restore func(t *testing.T)                 // makes it available again
}

func TestSources_D8(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) testSource{
		"directory": directorySource, "git": fileSource, "git by http": httpSource, "command": commandSource, "command that writes files": writingSource,
		"artifact": artifactSource,
	} {
		t.Run(name, func(t *testing.T) {
			useTempCache(t)
			testConformance(t, start(t))
		})
	}
}

// testConformance tests what every kind of source has to do.
func testConformance(t *testing.T, k testSource) {
	k.write(t, "one")
	s, err := Parse(k.name)
	require.NoError(t, err)
	require.Equal(t, k.name, s.String())

	first, err := s.Newest(t.Context())
	require.NoError(t, err)
	repeated, err := s.Newest(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, repeated, "nothing changed")
	one, err := s.Fetch(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, first, one.State)
	require.Equal(t, "one", contentOfTree(t, one))
	require.NotEmpty(t, one.Origin.Path)

	k.write(t, "another")
	second, err := s.Newest(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	two, err := s.Fetch(t.Context(), sinceCommit(one.Origin.Commit))
	require.NoError(t, err)
	require.Equal(t, second, two.State)
	require.Equal(t, "another", contentOfTree(t, two))
	require.Equal(t, one.Origin.Path, two.Origin.Path)
	require.Equal(t, one.Dir, two.Dir, "commands of the configuration start in one directory")

	k.remove(t)
	_, err = s.Newest(t.Context())
	require.Error(t, err)
	_, err = s.Fetch(t.Context(), nil)
	require.Error(t, err)
	require.Equal(t, "another", contentOfTree(t, Tree{Dir: fetchedDir(t, k, two.Dir)}), "fetched files stay")
	k.restore(t)
	third, err := s.Newest(t.Context())
	require.NoError(t, err)
	require.Equal(t, second, third)
}

// sinceCommit returns a Since with this commit as the last published one.
func sinceCommit(commit string) Since { return func(string) string { return commit } }

// fetchedDir returns the fetched tree while its source is unavailable; for a directory it is the renamed directory itself.
func fetchedDir(t *testing.T, k testSource, dir string) string {
	t.Helper()
	if filepath.IsAbs(k.name) {
		return dir + ".away"
	}
	return dir
}

func contentOfTree(t *testing.T, tree Tree) string {
	t.Helper()
	require.True(t, filepath.IsAbs(tree.Dir))
	for _, name := range []string{"converge.yaml", printedFile} {
		if data, err := os.ReadFile(filepath.Join(tree.Dir, name)); err == nil {
			return string(data)
		}
	}
	return ""
}

// useTempCache makes a directory of the test the cache for fetched trees.
func useTempCache(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("NETRC", "")
}

// renameAway returns functions that rename a file or directory, and rename it back.
func renameAway(path string) (take, back func(t *testing.T)) {
	return func(t *testing.T) { require.NoError(t, os.Rename(path, path+".away")) },
		func(t *testing.T) { require.NoError(t, os.Rename(path+".away", path)) }
}

func directorySource(t *testing.T) testSource {
	dir := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.Mkdir(dir, 0o700))
	k := testSource{name: dir, write: func(t *testing.T, content string) { writeFile(t, dir, "converge.yaml", content) }}
	k.remove, k.restore = renameAway(dir)
	return k
}

func fileSource(t *testing.T) testSource {
	r := gittest.New(t)
	return gitSource(r, "git::"+r.URL()+"//deploy?ref=main")
}

func httpSource(t *testing.T) testSource {
	r := gittest.New(t)
	return gitSource(r, "git::"+r.Serve(t, nil)+"//deploy")
}

func gitSource(r *gittest.Repo, name string) testSource {
	k := testSource{name: name, write: func(t *testing.T, content string) {
		r.Commit(t, "say "+content, map[string]string{"deploy/converge.yaml": content})
	}}
	k.remove, k.restore = renameAway(r.Dir)
	return k
}

func commandSource(t *testing.T) testSource {
	dir := t.TempDir()
	k := testSource{name: "exec::" + dir + "/print", write: func(t *testing.T, content string) { writeScript(t, dir+"/print", "printf %s "+content) }}
	k.remove, k.restore = renameAway(dir + "/print")
	return k
}

func writingSource(t *testing.T) testSource {
	dir := t.TempDir()
	k := testSource{name: "exec::" + dir + "/write to it", write: func(t *testing.T, content string) {
		writeScript(t, dir+"/write", `[ "$1 $2" = "to it" ] && mkdir "$CONVERGE_OUTPUT/sub" && printf %s `+content+` > "$CONVERGE_OUTPUT/converge.yaml"`)
	}}
	k.remove, k.restore = renameAway(dir + "/write")
	return k
}

func writeScript(t *testing.T, path, text string) {
	t.Helper()
	programtest.Write(t, path+".new", "#!/bin/sh\n"+text+"\n")
	require.NoError(t, os.Rename(path+".new", path))
}

func writeFile(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestNamesOfSources(t *testing.T) {
	useTempCache(t)
	for text, want := range map[string]string{
		"git::https://u:s3cret@github.com/acme/shop.git": "git::https://…@github.com/acme/shop.git: a password or token in it would be visible",
		"git::https://s3cret@github.com/acme/shop.git":   "a password or token in it would be visible",
		"git::http://github.com/acme/shop":               "expected the scheme https, ssh or file",
		"git::ext::sh -c touch":                          "expected the scheme https, ssh or file",
		"git::git@github.com:acme/shop.git":              "not a URL",
		"git::https://github.com/acme/shop//a/../../b":   "the path is invalid",
		"git::https://github.com/acme/shop?depth=1":      "only one parameter is allowed, ref",
		"git::https://github.com/acme/shop?ref=main;x":   "only one parameter is allowed, ref",
		"git::https://github.com/acme/shop?ref=main&x=%": "only one parameter is allowed, ref",
		"git::https://github.com/acme/shop?ref=a&ref=b":  "only one parameter is allowed, ref",
		"git::https://github.com/acme/shop?ref=":         "the parameter ref is empty",
		"git::https://github.com/acme/shop?ref":          "the parameter ref is empty",
		"git::https://github.com/":                       "the path is invalid",
		"git::file://elsewhere/srv/shop":                 "expected the scheme https, ssh or file",
		"https://u:s3cret@github.com/acme/shop":          "https://…@github.com/acme/shop is not a directory; a git repository is named git::https://",
		"git@github.com:acme/shop.git":                   "is not a directory; a git repository is named git::",
		"exec:: ":                                        "exec:: without a command",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
	for text, want := range map[string]repository{
		"git::https://github.com/acme/shop.git//deploy/eu?ref=v1.2": {url: "https://github.com/acme/shop.git", path: "deploy/eu", ref: "v1.2"},
		"git::ssh://git@github.com/acme/shop":                       {url: "ssh://git@github.com/acme/shop"},
		"git::file:///srv/shop.git//deploy/":                        {url: "file:///srv/shop.git", local: "/srv/shop.git", path: "deploy"},
		"git::http://127.0.0.1:8080/shop":                           {url: "http://127.0.0.1:8080/shop"},
	} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		is := *got.(*repository)
		is.name, is.cache = "", ""
		require.Equal(t, want, is, text)
	}
}

// The origin of a tree fetched from a repository equals the origin of a clone.
func TestOriginOfRepositoryEqualsOriginOfClone(t *testing.T) {
	r := repository{url: "https://github.com/acme/shop.git", path: "deploy"}
	require.Equal(t, "github.com/acme/shop//deploy", r.origin())
}

func TestCommitsAreCauses_D6(t *testing.T) {
	useTempCache(t)
	r := gittest.New(t)
	first := r.Commit(t, "Begin\n\nwith a body", map[string]string{"deploy/converge.yaml": "1"})
	r.Commit(t, "Elsewhere", map[string]string{"README": "1"})
	second := r.Commit(t, "Sell\x1b[31m more", map[string]string{"deploy/converge.yaml": "2"})
	third := r.Commit(t, "Sell less", map[string]string{"deploy/converge.yaml": "3"})
	line := func(hash plumbing.Hash, text string) string { return hash.String()[:12] + " Ada: " + text }
	for _, name := range []string{"git::" + r.URL() + "//deploy", "git::" + r.Serve(t, nil) + "//deploy"} {
		s, err := Parse(name)
		require.NoError(t, err)
		tree, err := s.Fetch(t.Context(), sinceCommit(first.String()))
		require.NoError(t, err)
		require.Equal(t, third.String(), tree.Origin.Commit)
		require.Len(t, tree.Causes, 2)
		require.Equal(t, line(third, "Sell less"), tree.Causes[0])
		require.Contains(t, tree.Causes[1], second.String()[:12])
		require.NotContains(t, tree.Causes[1], "\x1b")

		tree, err = s.Fetch(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{line(third, "Sell less")}, tree.Causes, "the first publication")

		tree, err = s.Fetch(t.Context(), sinceCommit(strings.Repeat("0123", 10)))
		require.NoError(t, err)
		require.Len(t, tree.Causes, 3, "all known commits are listed after an unknown one")
	}
}

// subjects lists the subjects of the commits of a tree, newest first; ~ marks those that do not change the configuration.
func subjects(c *protocol.Commits) (out []string) {
	for _, one := range c.All {
		text := one.Subject
		if one.OutsideDir {
			text += "~"
		}
		out = append(out, text)
	}
	return out
}

// All commits since the last published one are listed, including those of merged branches, as far as the history goes: over HTTP,
// from a repository of this machine, and from a work tree.
func TestCommitsSinceTheLastPublication_A20(t *testing.T) {
	useTempCache(t)
	r := gittest.New(t)
	first := r.Commit(t, "Begin", map[string]string{"deploy/converge.yaml": "1"})
	tree, err := r.Worktree()
	require.NoError(t, err)
	require.NoError(t, tree.Checkout(&git.CheckoutOptions{Branch: "refs/heads/side", Create: true}))
	side := r.Commit(t, "Aside", map[string]string{"aside": "1"})
	require.NoError(t, tree.Checkout(&git.CheckoutOptions{Branch: "refs/heads/main"}))
	second := r.Commit(t, "Sell more", map[string]string{"deploy/converge.yaml": "2"})
	r.When = r.When.Add(time.Minute)
	who := &object.Signature{Name: "Ada", Email: "ada@acme.dev", When: r.When}
	_, err = tree.Commit("Merge", &git.CommitOptions{Author: who, Committer: who, AllowEmptyCommits: true, Parents: []plumbing.Hash{second, side}})
	require.NoError(t, err)
	var many []string
	for n := range fetchDepth + 5 {
		many = append([]string{fmt.Sprint("Step ", n) + "~"}, many...)
		r.Commit(t, fmt.Sprint("Step ", n), map[string]string{"README": fmt.Sprint(n)})
	}
	last := r.Commit(t, "Sell less", map[string]string{"deploy/converge.yaml": "3"})
	many = append([]string{"Sell less"}, many...)

	within := filepath.Join(r.Dir, "deploy")
	sources := map[string]func(since string) *protocol.Commits{"work tree": func(since string) *protocol.Commits { return CommitsIn(within, last.String(), since) }}
	for _, name := range []string{"git::" + r.URL() + "//deploy", "git::" + r.Serve(t, nil) + "//deploy"} {
		sources[name] = func(since string) *protocol.Commits {
			s, err := Parse(name)
			require.NoError(t, err)
			tree, err := s.Fetch(t.Context(), sinceCommit(since))
			require.NoError(t, err)
			return tree.Commits
		}
	}
	for name, commits := range sources {
		c := commits(second.String())
		require.Equal(t, protocol.Commits{Commit: last.String(), Since: second.String(), All: c.All}, *c, name)
		require.Equal(t, append(slices.Clone(many), "Merge~", "Aside~"), subjects(c), name)
		require.Equal(t, protocol.Commit{SHA: last.String(), Author: "Ada", At: r.When, Subject: "Sell less"}, c.All[0])

		c = commits("")
		require.Equal(t, append(slices.Clone(many), "Merge~", "Sell more", "Aside~", "Begin"), subjects(c), "%s: the first publication", name)
		require.Equal(t, protocol.Commits{Commit: last.String(), All: c.All}, *c)

		c = commits(strings.Repeat("0123", 10))
		require.Empty(t, c.Since, "%s: all commits are listed after an unknown one", name)
		require.Len(t, c.All, len(many)+4)

		c = commits(last.String())
		require.Empty(t, c.All, name)
		require.Equal(t, last.String(), c.Since)
	}
	require.Equal(t, first.String(), sources["work tree"]("").All[len(many)+3].SHA)
	require.Nil(t, CommitsIn(t.TempDir(), last.String(), ""), "no work tree")
}

// A list with more commits than the limit is cut short, as is one of a shallow history. Both are reported.
func TestListsOfCommitsAreBounded_A20(t *testing.T) {
	r := gittest.New(t)
	r.Commit(t, "Begin", map[string]string{"converge.yaml": "1"})
	head, err := r.Head()
	require.NoError(t, err)
	base, err := r.CommitObject(head.Hash())
	require.NoError(t, err)
	last := base.Hash
	for range protocol.MaxCommits {
		last, err = store(r.Repository, &object.Commit{
			Author: base.Author, Committer: base.Committer, Message: "again", TreeHash: base.TreeHash, ParentHashes: []plumbing.Hash{last},
		})
		require.NoError(t, err)
	}
	newest, err := r.CommitObject(last)
	require.NoError(t, err)
	c := commitsOf(r.Repository, newest, "", "")
	require.Len(t, c.All, protocol.MaxCommits)
	require.Equal(t, cutTooMany, c.Truncated)

	orphan := &object.Commit{Author: base.Author, Committer: base.Committer, Message: "later", TreeHash: base.TreeHash, ParentHashes: []plumbing.Hash{plumbing.NewHash(strings.Repeat("0123", 10))}}
	hash, err := store(r.Repository, orphan)
	require.NoError(t, err)
	newest, err = r.CommitObject(hash)
	require.NoError(t, err)
	c = commitsOf(r.Repository, newest, base.Hash.String(), "")
	require.Equal(t, []string{"later"}, subjects(c))
	require.Equal(t, cutShallow, c.Truncated)
}

func TestCausesAreBounded_D6(t *testing.T) {
	require.Equal(t, []string{"a b"}, Causes([]string{"a\n b"}, false))
	many := strings.Split("abcdefgh", "")
	require.Equal(t, []string{"a", "b", "c", "d", "e", "and 3 more"}, Causes(many, false))
	require.Equal(t, []string{"a", "b", "c", "d", "e", "and more"}, Causes(many, true))
	require.Len(t, []rune(Causes([]string{strings.Repeat("é", 500)}, false)[0]), maxCause)
}

func TestBranchesTagsAndCommits(t *testing.T) {
	useTempCache(t)
	r := gittest.New(t)
	first := r.Commit(t, "one", map[string]string{"converge.yaml": "one"})
	_, err := r.CreateTag("v1", first, &git.CreateTagOptions{Tagger: &object.Signature{Name: "Ada", When: r.When}, Message: "v1"})
	require.NoError(t, err)
	_, err = r.CreateTag("light", first, nil)
	require.NoError(t, err)
	second := r.Commit(t, "two", map[string]string{"converge.yaml": "two"})
	config, err := r.Config()
	require.NoError(t, err)
	config.Raw.Section("uploadpack").SetOption("allowReachableSHA1InWant", "true")
	require.NoError(t, r.SetConfig(config))
	for _, url := range []string{r.URL(), r.Serve(t, nil)} {
		for ref, want := range map[string]plumbing.Hash{"": second, "?ref=main": second, "?ref=v1": first, "?ref=light": first, "?ref=" + first.String(): first} {
			s, err := Parse("git::" + url + ref)
			require.NoError(t, err)
			state, err := s.Newest(t.Context())
			require.NoError(t, err, ref)
			require.Equal(t, want.String(), state, ref)
			tree, err := s.Fetch(t.Context(), nil)
			require.NoError(t, err, "%s %s", url, ref)
			require.Equal(t, want.String(), tree.Origin.Commit)
		}
		s, err := Parse("git::" + url + "?ref=gone")
		require.NoError(t, err)
		_, err = s.Newest(t.Context())
		require.ErrorContains(t, err, "it has no branch or tag gone")
	}
}

func TestCredentialsOfAHostAreSentToItAlone(t *testing.T) {
	useTempCache(t)
	r := gittest.New(t)
	r.Commit(t, "one", map[string]string{"converge.yaml": "one"})
	url := r.Serve(t, func(w http.ResponseWriter, q *http.Request) bool {
		user, password, _ := q.BasicAuth()
		if user != "ada" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you", http.StatusUnauthorized)
		}
		return user != "ada" || password != "s3cret"
	})
	s, err := Parse("git::" + url)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "netrc")
	t.Setenv("NETRC", file)
	for _, text := range []string{"", "machine elsewhere login ada password s3cret", "machine 127.0.0.1 login ada password wrong"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = s.Newest(t.Context())
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "wrong")
	}
	for _, text := range []string{"machine a login b password c\nmachine 127.0.0.1\nlogin ada\npassword s3cret\nmachine z login y password x", "default login ada password s3cret"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err = s.Fetch(t.Context(), nil)
		require.NoError(t, err, text)
	}
}
