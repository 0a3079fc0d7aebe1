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

// Bounds of what is written of one state.
const (
	maxFiles = 50_000
	maxBytes = 256 << 20
	maxLink  = 4096 // bytes of what a link leads to
)

var errTooMany = fmt.Errorf("it has more than %d files", maxFiles)

// largeFileMark begins what Git LFS has in the place of a file.
const largeFileMark = "version https://git-lfs.github.com/spec/"

// files writes what was fetched below one directory, whatever it is called and wherever it leads.
type files struct {
	root  *os.Root
	path  string // what is in there has to be whole
	bytes int64
}

// plain refuses what would lead somewhere else, and what git itself would go by.
func plain(name string) bool {
	return filepath.IsLocal(name) && !strings.ContainsAny(name, "/\\\x00") && name != "." && !strings.EqualFold(name, ".git")
}

func noName(name string) error { return fmt.Errorf("it has a file %q, which is no name", name) }

// whole tells by an error that the directory of the configuration is not there.
func (f *files) whole(of string) error {
	if info, err := f.root.Stat(filepath.FromSlash(path.Join(".", f.path))); err != nil || !info.IsDir() {
		return fmt.Errorf("there is no directory %s in %s", entities.Visible(f.path), of)
	}
	return nil
}

// unlessElsewhere refuses something in the directory of the configuration; elsewhere it is left out.
func (f *files) unlessElsewhere(name, what string) error {
	if f.path == "" || name == f.path || strings.HasPrefix(name, f.path+"/") {
		return fmt.Errorf("%s %s", entities.Visible(name), what)
	}
	return nil
}

// more counts bytes that are about to be written.
func (f *files) more(size int64) error {
	if f.bytes += size; f.bytes > maxBytes {
		return fmt.Errorf("its files have more than %d MiB", maxBytes>>20)
	}
	return nil
}

// linkFrom writes a link whose target is a content.
func (f *files) linkFrom(name string, size int64, content io.Reader) error {
	if size > maxLink {
		return f.unlessElsewhere(name, "is a link that leads nowhere")
	}
	target, err := io.ReadAll(io.LimitReader(content, size))
	if err != nil {
		return err
	}
	return f.link(name, string(target))
}

// link writes a link, unless it leads out. One that goes up does so before anything else, so that no other link leads it astray.
func (f *files) link(name, target string) error {
	if err := f.more(int64(len(target))); err != nil {
		return err
	}
	down := strings.TrimPrefix(target, "./")
	for strings.HasPrefix(down, "../") {
		down = down[len("../"):]
	}
	within := !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
	if !within || down != ".." && strings.Contains("/"+down+"/", "/../") {
		return f.unlessElsewhere(name, "is a link that leads out of the repository")
	}
	return f.root.Symlink(filepath.FromSlash(target), filepath.FromSlash(name))
}

// file writes a file of so many bytes, where nothing is yet.
func (f *files) file(name string, size int64, executable bool, content io.Reader) error {
	if err := f.more(size); err != nil {
		return err
	}
	start := make([]byte, len(largeFileMark))
	n, err := io.ReadFull(content, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if string(start[:n]) == largeFileMark {
		return f.unlessElsewhere(name, "is kept by Git LFS, and is not fetched")
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
