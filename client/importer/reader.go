package importer

import (
	"cmp"
	"path"
	"strings"
)

// reader reads the files of a directory, and records the services that a tool deploys from them. The code for each tool is in its own
// file.
type reader struct {
	directory
	*deployed
}

// objects reads the objects of some groups, and leaves out those that cannot be read as kubectl reads them.
func (d reader) objects(groups ...string) (found []manifest, err error) {
	all, err := d.directory.objects(groups...)
	for _, o := range all {
		if o.fault != nil {
			d.omit("%s %s of %s: %v", textAt(o.fields, "kind"), textAt(o.fields, "metadata", "name"), o.file, o.fault)
		} else {
			found = append(found, o)
		}
	}
	return found, err
}

var readers = map[Tool]func(reader) error{
	"helm": fromHelm, "kustomize": fromKustomize, "manifests": fromManifests, "argocd": fromArgo, "flux": fromFlux,
}

// location names what a tool deploys: a directory, or a chart.
type location struct {
	path                       string
	chart, repository, version string
	recurse                    bool // manifests in the directories below it too
}

// source returns the part of a payload at a location. It returns nil if the location is not in the directory.
func (d reader) source(name string, at location) map[string]any {
	if at.chart != "" {
		found := d.chartAt(at)
		if found == nil {
			d.omit("%s: the chart %s of %s is not in charts/%[2]s: fetch it with helm pull --untar", name, at.chart, at.repository)
		}
		return found
	}
	dir := cmp.Or(at.path, ".")
	found := d.sourceAt(dir, at.recurse)
	if found == nil {
		d.omit("%s: no %s in this directory, of %s", name, dir, at.repository)
	}
	if _, plain := found["manifests"]; plain && path.Clean(dir) == "." {
		d.omit("%s is the whole directory, including its own declaration", name)
		return nil
	}
	return found
}

// chartAt returns the chart of a location: the one in this directory, else that of the repository, which is locked.
func (d reader) chartAt(at location) map[string]any {
	for _, dir := range []string{path.Join("charts", at.chart), at.chart} {
		if d.exists(path.Join(dir, "Chart.yaml")) {
			return d.sourceAt(dir, false)
		}
	}
	version := cmp.Or(at.version, "*")
	switch host, _, _ := strings.Cut(at.repository, "/"); {
	case strings.HasPrefix(at.repository, "https://"), strings.HasPrefix(at.repository, "http://"):
		return map[string]any{"helm": map[string]any{"chart": at.chart, "repository": at.repository, "version": version}}
	case strings.HasPrefix(at.repository, "oci://"):
		return map[string]any{"helm": map[string]any{"chart": strings.TrimSuffix(at.repository, "/") + "/" + at.chart, "version": version}}
	case strings.Contains(host, "."), strings.Contains(host, ":"): // Argo CD names a registry without a scheme
		return map[string]any{"helm": map[string]any{"chart": "oci://" + strings.TrimSuffix(at.repository, "/") + "/" + at.chart, "version": version}}
	}
	return nil
}
