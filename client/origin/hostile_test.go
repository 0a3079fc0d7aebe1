package origin

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/gittest"
)

// repo is a repository into which a test can write any object.
type repo struct{ *gittest.Repo }

// store writes an object into a repository unchanged.
func (r repo) store(t *testing.T, encode func(plumbing.EncodedObject) error) plumbing.Hash {
	t.Helper()
	encoded := r.Storer.NewEncodedObject()
	require.NoError(t, encode(encoded))
	hash, err := r.Storer.SetEncodedObject(encoded)
	require.NoError(t, err)
	return hash
}

func (r repo) blob(t *testing.T, content string) plumbing.Hash {
	t.Helper()
	return r.store(t, func(o plumbing.EncodedObject) error {
		o.SetType(plumbing.BlobObject)
		w, err := o.Writer()
		require.NoError(t, err)
		_, err = io.WriteString(w, content)
		require.NoError(t, err)
		return w.Close()
	})
}

// tree encodes a tree itself, because go-git writes no tree that git would refuse.
func (r repo) tree(t *testing.T, entries ...object.TreeEntry) plumbing.Hash {
	t.Helper()
	return r.store(t, func(o plumbing.EncodedObject) error {
		o.SetType(plumbing.TreeObject)
		w, err := o.Writer()
		require.NoError(t, err)
		for _, e := range entries {
			mode := strings.TrimLeft(e.Mode.String(), "0")
			_, err = io.WriteString(w, mode+" "+e.Name+"\x00"+string(e.Hash[:]))
			require.NoError(t, err)
		}
		return w.Close()
	})
}

// push makes a tree the newest state of main.
func (r repo) push(t *testing.T, tree plumbing.Hash) {
	t.Helper()
	who := object.Signature{Name: "Mallory", When: r.When}
	hash := r.store(t, (&object.Commit{Author: who, Committer: who, Message: "look", TreeHash: tree}).Encode)
	require.NoError(t, r.Storer.SetReference(plumbing.NewHashReference("refs/heads/main", hash)))
}

// No tree can make the fetch write outside of its directory, and an incomplete state is refused.
func TestHostileTrees_G4(t *testing.T) {
	useTempCache(t)
	r := repo{gittest.New(t)}
	r.Commit(t, "good", map[string]string{"converge.yaml": "good"})
	file := func(name, content string) object.TreeEntry {
		return object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: r.blob(t, content)}
	}
	link := func(name, target string) object.TreeEntry {
		return object.TreeEntry{Name: name, Mode: filemode.Symlink, Hash: r.blob(t, target)}
	}
	dir := func(name string, entries ...object.TreeEntry) object.TreeEntry {
		return object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: r.tree(t, entries...)}
	}
	deep := dir("a", file("converge.yaml", "x"))
	for range 12 { // 8^12 files in 13 objects
		var same []object.TreeEntry
		for _, name := range strings.Split("abcdefgh", "") {
			same = append(same, object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: deep.Hash})
		}
		deep = dir("a", same...)
	}
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte("s3cret"), 0o600))
	good := file("converge.yaml", "fine")
	for name, tt := range map[string]struct {
		entries []object.TreeEntry
		want    string // error; empty: it is fetched
	}{
		"link out":                {[]object.TreeEntry{good, link("out", "../out")}, "out is a link to a target outside the repository"},
		"link to a file":          {[]object.TreeEntry{good, link("out", outside)}, "outside the repository"},
		"link as configuration":   {[]object.TreeEntry{link("converge.yaml", outside)}, "outside the repository"},
		"link through another":    {[]object.TreeEntry{good, dir("sub", link("up", "..")), link("x", "sub/up/../secret")}, "outside the repository"},
		"link inside":             {[]object.TreeEntry{good, dir("sub", link("up", "../converge.yaml"))}, ""},
		"directory behind a link": {[]object.TreeEntry{link("a", "."), dir("a", link("l", "../x")), good}, "exist"},
		"two of a name":           {[]object.TreeEntry{good, good}, "exist"},
		"submodule":               {[]object.TreeEntry{good, {Name: "sub", Mode: filemode.Submodule, Hash: good.Hash}}, "sub is a submodule, which is not supported"},
		"large file":              {[]object.TreeEntry{good, file("chart.tgz", largeFileMark+"v1\noid sha256:12\nsize 3\n")}, "chart.tgz is stored in Git LFS, which is not supported"},
		"dot dot":                 {[]object.TreeEntry{good, dir("..", file("x", ""))}, ".."},
		"slash":                   {[]object.TreeEntry{good, file("a/../../x", "")}, "a/../../x"},
		"git directory":           {[]object.TreeEntry{good, dir(".GIT", file("config", ""))}, ".GIT"},
		"many files":              {[]object.TreeEntry{good, deep}, "it has more than 50000 files"},
		"no blob":                 {[]object.TreeEntry{good, {Name: "x", Mode: filemode.Regular, Hash: plumbing.NewHash("12")}}, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			r.push(t, r.tree(t, tt.entries...))
			s, err := Parse("git::" + r.URL())
			require.NoError(t, err)
			tree, err := s.Fetch(t.Context(), nil)
			if tt.want == "" {
				require.NoError(t, err)
				require.Equal(t, "fine", contentOfTree(t, tree))
				return
			}
			require.ErrorContains(t, err, tt.want)
			left, err := filepath.Glob(filepath.Join(string(s.(*repository).cache), treePrefix+"*"))
			require.NoError(t, err)
			require.LessOrEqual(t, len(left), 1, "an incomplete fetch is not kept")
		})
	}
}

