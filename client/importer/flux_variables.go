package importer

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"

	"github.com/converge-engine/converge/intent/sources"
)

// fluxVariable matches a variable that Flux substitutes, with or without a default.
var fluxVariable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*[^{}]*\}`)

// fluxVariables returns the variables in a rendered source, each once, in order. A source that cannot be rendered has none; it is left
// out for that reason.
func (d fluxReader) fluxVariables(kubernetes map[string]any) (found []string) {
	root := os.DirFS(string(d.directory))
	if dir, ok := kubernetes["kustomize"].(string); ok {
		text, _, err := sources.Kustomize(root, dir, nil)
		if err != nil {
			return nil
		}
		found = fluxVariable.FindAllString(string(text.Data), -1)
	}
	list, _ := kubernetes["manifests"].([]any)
	for _, each := range list {
		at, _ := each.(string)
		_ = fs.WalkDir(root, path.Clean(at), func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				data, _ := fs.ReadFile(root, name)
				found = append(found, fluxVariable.FindAllString(string(data), -1)...)
			}
			return nil
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}
