package origin

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// staleAfter is how long a replaced tree is kept: commands may still run in it.
const staleAfter = time.Hour

const treePrefix = "tree-"

// cacheDir is the directory for the states of one source on this machine, with one subdirectory each. The link "current" points to the
// newest, so its path does not change: workers start the commands of an application there.
type cacheDir string

// cacheDirOf is a directory in the user's cache.
func cacheDirOf(name string) (cacheDir, error) {
	userCache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory of %s: %w", name, err)
	}
	return cacheDir(filepath.Join(userCache, "converge", "sources", fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:16])), nil
}

// replace makes a state the newest, atomically, and returns its path.
func (p cacheDir) replace(fill func(dir string) error) (string, error) {
	if err := os.MkdirAll(string(p), 0o700); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(string(p), treePrefix)
	if err != nil {
		return "", err
	}
	if err = fill(dir); err == nil {
		err = p.activate(dir)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // leftovers are removed by the next call
		return "", err
	}
	p.prune(dir)
	return p.current(), nil
}

func (p cacheDir) current() string { return filepath.Join(string(p), "current") }

// activate makes the link current point to a directory, atomically.
func (p cacheDir) activate(dir string) error {
	link := dir + ".link"
	if err := os.Symlink(filepath.Base(dir), link); err != nil {
		return err
	}
	return os.Rename(link, p.current())
}

// prune removes trees that were replaced long ago. Failures are retried by the next call.
func (p cacheDir) prune(current string) {
	entries, _ := os.ReadDir(string(p))
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && strings.HasPrefix(entry.Name(), treePrefix) && entry.Name() != filepath.Base(current) && time.Since(info.ModTime()) > staleAfter {
			_ = os.RemoveAll(filepath.Join(string(p), entry.Name()))
		}
	}
}
