package origin

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

// workTree is a directory in the work tree of a git repository. It is only read, and git itself is never started: a repository's
// configuration names programs that git runs, and the directory may come from a pull request or an archive (G4).
type workTree struct {
	repo   *git.Repository
	dir    string // absolute, without symbolic links
	root   string // of the work tree
	within string // of dir, relative to root, with slashes; "" is the root
	common string // the directory of the repository's files
	// readable: the commits are stored in a format that can be read.
	readable bool
}

// openWorkTree finds the repository in the directory or above it, by its .git. A directory that looks like a bare repository is none.
func openWorkTree(dir string) (*workTree, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	t := &workTree{dir: dir}
	gitDir := ""
	if t.root, gitDir, err = findRepository(dir); err != nil {
		return nil, err
	}
	within, err := filepath.Rel(t.root, dir)
	if err != nil {
		return nil, err
	}
	t.within, t.common = path.Clean("/" + filepath.ToSlash(within))[1:], gitDir
	if shared, ok := readPath(filepath.Join(gitDir, "commondir"), "", gitDir); ok {
		t.common = shared
	}
	files := dotgit.NewRepositoryFilesystem(osfs.New(gitDir), osfs.New(t.common))
	store := anyFormat{filesystem.NewStorage(files, cache.NewObjectLRUDefault())}
	if t.repo, err = git.Open(store, osfs.New(t.root)); err != nil {
		return nil, err
	}
	stored, err := store.Storage.Config()
	if err != nil {
		return nil, err
	}
	extensions := stored.Raw.Section("extensions")
	t.readable = extensions.Option("refstorage") == "" && (extensions.Option("objectformat") == "" || extensions.Option("objectformat") == "sha1")
	return t, nil
}

// findRepository returns the root of the work tree around a directory, and the directory of its repository.
func findRepository(dir string) (root, gitDir string, err error) {
	for root = dir; ; root = filepath.Dir(root) {
		gitDir = filepath.Join(root, git.GitDirName)
		info, err := os.Stat(gitDir)
		if err == nil && info.IsDir() {
			return root, gitDir, nil
		}
		if named, ok := readPath(gitDir, "gitdir: ", root); ok {
			return root, named, nil
		}
		if root == filepath.Dir(root) {
			return "", "", git.ErrRepositoryNotExists
		}
	}
}

// readPath reads the path that a file of git consists of, after a prefix. It is relative to base.
func readPath(file, prefix, base string) (string, bool) {
	text, ok := readSmall(file)
	name, found := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ok || !found || name == "" {
		return "", false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(base, name)
	}
	return name, true
}

// maxSmallFile is the limit of readSmall, in bytes.
const maxSmallFile = 1 << 20

// readSmall reads a regular file, if it is one, and not too large.
func readSmall(file string) (string, bool) {
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSmallFile {
		return "", false
	}
	data, err := os.ReadFile(file)
	return string(data), err == nil
}

// anyFormat is the storage of a repository that may use extensions which go-git does not know. Those of a partial clone and of a sparse
// checkout make no difference to reading.
type anyFormat struct{ *filesystem.Storage }

func (a anyFormat) Config() (*config.Config, error) {
	c, err := a.Storage.Config()
	if err == nil {
		c.Raw.RemoveSection("extensions")
		c.Core.RepositoryFormatVersion = ""
	}
	return c, err
}

// stateDir is the directory of Converge's own state in development. It is not part of a configuration.
const stateDir = ".converge"

// modified reports whether the directory differs from a commit ("" is none): a file is changed, missing, or neither committed nor ignored.
// Filters of git, such as that of LFS, are not applied: a file that one changed differs.
func (t *workTree) modified(ctx context.Context, commit string) (bool, error) {
	committed, err := t.committed(commit)
	if err != nil {
		return false, err
	}
	settings, err := t.repo.Config()
	if err != nil {
		return false, err
	}
	c := comparison{
		workTree: t, committed: committed, ignored: t.ignoredAbove(), seen: map[string]bool{},
		ignoresExecutable: settings.Raw.Section("core").Option("filemode") == "false",
	}
	err = filepath.WalkDir(t.dir, func(name string, entry fs.DirEntry, err error) error {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		relative, err := filepath.Rel(t.dir, name)
		if err != nil {
			return err
		}
		return c.visit(filepath.ToSlash(relative), entry)
	})
	if err == nil && !c.differs {
		err = c.findMissing()
	}
	return c.differs, err
}

// committed lists the files of a commit in the directory, by their path in it.
func (t *workTree) committed(commit string) (map[string]object.TreeEntry, error) {
	if commit == "" {
		return nil, nil
	}
	head, err := t.repo.CommitObject(plumbing.NewHash(commit))
	if err != nil {
		return nil, err
	}
	tree, err := head.Tree()
	if err == nil && t.within != "" {
		tree, err = tree.Tree(t.within)
	}
	if errors.Is(err, object.ErrDirectoryNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, walker := map[string]object.TreeEntry{}, object.NewTreeWalker(tree, true, nil)
	defer walker.Close()
	for {
		name, entry, err := walker.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(all) == maxFiles:
			return nil, errTooMany
		case entry.Mode != filemode.Dir && !inStateDir(name):
			all[name] = entry
		}
	}
}

