package importer

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/sources"
)

// This file finds what a HelmRelease of Flux refers to: its chart, its values, and the differences that it ignores.

// fluxContents records the HelmReleases that the source of a Kustomization contains, each as a service, and reports whether the source is
// no service itself: it has only what Flux reads.
func (d fluxReader) fluxContents(name string, to named, kubernetes map[string]any, spec any) bool {
	objects := d.rendered(kubernetes)
	var others []string
	nested := false
	for _, o := range objects {
		version, kind := textAt(o.fields, "apiVersion"), textAt(o.fields, "kind")
		switch group, _, _ := strings.Cut(version, "/"); {
		case group == "kustomize.toolkit.fluxcd.io":
			nested = true
		case group == "helm.toolkit.fluxcd.io" && kind == "HelmRelease":
			d.fluxContained(name, to, o, objects, spec)
		case group != "source.toolkit.fluxcd.io" && kind != "Namespace":
			others = append(others, kind+" "+textAt(o.fields, "metadata", "name"))
		}
	}
	contains := nested || len(d.expanded[NameOf(to.service)]) > 0
	if contains && len(others) > 0 {
		d.omit("%s also has %s: move what Flux does not read to a Kustomization of its own", name, strings.Join(others, ", "))
	}
	return contains
}

// fluxContained records a HelmRelease of a Kustomization, in the channel of that.
func (d fluxReader) fluxContained(name string, to named, o manifest, among []manifest, spec any) {
	base, channel := environmentOf(textAt(o.fields, "metadata", "name"))
	if to.channel != defaultChannel {
		channel = to.channel
	}
	d.released[textAt(o.fields, "metadata", "name")] = true
	if textAt(o.fields, "metadata", "namespace") == "" {
		metadata, _ := o.fields["metadata"].(map[string]any)
		metadata["namespace"] = textAt(spec, "targetNamespace")
	}
	d.fluxRelease(o, named{base, channel, to.cluster}, among)
	service := NameOf(base)
	if group := NameOf(to.service); !slices.Contains(d.expanded[group], service) {
		d.expanded[group] = append(d.expanded[group], service)
	}
	for _, each := range listAt(spec, "dependsOn") {
		other, _ := environmentOf(textAt(each, "name"))
		d.needs[service] = append(d.needs[service], NameOf(other))
	}
	if field(spec, "patches") != nil || field(spec, "postBuild") != nil {
		d.stop(base, fmt.Sprintf("the Kustomization %s has patches or postBuild for it: write them into its directory", name))
	}
}

// rendered returns the objects of a kustomization or of manifests; none if they cannot be read.
func (d reader) rendered(kubernetes map[string]any) (objects []manifest) {
	if dir, ok := kubernetes["kustomize"].(string); ok {
		text, _, err := sources.Kustomize(os.DirFS(string(d.directory)), dir, nil)
		if err != nil {
			return nil
		}
		return manifestsOf(path.Join(dir, "kustomization.yaml"), text.Data)
	}
	for _, each := range listAt(kubernetes, "manifests") {
		dir := path.Clean(fmt.Sprint(each))
		for _, name := range d.manifestsIn(dir) {
			objects = append(objects, manifestsOf(path.Join(dir, name), []byte(d.text(path.Join(dir, name))))...)
		}
	}
	return objects
}

// manifestsOf returns the objects of a text, up to a document that is not one.
func manifestsOf(file string, text []byte) (objects []manifest) {
	for value, err := range sources.Documents(text) {
		fields, ok := value.(map[string]any)
		if !ok && value != nil || err != nil {
			return objects
		}
		if fields != nil {
			objects = append(objects, manifest{file: file, fields: fields})
		}
	}
	return objects
}

// fluxChart returns where a HelmRelease has its chart from.
func fluxChart(o manifest, all []manifest) location {
	spec := field(o.fields, "spec")
	if ref := field(spec, "chartRef"); ref != nil {
		source := fluxSource(o, ref, all)
		url := textAt(source, "spec", "url")
		return location{
			chart: cmp.Or(path.Base(url), textAt(ref, "name")), repository: cmp.Or(strings.TrimSuffix(url, "/"+path.Base(url)), textAt(ref, "kind")+" "+textAt(ref, "name")),
			version: cmp.Or(textAt(source, "spec", "ref", "semver"), textAt(source, "spec", "ref", "tag")),
		}
	}
	from := field(spec, "chart", "spec")
	chart, kind := textAt(from, "chart"), textAt(from, "sourceRef", "kind")
	where := fmt.Sprintf("%s %s", kind, textAt(from, "sourceRef", "name"))
	if kind == "GitRepository" || kind == "Bucket" || strings.HasPrefix(chart, ".") {
		return location{path: path.Clean(chart), repository: where}
	}
	url := textAt(fluxSource(o, field(from, "sourceRef"), all), "spec", "url")
	return location{chart: chart, repository: cmp.Or(url, where), version: textAt(from, "version")}
}

