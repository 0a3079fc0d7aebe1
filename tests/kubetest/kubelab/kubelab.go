// Package kubelab builds the program of tests/kube once, and knows whether the one built is that of the present sources.
//
// Go's own build cache would do, were it not trimmed and the build ten minutes of a processor.
package kubelab

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

// release is that of k8s.io/kubernetes in tests/kube/go.mod, which the components report as theirs.
const release = "v1.36.3"

// Errors of Check.
var (
	ErrNotBuilt = errors.New("no Kubernetes control plane: run make kube-build, ten minutes of a processor once")
	ErrStale    = errors.New("the Kubernetes control plane was built from other sources than tests/kube has now: run make kube-build")
)

// Path is where the program of the module in root is, or will be.
func Path(root string) string { return filepath.Join(root, ".cache", "bin", "kubelab") }

func digestPath(root string) string { return Path(root) + ".digest" }

func sources(root string) string { return filepath.Join(root, "tests", "kube") }

// Check returns nil when the program is there and built from the present sources by this version of Go, else ErrNotBuilt
// or ErrStale, or what kept it from looking.
func Check(root string) error {
	built, err := os.ReadFile(digestPath(root))
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotBuilt
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(Path(root)); err != nil {
		return ErrNotBuilt
	}
	digest, err := digest(sources(root))
	if err != nil {
		return err
	}
	if string(built) != digest {
		return ErrStale
	}
	return nil
}

// Build builds the program, unless Check finds it good, in the module whose absolute path root is. The flags are those of every build here, so that packages that
// another build has compiled are compiled no second time.
func Build(ctx context.Context, root string, output io.Writer) error {
	if Check(root) == nil {
		return nil
	}
	digest, err := digest(sources(root)) // before building: what changes meanwhile is seen next time
	if err != nil {
		return err
	}
	number := strings.Split(strings.TrimPrefix(release, "v"), ".")
	const version = "k8s.io/component-base/version."
	flags := fmt.Sprintf("-s -w -X %[1]sgitVersion=%[2]s -X %[1]sgitMajor=%[3]s -X %[1]sgitMinor=%[4]s", version, release, number[0], number[1])
	build := exec.CommandContext(ctx, "go", "build", "-ldflags="+flags, "-o", Path(root)+".new", ".")
	build.Dir, build.Stdout, build.Stderr = sources(root), output, output
	if err := build.Run(); err != nil {
		return fmt.Errorf("build tests/kube: %w", err)
	}
	if err := os.Rename(Path(root)+".new", Path(root)); err != nil {
		return err
	}
	return os.WriteFile(digestPath(root), []byte(digest), 0o600)
}

// digest identifies what is built: the version of Go, and the names and contents of the files that the build reads.
func digest(dir string) (string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && isSource(entry) {
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

func isSource(entry fs.DirEntry) bool {
	name := entry.Name()
	if entry.IsDir() || strings.HasSuffix(name, "_test.go") {
		return false
	}
	return strings.HasSuffix(name, ".go") || name == "go.mod" || name == "go.sum"
}
