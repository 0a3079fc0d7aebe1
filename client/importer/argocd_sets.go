package importer

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// This file generates the Applications of an ApplicationSet of Argo CD: from a list, from files and directories that exist locally, and
// from combinations of these. A template may contain names of parameters, and with goTemplate the functions that Argo CD offers.

// argoSet records the Applications of an ApplicationSet, or the reason why it can have none here.
func (d argoReader) argoSet(name string, spec any) {
	switch {
	case field(spec, "templatePatch") != nil:
		d.omit("ApplicationSet %s: templatePatch changes its template: declare the Applications that it generates", name)
		return
	case len(listAt(spec, "generators")) == 0:
		d.omit("ApplicationSet %s: it has no generators", name)
	case field(spec, "strategy") != nil:
		d.omit("ApplicationSet %s: strategy: preconditions define the order of the channels", name)
	}
	goTemplate := field(spec, "goTemplate") == true
	for n, generator := range listAt(spec, "generators") {
		sets, why := d.argoParameterSets(generator, goTemplate)
		if why != "" {
			d.omit("ApplicationSet %s, generator %d: %s: declare the Applications that it generates, or a fleet", name, n+1, why)
			continue
		}
		for _, parameters := range sets {
			d.argoFromTemplate(name, field(spec, "template"), newFiller(spec, parameters))
		}
	}
}

// argoFromTemplate records one Application of a set.
func (d argoReader) argoFromTemplate(set string, template any, f filler) {
	filled, err := f.fill(template)
	if err != nil {
		d.omit("ApplicationSet %s: %v", set, err)
		return
	}
	name := textAt(filled, "metadata", "name")
	if name == "" {
		d.omit("ApplicationSet %s: its template has no name for the Application", set)
		return
	}
	d.argo(name, field(filled, "spec"))
}

// argoParameterSets returns the parameters of each Application of a generator, or the reason why they are unknown here.
func (d argoReader) argoParameterSets(generator any, goTemplate bool) (sets []map[string]any, why string) {
	kinds, _ := generator.(map[string]any)
	for _, what := range []string{"selector", "template"} {
		if kinds[what] != nil {
			return nil, "it has its own " + what
		}
	}
	for kind, generate := range map[string]func(any, bool) ([]map[string]any, string){
		"list": argoList, "git": d.argoGit, "clusters": d.argoClusters, "matrix": d.argoMatrix,
	} {
		if generator := kinds[kind]; generator != nil {
			if field(generator, "template") != nil {
				return nil, "it has its own template"
			}
			return generate(generator, goTemplate)
		}
	}
	return nil, strings.Join(slices.Sorted(maps.Keys(kinds)), ", ") + " cannot be evaluated from files"
}

// argoList returns the elements of a list generator.
func argoList(list any, _ bool) (sets []map[string]any, why string) {
	if field(list, "elementsYaml") != nil {
		return nil, "list.elementsYaml is computed"
	}
	for _, element := range listAt(list, "elements") {
		if parameters, ok := element.(map[string]any); ok {
			sets = append(sets, parameters)
		}
	}
	return sets, ""
}

// argoGit returns the parameters of files or of directories.
func (d argoReader) argoGit(git any, goTemplate bool) (sets []map[string]any, why string) {
	files, directories := len(listAt(git, "files")) > 0, len(listAt(git, "directories")) > 0
	switch {
	case files && directories:
		return nil, "git with files and directories"
	case directories:
		return d.argoDirectories(git, goTemplate)
	}
	return d.argoFiles(git, goTemplate)
}

// flatParameters returns the values of an element, by their path in a template.
func flatParameters(element any) map[string]string {
	flat := map[string]string{}
	var walk func(at string, value any)
	walk = func(at string, value any) {
		if inner, ok := value.(map[string]any); ok {
			for key, each := range inner {
				walk(strings.TrimPrefix(at+"."+key, "."), each)
			}
			return
		}
		if _, list := value.([]any); !list && value != nil {
			flat[at] = fmt.Sprint(value)
		}
	}
	walk("", element)
	return flat
}

// argoDirectories returns the directories that a git generator matches within this directory.
func (d argoReader) argoDirectories(git any, goTemplate bool) (sets []map[string]any, why string) {
	if field(git, "pathParamPrefix") != nil {
		return nil, "git.pathParamPrefix"
	}
	var includes, excludes []string
	for _, each := range listAt(git, "directories") {
		pattern := path.Clean(textAt(each, "path"))
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, "git.directories: " + pattern + " is not a pattern"
		}
		if field(each, "exclude") == true {
			excludes = append(excludes, pattern)
		} else {
			includes = append(includes, pattern)
		}
	}
	extra := map[string]any{}
	if values, ok := field(git, "values").(map[string]any); ok {
		extra["values"] = values
	}
	for value := range maps.Values(flatParameters(extra)) {
		if strings.Contains(value, "{{") {
			return nil, "git.values has templates"
		}
	}
	for _, at := range d.directories() {
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, at); return ok }
		if slices.ContainsFunc(includes, matches) && !slices.ContainsFunc(excludes, matches) {
			sets = append(sets, directoryParameters(at, "", extra, goTemplate))
		}
	}
	if len(sets) == 0 {
		return nil, "none of its directories (" + strings.Join(includes, ", ") + ") exists in this one"
	}
	return sets, ""
}

var notInAppNames = regexp.MustCompile(`[^-a-z0-9.]`)

// directoryParameters returns the parameters of a directory, and of a file in it unless that is empty, for a template.
func directoryParameters(at, file string, extra map[string]any, goTemplate bool) map[string]any {
	base := path.Base(at)
	own := map[string]any{"basename": base, "basenameNormalized": normalizedName(base)}
	if file != "" {
		own["filename"], own["filenameNormalized"] = file, normalizedName(file)
	}
	segments := strings.Split(at, "/")
	if goTemplate {
		own["path"], own["segments"] = at, segments
		return merged(extra, map[string]any{"path": own})
	}
	parameters := maps.Clone(extra)
	parameters["path"] = at
	for key, value := range own {
		parameters["path."+key] = value
	}
	for n, segment := range segments {
		parameters[fmt.Sprintf("path[%d]", n)] = segment
	}
	return parameters
}

func normalizedName(text string) string {
	return notInAppNames.ReplaceAllString(strings.ToLower(text), "-")
}