// fluxSource returns the object of Flux that a HelmRelease refers to, or nil.
func fluxSource(o manifest, ref any, all []manifest) map[string]any {
	namespace := cmp.Or(textAt(ref, "namespace"), textAt(o.fields, "metadata", "namespace"))
	var found map[string]any
	for _, each := range all {
		if textAt(each.fields, "kind") != textAt(ref, "kind") || textAt(each.fields, "metadata", "name") != textAt(ref, "name") {
			continue
		}
		if found == nil || textAt(each.fields, "metadata", "namespace") == namespace {
			found = each.fields
		}
	}
	return found
}

// fluxValues carries over the values of a HelmRelease: the files of its chart, then valuesFrom, then its own.
func (d fluxReader) fluxValues(service string, o manifest, helm map[string]any, all []manifest) {
	name, spec := textAt(o.fields, "metadata", "name"), field(o.fields, "spec")
	from := field(spec, "chart", "spec")
	var files []any
	for _, each := range listAt(from, "valuesFiles") {
		if file := path.Clean(fmt.Sprint(each)); d.exists(file) {
			files = append(files, file)
		} else if field(from, "ignoreMissingValuesFiles") != true {
			d.stop(service, fmt.Sprintf("%s has the values file %s, which is not in this directory: copy it", name, each))
		}
	}
	if len(files) > 0 {
		helm["valuesFiles"] = files
	}
	var values map[string]any
	for _, ref := range listAt(spec, "valuesFrom") {
		found, ok := d.fluxValuesFrom(o, ref, all)
		if ok {
			values = merged(values, found)
		} else if field(ref, "optional") != true {
			d.stop(service, fmt.Sprintf("%s has valuesFrom %s %s, which is not readable in this directory: write its values into spec.values", name, textAt(ref, "kind"), textAt(ref, "name")))
		}
	}
	own, _ := field(spec, "values").(map[string]any)
	if values = merged(values, own); len(values) > 0 {
		helm["values"] = values
	}
}

// plainPath matches a path of values without indexes and escapes.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// fluxValuesFrom returns the values of a ConfigMap; those of a Secret only if it is no secret: it is here in plain text.
func (d fluxReader) fluxValuesFrom(o manifest, ref any, all []manifest) (values map[string]any, ok bool) {
	if textAt(ref, "kind") != "ConfigMap" {
		return nil, false
	}
	object := fluxSource(o, ref, all)
	if object == nil {
		plain, err := d.objects("v1")
		if err != nil {
			return nil, false
		}
		object = fluxSource(o, ref, plain)
	}
	key := cmp.Or(textAt(ref, "valuesKey"), "values.yaml")
	text, ok := field(object, "data", key).(string)
	if binary, isBinary := field(object, "binaryData", key).(string); isBinary {
		decoded, err := base64.StdEncoding.DecodeString(binary)
		text, ok = string(decoded), err == nil
	}
	if !ok {
		return nil, false
	}
	at := textAt(ref, "targetPath")
	if at == "" {
		values, err := sources.HelmValues([]byte(text))
		return values, err == nil
	}
	plain := strings.Trim(text, `"'`)
	if !plainPath.MatchString(at) || strings.ContainsAny(plain, `\,`) {
		return nil, false
	}
	if plain != text { // Flux reads what is in quotes as text
		return nest(strings.Split(at, "."), plain), true
	}
	return nest(strings.Split(at, "."), setValue(text)), true
}

// fluxIgnored returns the differences that a HelmRelease ignores.
func (d fluxReader) fluxIgnored(service, name string, spec any) (all []any) {
	for _, each := range listAt(spec, "driftDetection", "ignore") {
		target := field(each, "target")
		ignored := map[string]any{"group": "*", "kind": "*", "jsonPointers": listAt(each, "paths")}
		for _, key := range []string{"group", "kind", "name", "namespace"} {
			if text := textAt(target, key); text != "" {
				ignored[key] = text
			}
		}
		what := unknownFields(target, "group", "version", "kind", "name", "namespace")
		for _, key := range []string{"kind", "name"} {
			if text := textAt(target, key); strings.ContainsAny(text, `.*+?()[]{}|\^$`) { // Flux reads them as regular expressions
				what = append(what, key)
			}
		}
		if len(what) > 0 {
			d.stop(service, fmt.Sprintf("%s has driftDetection.ignore by %s: name the objects in kubernetes.ignoreDifferences", name, strings.Join(what, ", ")))
			continue
		}
		all = append(all, ignored)
	}
	return all
}

// fluxPostRenderers returns the patches of a HelmRelease.
func (d fluxReader) fluxPostRenderers(service, name string, spec any) (patches []any) {
	for _, each := range listAt(spec, "postRenderers") {
		for _, what := range append(unknownFields(each, "kustomize"), unknownFields(field(each, "kustomize"), "patches")...) {
			d.stop(service, fmt.Sprintf("%s has postRenderers with %s: write patches", name, what))
		}
		patches = append(patches, listAt(each, "kustomize", "patches")...)
	}
	return patches
}
