package origin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/converge-engine/converge/entities"
)

// Limits of the files of one state.
const (
	maxFiles = 50_000
	maxBytes = 256 << 20
	maxLink  = 4096 // bytes of the target of a link
)

var errTooMany = fmt.Errorf("it has more than %d files", maxFiles)

// largeFileMark is the start of the pointer file that Git LFS stores instead of a file.
const largeFileMark = "version https://git-lfs.github.com/spec/"

// files writes the fetched files below one directory, with any names and link targets.
type files struct {
	root  *os.Root
	path  string // the directory that must be complete
	bytes int64
}

// isPlainName refuses names that lead elsewhere, and names that git uses itself.
func isPlainName(name string) bool {
	return filepath.IsLocal(name) && !strings.ContainsAny(name, "/\\\x00") && name != "." && !strings.EqualFold(name, ".git")
}

func badName(name string) error { return fmt.Errorf("it has a file with the invalid name %q", name) }

// checkPath returns an error if the directory of the configuration does not exist.
func (f *files) checkPath(of string) error {
	if info, err := f.root.Stat(filepath.FromSlash(path.Join(".", f.path))); err != nil || !info.IsDir() {
		return fmt.Errorf("no directory %s in %s", entities.Visible(f.path), of)
	}
	return nil
}

// rejectInPath returns an error for a file in the directory of the configuration; elsewhere the file is omitted.
func (f *files) rejectInPath(name, what string) error {
	if f.path == "" || name == f.path || strings.HasPrefix(name, f.path+"/") {
		return fmt.Errorf("%s %s", entities.Visible(name), what)
	}
	return nil
}

// addBytes counts bytes before they are written.
func (f *files) addBytes(size int64) error {
	if f.bytes += size; f.bytes > maxBytes {
		return fmt.Errorf("its files have more than %d MiB", maxBytes>>20)
	}
	return nil
}

// linkFrom writes a link whose target is read from content.
func (f *files) linkFrom(name string, size int64, content io.Reader) error {
	if size > maxLink {
		return f.rejectInPath(name, "is a link with an invalid target")
	}
	target, err := io.ReadAll(io.LimitReader(content, size))
	if err != nil {
		return err
	}
	return f.link(name, string(target))
}

// link writes a link, unless its target is outside. The target may have ".." only at its start, so that no other link can redirect it.
func (f *files) link(name, target string) error {
	if err := f.addBytes(int64(len(target))); err != nil {
		return err
	}
	down := strings.TrimPrefix(target, "./")
	for strings.HasPrefix(down, "../") {
		down = down[len("../"):]
	}
	within := !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
	if !within || down != ".." && strings.Contains("/"+down+"/", "/../") {
		return f.rejectInPath(name, "is a link to a target outside the repository")
	}
	return f.root.Symlink(filepath.FromSlash(target), filepath.FromSlash(name))
}

// file writes a file of the given size, unless one exists.
func (f *files) file(name string, size int64, executable bool, content io.Reader) error {
	if err := f.addBytes(size); err != nil {
		return err
	}
	start := make([]byte, len(largeFileMark))
	n, err := io.ReadFull(content, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(start[:n]) == largeFileMark {
		return f.rejectInPath(name, "is stored in Git LFS, which is not supported")
	}
	mode := os.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	out, err := f.root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(io.MultiReader(bytes.NewReader(start[:n]), content), size))
	return errors.Join(err, out.Close())
}
