package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// directory implements blobs as files. A write creates a temporary file in the target's directory and renames it. If the target must not
// exist, it creates a hard link: of concurrent writers, one wins. (docs/decisions/0009-store-collects-unreferenced-content.md)
type directory struct{ dir string }

// ownDir permits access to the owner only: the store holds rules, parameters, objects and the audit trail.
const ownDir = 0o700

// openDirectory opens a store in a directory. Temporary files are in the directories of their targets, so a rename never crosses
// devices.
func openDirectory(dir string) (*Store, error) {
	absolute, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(absolute, ownDir)
	}
	d := &directory{absolute}
	if err == nil {
		err = d.checkOwner()
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, strict.Reason(err))
	}
	return newStore(absolute, absolute, newBounded(d)), nil
}

// checkOwner refuses a store that another user has written: each of the two could not read what the other one writes. The directory itself
// may belong to another one, such as the mount of a volume.
func (d *directory) checkOwner() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || d.isForeign(filepath.Join(d.dir, e.Name())) {
			continue // it is gone, or is no part of the store
		}
		owner, known := info.Sys().(*syscall.Stat_t)
		if own := os.Geteuid(); known && int64(owner.Uid) != int64(own) {
			return fmt.Errorf("it belongs to the user %s, and this is %s; expected the same user, or a store that both reach, such as s3://bucket [store-owner]", userName(int(owner.Uid)), userName(own))
		}
	}
	return nil
}

// userName is the name of a user with the number.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := osuser.LookupId(number); err == nil {
		return u.Username + " (" + number + ")"
	}
	return number
}

// path returns the path of a key. It rejects keys that lead out of the store.
func (d *directory) path(key string) (string, error) {
	local := filepath.FromSlash(key)
	if !filepath.IsLocal(local) {
		return "", fmt.Errorf("the store has no key %q", key)
	}
	return filepath.Join(d.dir, local), nil
}

func (d *directory) read(_ context.Context, key string) ([]byte, error) {
	path, err := d.path(key)
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if isNotExist(err) {
		return nil, &NotFoundError{key}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from the store: %w", key, strict.Reason(err))
	}
	return data, nil
}

// isNotExist reports whether nothing exists. A directory is not a blob.
func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR)
}

func (d *directory) write(_ context.Context, key string, data []byte) error {
	if err := d.writeTemp(key, data, os.Rename); err != nil {
		return fmt.Errorf("write %s to the store: %w", key, strict.Reason(err))
	}
	return nil
}

func (d *directory) create(_ context.Context, key string, data []byte) (bool, error) {
	err := d.writeTemp(key, data, func(from, to string) error {
		defer os.Remove(from) // the result of the removal does not matter
		return os.Link(from, to)
	})
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s to the store: %w", key, strict.Reason(err))
	}
	return true, nil
}

// writeTemp writes a temporary file in the directory of its target, and moves it there with finish.
func (d *directory) writeTemp(key string, data []byte, finish func(from, to string) error) error {
	target, err := d.path(key)
	if err != nil {
		return err
	}
	f, err := createTemp(target)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = finish(f.Name(), target)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// createTemp creates a temporary file, readable by its owner only, in the directory of a target. It creates the directory if needed.
func createTemp(target string) (*os.File, error) {
	dir := filepath.Dir(target)
	f, err := os.CreateTemp(dir, ".new-*.tmp")
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, ownDir); err == nil {
			f, err = os.CreateTemp(dir, ".new-*.tmp")
		}
	}
	return f, err
}

func (d *directory) list(ctx context.Context, prefix string) (keys []string, err error) {
	err = d.walk(ctx, prefix, func(key string, _ fs.DirEntry) error {
		keys = append(keys, key)
		return nil
	})
	slices.Sort(keys)
	return keys, err
}

// entries skips files that are removed during the walk.
func (d *directory) entries(ctx context.Context, prefix string) (found []entry, err error) {
	err = d.walk(ctx, prefix, func(key string, e fs.DirEntry) error {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			found = append(found, entry{key, info.Size(), info.ModTime()})
		}
		return err
	})
	slices.SortFunc(found, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return found, err
}

// walk visits the files whose keys begin with a prefix.
func (d *directory) walk(ctx context.Context, prefix string, visit func(key string, e fs.DirEntry) error) error {
	root, err := d.path(prefix[:strings.LastIndexByte(prefix, '/')+1] + ".")
	if err == nil {
		root += string(filepath.Separator) // root may be a symbolic link
		err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && d.isForeign(path) {
				return nil
			}
			if err = errors.Join(err, ctx.Err()); err != nil || path == root {
				return err
			}
			key := filepath.ToSlash(strings.TrimPrefix(path[len(d.dir):], string(filepath.Separator)))
			switch {
			case e.IsDir() && !strings.HasPrefix(key+"/", prefix) && !strings.HasPrefix(prefix, key+"/"):
				return fs.SkipDir
			case e.IsDir() || !strings.HasPrefix(key, prefix):
				return nil
			}
			return visit(key, e)
		})
	}
	if err != nil {
		return fmt.Errorf("list %s in the store: %w", prefix, strict.Reason(err))
	}
	return nil
}

// isForeign reports whether a directory is not part of the store, such as lost+found of a file system.
func (d *directory) isForeign(path string) bool {
	_, known := folders[filepath.Base(path)+"/"]
	return !known && filepath.Dir(path) == d.dir
}

func (d *directory) exists(_ context.Context, key string) (bool, error) {
	path, err := d.path(key)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	if err != nil && !isNotExist(err) {
		return false, fmt.Errorf("check for %s in the store: %w", key, strict.Reason(err))
	}
	return err == nil && !info.IsDir(), nil
}

// move updates the modification time before it renames, because a rename keeps the time.
func (d *directory) move(_ context.Context, from, to string) error {
	source, err := d.path(from)
	var target string
	if err == nil {
		target, err = d.path(to)
	}
	now := time.Now()
	if err == nil {
		err = os.Chtimes(source, now, now)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(target), ownDir)
	}
	if err == nil {
		err = os.Rename(source, target)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &NotFoundError{from}
	}
	if err != nil {
		return fmt.Errorf("move %s in the store: %w", from, strict.Reason(err))
	}
	return nil
}

func (d *directory) remove(_ context.Context, key string) error {
	path, err := d.path(key)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s from the store: %w", key, strict.Reason(err))
	}
	return nil
}

func (d *directory) close() error { return nil }
