package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/sources"
)

// This file reads the source of an Application of Argo CD: what it deploys, and what it adds to that.

// argoSource returns the source with the objects of an Application. Others may only be referred to by its values files.
func (d argoReader) argoSource(service, name string, spec any) any {
	var found []any
	for _, source := range listAt(spec, "sources") {
		if textAt(source, "path") != "" || textAt(source, "chart") != "" {
			found = append(found, source)
		}
	}
	switch {
	case field(spec, "source") != nil || len(found) == 0:
		return field(spec, "source")
	case len(found) > 1:
		d.stop(service, fmt.Sprintf("%s has %d sources: give each an Application of its own", name, len(found)))
	}
	return found[0]
}

// argoPart returns what a source deploys, or nil if it is not in this directory.
func (d argoReader) argoPart(service, channel, name string, source any) *deployedPart {
	directory := field(source, "directory")
	part := &deployedPart{kubernetes: d.source(name, location{
		path: textAt(source, "path"), chart: textAt(source, "chart"), repository: textAt(source, "repoURL"), version: textAt(source, "targetRevision"),
		recurse: field(directory, "recurse") == true,
	})}
	if part.kubernetes == nil || d.ofApplications(name, part.kubernetes) {
		return nil
	}
	if helm, ok := part.kubernetes["helm"].(map[string]any); ok {
		d.argoHelm(service, name, helm, field(source, "helm"))
	}
	for _, what := range unknownFields(directory, "recurse") {
		d.stop(service, fmt.Sprintf("%s has source.directory.%s: name the files in kubernetes.manifests", name, what))
	}
	if field(source, "plugin") != nil {
		d.stop(service, name+" has source.plugin: commit what the plugin generates")
	}
	if added := d.argoKustomize(service, name, textAt(source, "path"), field(source, "kustomize")); added != nil {
		for _, what := range part.build(service, channel, added) {
			d.stop(service, fmt.Sprintf("%s has source.kustomize.%s, and its directory has no kustomization: write one", name, what))
		}
	}
	return part
}

// ofApplications reports whether a source has only what Argo CD reads, such as other Applications. These are read where they are.
func (d argoReader) ofApplications(name string, kubernetes map[string]any) bool {
	if chart := textAt(kubernetes, "helm", "chart"); chart != "" {
		for _, file := range d.manifestsIn(path.Join(chart, "templates")) {
			if text := d.text(path.Join(chart, "templates", file)); strings.Contains(text, "argoproj.io/") && strings.Contains(text, "kind: Application") {
				d.omit("%s renders Applications: render its chart into this directory", name)
				return true
			}
		}
		return false
	}
	var others []string
	found := false
	for _, o := range d.rendered(kubernetes) {
		group, _, _ := strings.Cut(textAt(o.fields, "apiVersion"), "/")
		if kind := textAt(o.fields, "kind"); group == "argoproj.io" && slices.Contains([]string{"Application", "ApplicationSet", "AppProject"}, kind) {
			found = true
		} else {
			others = append(others, kind+" "+textAt(o.fields, "metadata", "name"))
		}
	}
	if found && len(others) > 0 {
		d.omit("%s also has %s: move what Argo CD does not read to an Application of its own", name, strings.Join(others, ", "))
	}
	return found
}

// argoKustomize returns what an Application adds to a kustomization, in its fields.
func (d argoReader) argoKustomize(service, name, dir string, from any) map[string]any {
	given, _ := from.(map[string]any)
	added := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch key {
		case "namePrefix", "nameSuffix", "namespace", "replicas", "commonAnnotations":
			added[key] = given[key]
		case "commonLabels":
			added["labels"] = []any{map[string]any{
				"pairs": given[key], "includeSelectors": given["labelWithoutSelector"] != true, "includeTemplates": given["labelIncludeTemplates"] == true,
			}}
		case "images":
			var all []any
			for _, each := range listAt(from, key) {
				all = append(all, kustomizeImage(fmt.Sprint(each)))
			}
			added[key] = all
		case "components":
			added[key] = d.components(dir, listAt(from, key))
		case "patches":
			added[key] = d.patches(dir, listAt(from, key))
		case "forceCommonLabels", "forceCommonAnnotations", "labelWithoutSelector", "labelIncludeTemplates", "version": // parts of others, or how it builds
		default:
			d.stop(service, fmt.Sprintf("%s has source.kustomize.%s: write it into its kustomization.yaml", name, key))
		}
	}
	d.hintImages(name, listAt(added, "images"))
	return added
}

// kustomizeImage returns an image of a kustomization for one in the syntax of `kustomize edit set image`.
func kustomizeImage(text string) map[string]any {
	name, target, renamed := strings.Cut(text, "=")
	if !renamed {
		target = name
	}
	image := map[string]any{}
	if at, digest, ok := strings.Cut(target, "@"); ok {
		target, image["digest"] = at, digest
	} else if colon := strings.LastIndexByte(target, ':'); colon > strings.LastIndexByte(target, '/') {
		target, image["newTag"] = target[:colon], target[colon+1:]
	}
	if !renamed {
		name = target
	}
	image["name"] = name
	if target != name && target != "*" {
		image["newName"] = target
	}
	return image
}

// components returns the components of a tool's kustomization, as paths from an overlay.
func (d reader) components(dir string, all []any) (paths []any) {
	for _, each := range all {
		paths = append(paths, path.Join("../..", strings.TrimPrefix(dir, "/"), fmt.Sprint(each)))
	}
	return paths
}

// patches returns the patches of a tool's kustomization, with the text of those that are files.
func (d reader) patches(dir string, all []any) (patches []any) {
	for _, each := range all {
		patch, _ := each.(map[string]any)
		patch = maps.Clone(patch)
		if file := textAt(patch, "path"); file != "" {
			delete(patch, "path")
			patch["patch"] = d.text(path.Join(strings.TrimPrefix(dir, "/"), file)) // an empty patch is refused when it is compiled
		}
		if text := strings.TrimSpace(textAt(patch, "patch")); strings.HasPrefix(text, "[") { // Kustomize reads only JSON here
			for operations, err := range sources.Documents([]byte(text)) {
				if data, invalid := json.Marshal(operations); err == nil && invalid == nil {
					patch["patch"] = string(data)
				}
			}
		}
		patches = append(patches, patch)
	}
	return patches
}

// hintImages says how the version becomes the tag of an image.
func (d reader) hintImages(name string, images []any) {
	for _, image := range images {
		if tag := textAt(image, "newTag"); tag != "" {
			d.omit("the tag of the image %s of %s is %s: use ${{ version }} there, so that releases change it", textAt(image, "name"), name, tag)
		}
	}
}
