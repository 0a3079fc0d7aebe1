package origin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/converge-engine/converge/entities/protocol"
)

// directory is a directory of this machine.
type directory struct{ name, dir string }

func (d directory) String() string { return d.name }

// Newest uses the names, sizes and times of all files.
func (d directory) Newest(context.Context) (string, error) {
	state, err := snapshot(d.dir)
	if failed := new(fs.PathError); errors.As(err, &failed) {
		err = failed.Err
	}
	if err != nil {
		return "", fmt.Errorf("load %s: %w", d.name, err)
	}
	return state, nil
}

// Fetch copies nothing: commands of the configuration run in the directory itself.
func (d directory) Fetch(ctx context.Context, _ Since) (Tree, error) {
	state, err := d.Newest(ctx)
	if err != nil {
		return Tree{}, err
	}
	return Tree{State: state, Dir: d.dir, Origin: Of(ctx, d.dir)}, nil
}

// CommitsIn are the commits since another one in the work tree of a directory, as far as its history is available; nil if it cannot be
// read.
func CommitsIn(dir, newest, since string) *protocol.Commits {
	tree, err := openWorkTree(dir)
	if err != nil {
		return nil
	}
	commit, err := tree.repo.CommitObject(plumbing.NewHash(newest))
	if err != nil {
		return nil
	}
	return commitsOf(tree.repo, commit, since, tree.within)
}

// snapshot is a digest of the names, sizes and times of all files below dir, except those in directories whose name begins with a dot.
// Files below dir that cannot be read are omitted: a directory that is removed during the walk, or one that belongs to another user, is not
// an error.
func snapshot(dir string) (string, error) {
	digest := sha256.New()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			return nil //nolint:nilerr // see above
		case path != dir && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // removed while walking: the next reading sees it gone
		}
		_, err = fmt.Fprintf(digest, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		return err
	})
	return fmt.Sprintf("%x", digest.Sum(nil)), err
}
