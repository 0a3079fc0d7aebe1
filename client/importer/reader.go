package importer

import (
	"cmp"
	"path"
)

// reader reads the files of a directory, and records the services that a tool deploys from them. The code for each tool is in its own
// file.
type reader struct {
	directory
	*deployed
}

var readers = map[Tool]func(reader) error{
	"helm": fromHelm, "kustomize": fromKustomize, "argocd": fromArgo, "flux": fromFlux,
}

// source returns the part of a payload at a location that a tool names. It returns nil if the location is not in the directory.
func (d reader) source(name, dir, chart, repository string) map[string]any {
	if chart != "" {
		for _, at := range []string{path.Join("charts", chart), chart} {
			if d.exists(path.Join(at, "Chart.yaml")) {
				return d.sourceAt(at)
			}
		}
		d.omit("%s: the chart %s of %s is not in charts/%[2]s: fetch it with helm pull --untar", name, chart, repository)
		return nil
	}
	found := d.sourceAt(cmp.Or(dir, "."))
	if found == nil {
		d.omit("%s: no %s in this directory, of %s", name, dir, repository)
	}
	if _, plain := found["manifests"]; plain && path.Clean(dir) == "." {
		d.omit("%s is the whole directory, including its own declaration", name)
		return nil
	}
	return found
}
