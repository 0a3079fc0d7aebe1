package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/converge-engine/converge/intent/internal/strict"
)

var kustomizationNames = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// Kustomize builds the kustomization in a directory of fsys. It also returns the files that were
// read, those of a build that failed included. Remote bases, plugins and charts are refused.
func Kustomize(fsys fs.FS, dir string) (Text, []string, error) {
	t := &tree{fsys: fsys, read: map[string]bool{}}
	data, err := build(t, dir)
	if err != nil {
		if t.refused != nil {
			return Text{}, strict.Keys(t.read), t.refused
		}
		return Text{}, strict.Keys(t.read), errors.New(oneLine(err.Error()))
	}
	return Text{Name: "kustomization " + dir, Data: data}, strict.Keys(t.read), nil
}

// build keeps kustomize's own failures from ending the process.
func build(t *tree, dir string) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("kustomize failed: %v", r)
		}
	}()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(t, path.Join("/", dir))
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// fetched are the fields of a kustomization whose texts are paths, or hold some.
var (
	fetched = []string{"resources", "bases", "components", "crds", "configurations"}
	pathed  = []string{"patches", "patchesStrategicMerge", "patchesJson6902", "replacements", "openapi", "configMapGenerator", "secretGenerator"}
	plugins = []string{"generators", "transformers", "validators", "helmCharts", "helmChartInflationGenerator", "helmGlobals"}
)

// refuse refuses what would be fetched or run. Kustomize reads every kustomization through the tree
// before it follows it.
func refuse(t *tree, name string, data []byte) *Refusal {
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil //nolint:nilerr // kustomize itself says what is wrong with it
	}
	for _, field := range plugins {
		if fields[field] != nil {
			return &Refusal{fmt.Sprintf("%s: %s needs a plugin, and plugins are off", name, field), "no such field; a chart stands as kubernetes.helm"}
		}
	}
	for _, field := range fetched {
		for _, entry := range texts(fields[field]) {
			if at := path.Join(path.Dir(name), entry); remote(entry) || strings.HasPrefix(at, "../") || !t.Exists(at) {
				return &Refusal{fmt.Sprintf("%s: %s: there is no %q", name, field, entry), "a file or directory in the directory of the configuration; nothing is fetched"}
			}
		}
	}
	for _, field := range pathed {
		for _, entry := range paths(fields[field]) {
			if remote(entry) {
				return &Refusal{fmt.Sprintf("%s: %s: %q is elsewhere", name, field, entry), "a copy beside the kustomization; nothing is fetched"}
			}
		}
	}
	return nil
}

// texts lists the texts of a list.
func texts(v any) []string {
	var all []string
	items, _ := v.([]any)
	for _, item := range items {
		if text, ok := item.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// paths lists what may be a path in a field: texts of lists, and the entries path, files, envs and
// env of mappings. A file of a generator may have its key before it: key=path.
func paths(v any) []string {
	var all []string
	switch x := v.(type) {
	case []any:
		for _, item := range x {
			if text, ok := item.(string); ok {
				all = append(all, text)
			}
			all = append(all, paths(item)...)
		}
	case map[string]any:
		for _, key := range []string{"path", "env"} {
			if text, ok := x[key].(string); ok {
				all = append(all, text)
			}
		}
		for _, text := range append(texts(x["files"]), texts(x["envs"])...) {
			_, file, keyed := strings.Cut(text, "=")
			if !keyed {
				file = text
			}
			all = append(all, file)
		}
	}
	return all
}

// oneLine joins the lines of an error.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

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
		if r := refuse(t, name, data); r != nil {
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

// remote reports whether a path would be fetched from somewhere.
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
