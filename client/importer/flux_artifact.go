package importer

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// This file finds the content of an ExternalArtifact of Flux, which a controller makes: here only if an ArtifactGenerator of this directory
// copies one directory of a GitRepository into it.

// fluxPath returns the path in this directory of a path of a source, or the reason why it is not known here.
func (d fluxReader) fluxPath(o manifest, ref any, at string) (found, why string) {
	if textAt(ref, "kind") != "ExternalArtifact" {
		return at, ""
	}
	name := textAt(ref, "name")
	for _, generator := range d.found {
		if textAt(generator.fields, "kind") != "ArtifactGenerator" || !sameNamespace(o, ref, generator) {
			continue
		}
		for _, artifact := range listAt(generator.fields, "spec", "artifacts") {
			if textAt(artifact, "name") == name {
				if dir, ok := copiedDirectory(field(generator.fields, "spec"), artifact, at); ok {
					return dir, ""
				}
				return "", fmt.Sprintf("its source, the ExternalArtifact %s, is more than a copy of one directory of a GitRepository: commit its content, and name that as the path", name)
			}
		}
	}
	return "", fmt.Sprintf("its source, the ExternalArtifact %s, is made by a controller and not in this directory: commit its content, and name that as the path", name)
}

func sameNamespace(o manifest, ref any, other manifest) bool {
	namespace := textAt(ref, "namespace")
	if namespace == "" {
		namespace = textAt(o.fields, "metadata", "namespace")
	}
	return namespace == textAt(other.fields, "metadata", "namespace")
}

// copiedDirectory returns the directory of a path in an artifact, if that has the content of one directory of a GitRepository.
func copiedDirectory(spec, artifact any, at string) (string, bool) {
	copies := listAt(artifact, "copy")
	if len(copies) != 1 || len(unknownFields(copies[0], "from", "to")) > 0 {
		return "", false
	}
	alias, from, _ := strings.Cut(strings.TrimPrefix(textAt(copies[0], "from"), "@"), "/")
	inGit := slices.ContainsFunc(listAt(spec, "sources"), func(source any) bool {
		return textAt(source, "alias") == alias && textAt(source, "kind") == "GitRepository"
	})
	from, all := strings.CutSuffix("/"+from, "/**")
	to, artifactRoot := strings.CutPrefix(textAt(copies[0], "to"), "@artifact/")
	below, inside := strings.CutPrefix(path.Join("/", at)+"/", path.Join("/", to)+"/")
	if path.Join("/", to) == "/" {
		below, inside = at, true
	}
	if !inGit || !all || !artifactRoot || !inside || strings.ContainsAny(from, "*?[") {
		return "", false
	}
	return strings.TrimPrefix(path.Join("/", from, below), "/"), true
}
