package importer

import (
	"encoding/base64"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// This file evaluates the generators of an ApplicationSet that combine others, or that read files: of parameters, or of clusters.

// argoMatrix returns the combinations of two generators.
func (d argoReader) argoMatrix(matrix any, goTemplate bool) (sets []map[string]any, why string) {
	generators := listAt(matrix, "generators")
	if len(generators) != 2 {
		return nil, fmt.Sprintf("matrix has %d generators; expected 2", len(generators))
	}
	if strings.Contains(fmt.Sprint(generators[1]), "{{") {
		return nil, "matrix has a generator with templates"
	}
	var of [2][]map[string]any
	for i, generator := range generators {
		if of[i], why = d.argoParameterSets(generator, goTemplate); why != "" {
			return nil, why
		}
	}
	for _, first := range of[0] {
		for _, second := range of[1] {
			sets = append(sets, merged(first, second))
		}
	}
	return sets, ""
}

// argoFiles returns the parameters of the files that a git generator matches within this directory.
func (d argoReader) argoFiles(git any, goTemplate bool) (sets []map[string]any, why string) {
	if field(git, "pathParamPrefix") != nil || field(git, "values") != nil {
		return nil, "git.files with pathParamPrefix or values"
	}
	for _, each := range listAt(git, "files") {
		pattern := path.Clean(textAt(each, "path"))
		if _, err := path.Match(pattern, ""); err != nil || strings.Contains(pattern, "**") || field(each, "exclude") != nil {
			return nil, "git.files: " + pattern + " is not a pattern of one directory"
		}
		for _, dir := range append([]string{"."}, d.directories()...) {
			for _, name := range d.manifestsIn(dir) {
				if ok, _ := path.Match(pattern, path.Join(dir, name)); ok {
					sets = append(sets, d.argoFile(dir, name, goTemplate)...)
				}
			}
		}
	}
	if len(sets) == 0 {
		return nil, "git.files: there is no such file with parameters in this directory"
	}
	return sets, ""
}

// argoFile returns the parameters of each mapping in a file.
func (d argoReader) argoFile(dir, name string, goTemplate bool) (sets []map[string]any) {
	for _, o := range manifestsOf(name, []byte(d.text(path.Join(dir, name)))) {
		sets = append(sets, directoryParameters(dir, name, o.fields, goTemplate))
	}
	return sets
}

// argoClusters returns the parameters of the clusters whose Secrets are in this directory.
func (d argoReader) argoClusters(clusters any, _ bool) (sets []map[string]any, why string) {
	if what := unknownFields(clusters, "selector", "values"); len(what) > 0 {
		return nil, "clusters." + what[0]
	}
	if what := unknownFields(field(clusters, "selector"), "matchLabels"); len(what) > 0 {
		return nil, "clusters.selector." + what[0]
	}
	objects, err := d.objects("v1")
	if err != nil {
		return nil, err.Error()
	}
	for _, o := range objects {
		labels, _ := field(o.fields, "metadata", "labels").(map[string]any)
		if textAt(o.fields, "kind") == "Secret" && labels["argocd.argoproj.io/secret-type"] == "cluster" && hasLabels(labels, field(clusters, "selector", "matchLabels")) {
			sets = append(sets, clusterParameters(o.fields, labels, field(clusters, "values")))
		}
	}
	if len(sets) == 0 {
		return nil, "clusters that no Secret of this directory declares"
	}
	return sets, ""
}

func hasLabels(labels map[string]any, wanted any) bool {
	all, _ := wanted.(map[string]any)
	return !slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(key string) bool { return labels[key] != all[key] })
}

// clusterParameters returns the parameters of a cluster. Of its Secret only the name and the address are read.
func clusterParameters(secret, labels map[string]any, values any) map[string]any {
	parameters := map[string]any{"metadata": map[string]any{"labels": labels}, "values": values}
	for _, key := range []string{"name", "server"} {
		text := textAt(secret, "stringData", key)
		if decoded, err := base64.StdEncoding.DecodeString(textAt(secret, "data", key)); err == nil && text == "" {
			text = string(decoded)
		}
		parameters[key] = text
	}
	parameters["nameNormalized"] = normalizedName(textAt(parameters, "name"))
	return parameters
}