// Unsupported files outside of the configuration's directory are ignored.
func TestOnlyThePathIsFetched(t *testing.T) {
	useTempCache(t)
	r := repo{gittest.New(t)}
	r.Commit(t, "begin", map[string]string{"converge.yaml": ""})
	entry := func(name string, mode filemode.FileMode, hash plumbing.Hash) object.TreeEntry {
		return object.TreeEntry{Name: name, Mode: mode, Hash: hash}
	}
	in := r.tree(t, entry("converge.yaml", filemode.Executable, r.blob(t, "fine")))
	r.push(t, r.tree(t,
		entry("deploy", filemode.Dir, in), entry("film", filemode.Regular, r.blob(t, largeFileMark+"v1")),
		entry("out", filemode.Symlink, r.blob(t, "/etc")), entry("sub", filemode.Submodule, in),
	))
	s, err := Parse("git::" + r.URL() + "//deploy")
	require.NoError(t, err)
	tree, err := s.Fetch(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "fine", contentOfTree(t, tree))
	info, err := os.Stat(filepath.Join(tree.Dir, "converge.yaml"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "executables stay executable")
	left, err := os.ReadDir(tree.Root)
	require.NoError(t, err)
	require.Len(t, left, 1)

	for _, path := range []string{"out", "gone", "film"} {
		s, err = Parse("git::" + r.URL() + "//" + path)
		require.NoError(t, err)
		_, err = s.Fetch(t.Context(), nil)
		require.Error(t, err, path)
	}
}

// No hooks and filters of a repository run, and no programs that its configuration names.
func TestNothingOfARepositoryIsRun_G4(t *testing.T) {
	useTempCache(t)
	r := repo{gittest.New(t)}
	mark := filepath.Join(t.TempDir(), "ran")
	r.Commit(t, "begin", map[string]string{"converge.yaml": "fine", ".gitattributes": "* filter=evil\n"})
	for _, hook := range []string{"post-checkout", "post-merge", "reference-transaction", "fsmonitor-watchman"} {
		writeFile(t, r.Dir, ".git/hooks/"+hook, "")
		writeScript(t, filepath.Join(r.Dir, ".git", "hooks", hook), "touch "+mark)
	}
	config, err := r.Config()
	require.NoError(t, err)
	config.Raw.Section("core").SetOption("fsmonitor", "touch "+mark)
	config.Raw.Section("core").SetOption("sshCommand", "touch "+mark)
	config.Raw.Section("filter").Subsection("evil").SetOption("smudge", "touch "+mark)
	require.NoError(t, r.SetConfig(config))
	s, err := Parse("git::" + r.URL())
	require.NoError(t, err)
	tree, err := s.Fetch(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "fine", contentOfTree(t, tree))
	require.NoFileExists(t, mark)
}

func TestDownloadsAreBounded_G6(t *testing.T) {
	fs := &bounded{Filesystem: osfs.New(t.TempDir()), limit: 10}
	file, err := fs.TempFile("", "pack")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, 10))
	require.NoError(t, err)
	other, err := fs.Create("index")
	require.NoError(t, err)
	_, err = other.Write([]byte("x"))
	require.ErrorIs(t, err, errTooLarge)

	_, err = io.ReadAll(&boundedBody{io.NopCloser(strings.NewReader("0123456789")), 10})
	require.NoError(t, err)
	_, err = io.ReadAll(&boundedBody{io.NopCloser(strings.NewReader("0123456789x")), 10})
	require.ErrorIs(t, err, errTooLarge)
}

// A command source gets no secrets from the environment, and its output is limited.
func TestCommandsAreBounded_G4(t *testing.T) {
	useTempCache(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	dir := t.TempDir()
	for text, want := range map[string]string{
		"env; exit 3":                       "exited 3",
		"echo why >&2; exit 1":              "exited 1: why",
		"yes":                               "printed more than 976 KiB",
		`ln -s /etc "$CONVERGE_OUTPUT/etc"`: "etc is not a regular file",
		`echo a; touch "$CONVERGE_OUTPUT/stdout.converge.yaml"`: "stdout.converge.yaml",
	} {
		writeScript(t, dir+"/make", text)
		s, err := Parse("exec::" + dir + "/make")
		require.NoError(t, err)
		_, err = s.Fetch(t.Context(), nil)
		require.ErrorContains(t, err, want)
	}
	writeScript(t, dir+"/make", "env")
	s, err := Parse("exec::" + dir + "/make")
	require.NoError(t, err)
	tree, err := s.Fetch(t.Context(), nil)
	require.NoError(t, err)
	require.Contains(t, contentOfTree(t, tree), "PATH=")
	require.NotContains(t, contentOfTree(t, tree), "s3cret")
}
