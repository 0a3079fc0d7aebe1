package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// tree shows a file system to kustomize: nothing can be written, and nothing outside is there. It
// notes what is read.
type tree struct {
	fsys fs.FS
	read map[string]bool
	size int64
	// refused is why a kustomization was not read; kustomize itself takes it for one that is not there.
	refused *Refusal
}

var errReadOnly = errors.New("nothing is written when compiling")

// inside is a path of kustomize, for which the tree begins at /, as fs.FS names it.
func inside(name string) string {
	name = path.Clean("/" + filepath.ToSlash(name))
	if name == "/" {
		return "."
	}
	return name[1:]
}

func (t *tree) stat(name string) (fs.FileInfo, error) { return fs.Stat(t.fsys, inside(name)) }

// ReadFile reads a file and refuses a kustomization that would reach out.
func (t *tree) ReadFile(name string) ([]byte, error) {
	name = inside(name)
	info, err := fs.Stat(t.fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	if !t.read[name] {
		t.size += info.Size()
	}
	if t.size > MaxTree {
		return nil, fmt.Errorf("the files of the kustomization have more than %d bytes", MaxTree)
	}
	data, err := fs.ReadFile(t.fsys, name)
	if err != nil {
		return nil, err
	}
	t.read[name] = true
	if slices.Contains(kustomizationNames, path.Base(name)) {
		if r := judge(t, name, data); r != nil {
			t.refused = r
			return nil, r
		}
	}
	return data, nil
}

// Exists implements filesys.FileSystem.
func (t *tree) Exists(name string) bool {
	_, err := t.stat(name)
	return err == nil
}

// IsDir implements filesys.FileSystem.
func (t *tree) IsDir(name string) bool {
	info, err := t.stat(name)
	return err == nil && info.IsDir()
}

// CleanedAbs implements filesys.FileSystem.
func (t *tree) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	info, err := t.stat(name)
	if err != nil {
		return "", "", fmt.Errorf("there is no %s in the directory of the configuration", inside(name))
	}
	full := path.Clean("/" + filepath.ToSlash(name))
	if info.IsDir() {
		return filesys.ConfirmedDir(full), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(full)), path.Base(full), nil
}

// ReadDir implements filesys.FileSystem.
func (t *tree) ReadDir(name string) ([]string, error) {
	entries, err := fs.ReadDir(t.fsys, inside(name))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Glob implements filesys.FileSystem.
func (t *tree) Glob(pattern string) ([]string, error) {
	names, err := fs.Glob(t.fsys, inside(pattern))
	for i := range names {
		names[i] = "/" + names[i]
	}
	return names, err
}

// Walk implements filesys.FileSystem.
func (t *tree) Walk(name string, visit filepath.WalkFunc) error {
	return fs.WalkDir(t.fsys, inside(name), func(found string, entry fs.DirEntry, err error) error {
		if err != nil {
			return visit("/"+found, nil, err)
		}
		info, err := entry.Info()
		return visit("/"+found, info, err)
	})
}

// Open implements filesys.FileSystem.
func (*tree) Open(string) (filesys.File, error) { return nil, errReadOnly }

// Create implements filesys.FileSystem.
func (*tree) Create(string) (filesys.File, error) { return nil, errReadOnly }

// Mkdir implements filesys.FileSystem.
func (*tree) Mkdir(string) error { return errReadOnly }

// MkdirAll implements filesys.FileSystem.
func (*tree) MkdirAll(string) error { return errReadOnly }

// RemoveAll implements filesys.FileSystem.
func (*tree) RemoveAll(string) error { return errReadOnly }

// WriteFile implements filesys.FileSystem.
func (*tree) WriteFile(string, []byte) error { return errReadOnly }

// remote tells whether a path would be fetched from somewhere.
func remote(name string) bool {
	if strings.Contains(name, "\n") {
		return false // a patch, written out
	}
	for _, prefix := range []string{"git@", "git::", "gh:", "github.com/", "github.com:"} {
		if strings.HasPrefix(strings.ToLower(name), prefix) {
			return true
		}
	}
	return strings.Contains(name, "://")
}
