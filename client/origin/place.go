package origin

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// keepFor is how long a tree is kept that a newer one has replaced: commands may still run in it.
const keepFor = time.Hour

const treePrefix = "tree-"

// place is where the states of one source lie on this machine, one directory each. "current" leads to the newest, so that its path
// is the same for all of them: workers start the commands of an application there.
type place string

// placeOf is in the cache of the person.
func placeOf(name string) (place, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place for %s: %w", name, err)
	}
	return place(filepath.Join(cache, "converge", "sources", fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:16])), nil
}

// put makes a state the newest, whole or not at all, and returns its path.
func (p place) put(fill func(dir string) error) (string, error) {
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(string(p), treePrefix)
	if err != nil {
		return "", err
	}
	if err = fill(dir); err == nil {
		err = p.lead(dir)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // what is left is removed with the next
		return "", err
	}
	p.prune(dir)
	return p.current(), nil
}

func (p place) current() string { return filepath.Join(string(p), "current") }

// lead has current lead to a directory, at once.
func (p place) lead(dir string) error {
	link := dir + ".link"
	if err := os.Symlink(filepath.Base(dir), link); err != nil {
		return err
	}
	return os.Rename(link, p.current())
}

// prune removes what was replaced long ago. What cannot be removed is tried again with the next.
func (p place) prune(current string) {
	entries, _ := os.ReadDir(string(p))
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && strings.HasPrefix(entry.Name(), treePrefix) && entry.Name() != filepath.Base(current) && time.Since(info.ModTime()) > keepFor {
			_ = os.RemoveAll(filepath.Join(string(p), entry.Name()))
		}
	}
}
