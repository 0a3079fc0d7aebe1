// Package program builds programs that tests need once each, from modules of their own, and knows whether the one built is
// that of the present sources.
//
// Go's own build cache would do, were it not trimmed and each of these minutes of a processor.
package program

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Program is one of them.
type Program struct {
	// Name is that of its file in .cache/bin.
	Name string
	// Module is the folder of its module, and Package what is built there.
	Module, Package string
	// ModFile is another file of the module than its go.mod, which names other versions, and has a .sum beside it.
	ModFile string
	// Flags are the linker's, beside -s -w.
	Flags string
	// NotBuilt and Stale are what Check says, with the command that builds it.
	NotBuilt, Stale error
}

// Path is where the program of the module in root is, or will be.
func (p Program) Path(root string) string { return filepath.Join(root, ".cache", "bin", p.Name) }

func (p Program) digestPath(root string) string { return p.Path(root) + ".digest" }

func (p Program) sources(root string) string {
	return filepath.Join(root, filepath.FromSlash(p.Module))
}

// Check returns nil when the program is there and built from the present sources by this version of Go, else NotBuilt or
// Stale, or what kept it from looking.
func (p Program) Check(root string) error {
	built, err := os.ReadFile(p.digestPath(root))
	if errors.Is(err, fs.ErrNotExist) {
		return p.NotBuilt
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(p.Path(root)); err != nil {
		return p.NotBuilt
	}
	digest, err := p.digest(root)
	if err != nil {
		return err
	}
	if string(built) != digest {
		return p.Stale
	}
	return nil
}

// Build builds the program, unless Check finds it good, in the module whose absolute path root is. The flags are those of
// every build here, so that packages that another build has compiled are compiled no second time.
func (p Program) Build(ctx context.Context, root string, output io.Writer) error {
	if p.Check(root) == nil {
		return nil
	}
	digest, err := p.digest(root) // before building: what changes meanwhile is seen next time
	if err != nil {
		return err
	}
	flags := strings.TrimSpace("-s -w " + p.Flags)
	build := exec.CommandContext(ctx, "go", "build", "-modfile="+p.ModFile, "-ldflags="+flags, "-o", p.Path(root)+".new", p.Package)
	build.Dir, build.Stdout, build.Stderr = p.sources(root), output, output
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s: %w", p.Module, err)
	}
	if err := os.Rename(p.Path(root)+".new", p.Path(root)); err != nil {
		return err
	}
	return os.WriteFile(p.digestPath(root), []byte(digest), 0o600)
}

// digest identifies what is built: the version of Go, and the names and contents of the files that the build reads.
func (p Program) digest(root string) (string, error) {
	dir := p.sources(root)
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && p.isSource(entry) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %x\n", filepath.ToSlash(name), sha256.Sum256(content))
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}

func (p Program) isSource(entry fs.DirEntry) bool {
	name := entry.Name()
	if entry.IsDir() || strings.HasSuffix(name, "_test.go") {
		return false
	}
	return strings.HasSuffix(name, ".go") || slices.Contains([]string{"go.mod", "go.sum", p.ModFile, strings.TrimSuffix(p.ModFile, ".mod") + ".sum"}, name)
}
