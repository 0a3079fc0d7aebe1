package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/converge-engine/converge/intent/internal/strict"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/krusty"
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

// judge refuses what would be fetched or run. Kustomize reads every kustomization through the tree
// before it follows it.
func judge(t *tree, name string, data []byte) *Refusal {
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
