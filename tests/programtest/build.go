package programtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Build builds programs of this module, by their import paths, and returns the folder that has them. All tests share it, those
// of other packages that run meanwhile too: a program is linked once, and again only when its sources have changed. With
// tags the programs are in a folder of their own.
func Build(ctx context.Context, tags string, packages ...string) (dir string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, ".cache", "programs", tags)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(root, ".cache", "programs.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, pkg := range packages {
		// Without debugging information it links in half the time; without a stamp of version control a commit links nothing.
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-tags="+tags, "-o", filepath.Join(dir, filepath.Base(pkg)), pkg)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return dir, nil
}

// lock waits until no other process holds it.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil // which unlocks it
}

// moduleRoot is the nearest directory, from the working directory upwards, that has this module's go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/converge-engine/converge\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the module", dir)
		}
	}
}
