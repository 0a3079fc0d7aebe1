package origin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/converge-engine/converge/entities"
)

// Bounds of what is written of one commit.
const (
	maxFiles = 50_000
	maxBytes = 256 << 20
	maxLink  = 4096 // bytes of what a link leads to
)

// largeFileMark begins what Git LFS has in the place of a file.
const largeFileMark = "version https://git-lfs.github.com/spec/"

// commitOf finds a commit, behind a tag, too.
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

// checkout writes the files of a commit. Nothing of it is run, and nothing lies outside of its directory.
type checkout struct {
	root  *os.Root
	tree  *object.Tree
	path  string // what is in there has to be whole
	bytes int64
}

// checkOut writes the files of a commit into a directory that is empty.
func checkOut(ctx context.Context, commit *object.Commit, dir, in string) error {
	tree, err := commit.Tree()
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // written already
	c := &checkout{root: root, tree: tree, path: in}
	if err := c.each(ctx, func(string, object.TreeEntry) error { return nil }); err != nil {
		return err // before anything is written
	}
	if err := c.each(ctx, c.write); err != nil {
		return err
	}
	if info, err := root.Stat(filepath.FromSlash(path.Join(".", in))); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no directory %s in commit %s", entities.Visible(in), commit.Hash)
	}
	return nil
}

// each has something done with every entry, directories before what is in them.
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
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		if err := errors.Join(ctx.Err(), do(name, entry)); err != nil {
			return err
		}
	}
}

// write writes one entry. Names that a tree has twice are refused, as what is there already is never written through.
func (c *checkout) write(name string, entry object.TreeEntry) error {
	if !plain(entry.Name) {
		return fmt.Errorf("it has a file %q, which is no name", entry.Name)
	}
	local := filepath.FromSlash(name)
	switch entry.Mode {
	case filemode.Dir:
		return c.root.Mkdir(local, 0o700)
	case filemode.Submodule:
		return c.unlessElsewhere(name, "is a submodule, which is not fetched")
	case filemode.Symlink:
		return c.link(name, local, entry)
	}
	return c.file(name, local, entry)
}

// plain refuses what would lead somewhere else, and what git itself would go by.
func plain(name string) bool {
	return filepath.IsLocal(name) && !strings.ContainsAny(name, "/\\\x00") && name != "." && !strings.EqualFold(name, ".git")
}

// unlessElsewhere refuses something in the directory of the configuration; elsewhere it is left out.
func (c *checkout) unlessElsewhere(name, what string) error {
	if c.path == "" || name == c.path || strings.HasPrefix(name, c.path+"/") {
		return fmt.Errorf("%s %s", entities.Visible(name), what)
	}
	return nil
}

func (c *checkout) blob(entry object.TreeEntry) (*object.File, error) {
	file, err := c.tree.TreeEntryFile(&entry)
	if err != nil {
		return nil, err
	}
	if c.bytes += file.Size; c.bytes > maxBytes {
		return nil, fmt.Errorf("its files have more than %d MiB", maxBytes>>20)
	}
	return file, nil
}

// link writes a link, unless it leads out. One that goes up does so before anything else, so that no other link leads it astray.
func (c *checkout) link(name, local string, entry object.TreeEntry) error {
	file, err := c.blob(entry)
	if err != nil {
		return err
	}
	if file.Size > maxLink {
		return c.unlessElsewhere(name, "is a link that leads nowhere")
	}
	target, err := file.Contents()
	if err != nil {
		return err
	}
	down := strings.TrimPrefix(target, "./")
	for strings.HasPrefix(down, "../") {
		down = down[len("../"):]
	}
	within := !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
	if !within || down != ".." && strings.Contains("/"+down+"/", "/../") {
		return c.unlessElsewhere(name, "is a link that leads out of the repository")
	}
	return c.root.Symlink(filepath.FromSlash(target), local)
}

func (c *checkout) file(name, local string, entry object.TreeEntry) error {
	file, err := c.blob(entry)
	if err != nil {
		return err
	}
	reader, err := file.Reader()
	if err != nil {
		return err
	}
	defer reader.Close() // only read
	start := make([]byte, len(largeFileMark))
	n, _ := io.ReadFull(reader, start)
	if string(start[:n]) == largeFileMark {
		return c.unlessElsewhere(name, "is kept by Git LFS, and is not fetched")
	}
	mode := os.FileMode(0o600)
	if entry.Mode == filemode.Executable {
		mode = 0o700
	}
	out, err := c.root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(io.MultiReader(bytes.NewReader(start[:n]), reader), file.Size))
	return errors.Join(err, out.Close())
}
