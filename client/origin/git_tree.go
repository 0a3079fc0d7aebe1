package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// commitOf finds a commit, also through tags.
func commitOf(repo *git.Repository, hash plumbing.Hash) (*object.Commit, error) {
	for range 8 {
		tag, err := repo.TagObject(hash)
		if err != nil {
			break
		}
		hash = tag.Target
	}
	commit, err := repo.CommitObject(hash)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", hash, err)
	}
	return commit, nil
}

// checkout writes the files of a commit. It runs none of them, and writes nothing outside its directory.
type checkout struct {
	files
	tree *object.Tree
}

// checkOut writes the files of a commit into an empty directory.
func checkOut(ctx context.Context, commit *object.Commit, dir, in string) error {
	tree, err := commit.Tree()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // all data is written
	c := &checkout{files{root: root, path: in}, tree}
	if err := c.each(ctx, func(string, object.TreeEntry) error { return nil }); err != nil {
		return err // before any write
	}
	if err := c.each(ctx, c.write); err != nil {
		return err
	}
	return c.checkPath("commit " + commit.Hash.String())
}

// each calls do for every entry, directories before their content.
func (c *checkout) each(ctx context.Context, do func(name string, entry object.TreeEntry) error) error {
	walker := object.NewTreeWalker(c.tree, true, nil)
	defer walker.Close()
	for n := 0; ; n++ {
		name, entry, err := walker.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n == maxFiles:
			return errTooMany
		}
		if err := errors.Join(ctx.Err(), do(name, entry)); err != nil {
			return err
		}
	}
}

// write writes one entry. Duplicate names in a tree are refused, because existing files are never overwritten.
func (c *checkout) write(name string, entry object.TreeEntry) error {
	if !isPlainName(entry.Name) {
		return badName(entry.Name)
	}
	switch entry.Mode {
	case filemode.Dir:
		return c.root.Mkdir(filepath.FromSlash(name), 0o700)
	case filemode.Submodule:
		return c.rejectInPath(name, "is a submodule, which is not supported")
	}
	file, err := c.tree.TreeEntryFile(&entry)
	if err != nil {
		return err
	}
	reader, err := file.Reader()
	if err != nil {
		return err
	}
	defer reader.Close() // opened for reading only
	if entry.Mode == filemode.Symlink {
		return c.linkFrom(name, file.Size, reader)
	}
	return c.file(name, file.Size, entry.Mode == filemode.Executable, reader)
}
