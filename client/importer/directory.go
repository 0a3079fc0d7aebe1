package importer

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/sources"
)

// directory is the directory that an import reads.
type directory string

// exists reports whether a path exists in the directory.
func (d directory) exists(path string) bool {
	if !filepath.IsLocal(path) {
		return false
	}
	_, err := os.Stat(filepath.Join(string(d), path))
	return err == nil
}

// kustomized reports whether a directory has a kustomization.
func (d directory) kustomized(dir string) bool {
	return slices.ContainsFunc([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, func(name string) bool {
		return d.exists(filepath.Join(dir, name))
	})
}

// sourceAt returns the part of a payload that a directory below holds: a chart, a kustomization, or manifests, with those below it too if
// recurse is set.
func (d directory) sourceAt(dir string, recurse bool) map[string]any {
	dir = filepath.ToSlash(filepath.Clean(strings.TrimPrefix(dir, "/")))
	switch {
	case !d.exists(dir):
		return nil
	case d.exists(filepath.Join(dir, "Chart.yaml")):
		return map[string]any{"helm": map[string]any{"chart": dir}}
	case d.kustomized(dir):
		return map[string]any{"kustomize": dir}
	}
	manifests := []any{dir + "/"}
	for _, below := range d.directories() {
		if recurse && strings.HasPrefix(below, dir+"/") && len(d.manifestsIn(below)) > 0 {
			manifests = append(manifests, below+"/")
		}
	}
	return map[string]any{"manifests": manifests}
}

// manifestsIn returns the names of the YAML and JSON files of a directory, sorted.
func (d directory) manifestsIn(dir string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(string(d), dir))
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.Type().IsRegular() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			names = append(names, e.Name())
		}
	}
	return names
}

// read reads a regular file below the directory. A link that leads out of it is refused: what is read becomes a part of the configuration.
func (d directory) read(path string) ([]byte, error) {
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	path = filepath.FromSlash(path)
	switch info, err := root.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	case info.Size() > config.MaxSource:
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read", path, info.Size(), config.MaxSource)
	}
	return root.ReadFile(path)
}

// text returns the text of a file, or "" if it cannot be read.
func (d directory) text(path string) string {
	data, _ := d.read(path)
	return string(data)
}

// document reads a mapping from a YAML file; it returns nil for any other file.
func (d directory) document(path string) (document map[string]any) {
	data, err := d.read(path)
	if err != nil {
		return nil
	}
	for value, err := range sources.Documents(data) {
		if document, _ = value.(map[string]any); err != nil {
			return nil
		}
		break
	}
	return document
}

// manifest is an object of a file, whose path is relative to the directory.
type manifest struct {
	file   string
	fields map[string]any
	fault  error // what of it cannot be read, or nil
}

// objects reads the objects of some groups from all manifests of the directory. The group of the core is v1 here.
func (d directory) objects(groups ...string) (found []manifest, err error) {
	err = filepath.WalkDir(string(d), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != string(d) {
			return cmp.Or(err, fs.SkipDir)
		}
		if ext := filepath.Ext(path); entry.IsDir() || !entry.Type().IsRegular() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil && len(data) <= config.MaxSource {
			name, _ := filepath.Rel(string(d), path) // it is below
			found = append(found, objectsOfGroups(filepath.ToSlash(name), data, groups)...)
		}
		return err
	})
	return found, err
}

// directories returns all directories below this one, without hidden ones, in order.
func (d directory) directories() (all []string) {
	_ = fs.WalkDir(os.DirFS(string(d)), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || !entry.IsDir() || name == ".":
			return nil //nolint:nilerr // what cannot be read is not found
		case strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		}
		all = append(all, filepath.ToSlash(name))
		return nil
	})
	return all
}

// dirsWith returns the directories that match a pattern and have a file.
func (d directory) dirsWith(file string, patterns ...string) (dirs []string) {
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(string(d), pattern, file))
		for _, path := range found {
			if dir, err := filepath.Rel(string(d), filepath.Dir(path)); err == nil {
				dirs = append(dirs, filepath.ToSlash(dir))
			}
		}
		if pattern == "." && len(dirs) > 0 {
			return dirs // its subdirectories are a part of it
		}
	}
	return dirs
}

// valuesFiles returns files of values, by the environment that they are named after.
func (d directory) valuesFiles(dirs []string) map[string]string {
	files := map[string]string{}
	for _, dir := range dirs {
		for pattern, cut := range map[string][2]string{
			"values-*.yaml": {"values-", ".yaml"}, "values.*.yaml": {"values.", ".yaml"}, "*-values.yaml": {"", "-values.yaml"},
			"values/*.yaml": {"", ".yaml"}, "environments/*.yaml": {"", ".yaml"}, "env/*.yaml": {"", ".yaml"},
		} {
			found, _ := filepath.Glob(filepath.Join(string(d), dir, pattern))
			for _, path := range found {
				name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), cut[0]), cut[1])
				if file, err := filepath.Rel(string(d), path); err == nil && isName(name) {
					files[name] = filepath.ToSlash(file)
				}
			}
		}
	}
	return files
}

// folders returns the names of the folders in a directory, sorted.
func (d directory) folders(dir string) (names []string) {
	found, _ := filepath.Glob(filepath.Join(string(d), dir, "*", "."))
	for _, each := range found {
		if name := filepath.Base(filepath.Clean(each)); !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names
}

// objectsOfGroups returns the objects of some groups in a file. It stops at a document that is not YAML,
// and skips objects of templates.
func objectsOfGroups(file string, data []byte, groups []string) (found []manifest) {
	for value, err := range sources.Documents(data) {
		object, _ := value.(map[string]any)
		version, _ := object["apiVersion"].(string)
		if group, _, _ := strings.Cut(version, "/"); slices.Contains(groups, group) && !strings.Contains(textAt(object, "metadata", "name"), "{{") {
			found = append(found, manifest{file, object, err})
		}
	}
	return found
}

// field returns the value at a path through nested mappings; nil when there is none.
func field(from any, path ...string) any {
	for _, name := range path {
		object, _ := from.(map[string]any)
		from = object[name]
	}
	return from
}

func textAt(from any, path ...string) string {
	text, _ := field(from, path...).(string)
	return text
}

func listAt(from any, path ...string) []any {
	list, _ := field(from, path...).([]any)
	return list
}