func inStateDir(name string) bool { return name == stateDir || strings.HasPrefix(name, stateDir+"/") }

// ignoredAbove are the patterns of ignored files that are declared outside of the directory.
func (t *workTree) ignoredAbove() []gitignore.Pattern {
	all, _ := gitignore.LoadGlobalPatterns(osfs.New("/")) // a file that is missing declares none, like those below
	all = append(all, patternsIn(filepath.Join(t.common, "info", "exclude"), nil)...)
	parts := strings.Split(t.within, "/")
	for n := range parts {
		if t.within != "" {
			all = append(all, patternsIn(filepath.Join(t.root, filepath.Join(parts[:n]...), ".gitignore"), parts[:n])...)
		}
	}
	return all
}

// patternsIn reads a file of patterns. They apply below the directory with the path domain in the work tree.
func patternsIn(file string, domain []string) (all []gitignore.Pattern) {
	text, _ := readSmall(file)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, gitignore.ParsePattern(line, domain))
		}
	}
	return all
}

// comparison is one walk through a work tree.
type comparison struct {
	*workTree
	committed map[string]object.TreeEntry
	ignored   []gitignore.Pattern
	seen      map[string]bool // committed files that were found
	differs   bool
	// ignoresExecutable: the repository does not compare whether a file is executable.
	ignoresExecutable bool
}

// visit compares one file, or decides whether to enter a directory. name is relative to the directory of the walk.
func (c *comparison) visit(name string, entry fs.DirEntry) error {
	switch {
	case entry.Name() == git.GitDirName && name != ".", inStateDir(name):
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case entry.IsDir():
		return c.enter(name)
	}
	blob, tracked := c.committed[name]
	if !tracked {
		if !c.isIgnored(name, false) {
			return c.found()
		}
		return nil
	}
	c.seen[name] = true
	same, err := c.equals(filepath.Join(c.dir, filepath.FromSlash(name)), blob)
	if err == nil && !same {
		return c.found()
	}
	return err
}

// found ends the walk: one difference is enough.
func (c *comparison) found() error {
	c.differs = true
	return fs.SkipAll
}

// enter skips directories that have nothing to compare.
func (c *comparison) enter(name string) error {
	if name != "." {
		if _, submodule := c.committed[name]; submodule {
			c.seen[name] = true
			return fs.SkipDir
		}
		if c.isIgnored(name, true) && !c.hasCommitted(name) {
			return fs.SkipDir
		}
		if _, err := os.Lstat(filepath.Join(c.dir, filepath.FromSlash(name), git.GitDirName)); err == nil {
			return c.found() // another repository, which is not a submodule
		}
	}
	c.ignored = append(c.ignored, patternsIn(filepath.Join(c.dir, filepath.FromSlash(name), ".gitignore"), c.pathOf(name))...)
	return nil
}

// pathOf is the path of a file in the work tree.
func (c *comparison) pathOf(name string) []string {
	full := path.Join(c.within, name)
	if full == "." || full == "" {
		return nil
	}
	return strings.Split(full, "/")
}

func (c *comparison) isIgnored(name string, isDir bool) bool {
	return gitignore.NewMatcher(c.ignored).Match(c.pathOf(name), isDir)
}

func (c *comparison) hasCommitted(dir string) bool {
	for name := range c.committed {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// equals compares a file with a committed one.
func (c *comparison) equals(file string, committed object.TreeEntry) (bool, error) {
	info, err := os.Lstat(file)
	if err != nil {
		return false, err
	}
	mode, err := filemode.NewFromOSFileMode(info.Mode())
	if err != nil || c.comparable(mode) != c.comparable(committed.Mode) {
		return false, nil // a socket, or the like
	}
	if mode == filemode.Symlink {
		target, err := os.Readlink(file)
		return err == nil && plumbing.ComputeHash(plumbing.BlobObject, []byte(filepath.ToSlash(target))) == committed.Hash, err
	}
	size, err := c.repo.Storer.EncodedObjectSize(committed.Hash)
	if err == nil && size != info.Size() {
		return false, nil
	}
	content, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer content.Close() // opened for reading only
	hash := plumbing.NewHasher(plumbing.BlobObject, info.Size())
	if _, err := io.Copy(hash, content); err != nil {
		return false, err
	}
	return hash.Sum() == committed.Hash, nil
}

// comparable is the mode as git compares it.
func (c *comparison) comparable(mode filemode.FileMode) filemode.FileMode {
	if mode == filemode.Deprecated || mode == filemode.Executable && c.ignoresExecutable {
		return filemode.Regular
	}
	return mode
}

// findMissing looks for committed files that are not in the work tree, except those that a sparse checkout leaves out.
func (c *comparison) findMissing() error {
	if len(c.seen) == len(c.committed) {
		return nil
	}
	index, err := c.repo.Storer.Index()
	if err != nil {
		return err
	}
	omitted := map[string]bool{}
	for _, entry := range index.Entries {
		omitted[entry.Name] = entry.SkipWorktree
	}
	for name, entry := range c.committed {
		if !c.seen[name] && entry.Mode != filemode.Submodule && !omitted[path.Join(c.within, name)] {
			c.differs = true
			return nil
		}
	}
	return nil
}
