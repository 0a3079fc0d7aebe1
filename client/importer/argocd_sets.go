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
// from combinations of these. A template may contain names of parameters and no other expressions.

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
			d.argoFromTemplate(name, field(spec, "template"), parameters, goTemplate)
		}
	}
}

// argoFromTemplate records one Application of a set.
func (d argoReader) argoFromTemplate(set string, template any, parameters map[string]string, goTemplate bool) {
	filled, err := fillTemplate(template, parameters, goTemplate)
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
func (d argoReader) argoParameterSets(generator any, goTemplate bool) (sets []map[string]string, why string) {
	kinds, _ := generator.(map[string]any)
	for _, what := range []string{"selector", "template"} {
		if kinds[what] != nil {
			return nil, "it has its own " + what
		}
	}
	for kind, generate := range map[string]func(any, bool) ([]map[string]string, string){
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
func argoList(list any, _ bool) (sets []map[string]string, why string) {
	if field(list, "elementsYaml") != nil {
		return nil, "list.elementsYaml is computed"
	}
	for _, element := range listAt(list, "elements") {
		sets = append(sets, flatParameters(element))
	}
	return sets, ""
}

// argoGit returns the parameters of files or of directories.
func (d argoReader) argoGit(git any, goTemplate bool) (sets []map[string]string, why string) {
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
func (d argoReader) argoDirectories(git any, goTemplate bool) (sets []map[string]string, why string) {
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
	extra := flatParameters(map[string]any{"values": field(git, "values")})
	for value := range maps.Values(extra) {
		if strings.Contains(value, "{{") {
			return nil, "git.values has templates"
		}
	}
	for _, at := range d.directories() {
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, at); return ok }
		if slices.ContainsFunc(includes, matches) && !slices.ContainsFunc(excludes, matches) {
			sets = append(sets, directoryParameters(at, extra, goTemplate))
		}
	}
	if len(sets) == 0 {
		return nil, "none of its directories (" + strings.Join(includes, ", ") + ") exists in this one"
	}
	return sets, ""
}

var notInAppNames = regexp.MustCompile(`[^-a-z0-9.]`)

// directoryParameters returns the parameters of a directory for a template.
func directoryParameters(at string, extra map[string]string, goTemplate bool) map[string]string {
	base := path.Base(at)
	normalized := notInAppNames.ReplaceAllString(strings.ToLower(base), "-")
	parameters := maps.Clone(extra)
	parameters["path.basename"], parameters["path.basenameNormalized"] = base, normalized
	if goTemplate {
		parameters["path.path"] = at
		return parameters
	}
	parameters["path"] = at
	for n, segment := range strings.Split(at, "/") {
		parameters[fmt.Sprintf("path[%d]", n)] = segment
	}
	return parameters
}

var templateRE = regexp.MustCompile(`\{\{-?\s*([^{}]*?)\s*-?\}\}`)

// simpleName matches a single name. In Go templates the name begins with a dot.
var simpleName = regexp.MustCompile(`^\.?[A-Za-z_][-A-Za-z0-9_]*(\.[A-Za-z_][-A-Za-z0-9_]*|\[[0-9]+\])*$`)

// fillTemplate returns a template with its parameters replaced. An expression that is not the name of a parameter is an error.
func fillTemplate(template any, parameters map[string]string, goTemplate bool) (any, error) {
	switch x := template.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			name, err := fillText(key, parameters, goTemplate)
			if err != nil {
				return nil, err
			}
			if out[name], err = fillTemplate(x[key], parameters, goTemplate); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for n := range x {
			var err error
			if out[n], err = fillTemplate(x[n], parameters, goTemplate); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		return fillText(x, parameters, goTemplate)
	}
	return template, nil
}

func fillText(text string, parameters map[string]string, goTemplate bool) (string, error) {
	var invalid error
	filled := templateRE.ReplaceAllStringFunc(text, func(found string) string {
		name := templateRE.FindStringSubmatch(found)[1]
		value, known := parameters[strings.TrimPrefix(name, ".")]
		switch {
		case !simpleName.MatchString(name) || strings.HasPrefix(name, ".") != goTemplate:
			invalid = fmt.Errorf("its template contains %s; expected the name of a parameter", found)
		case !known:
			invalid = fmt.Errorf("its template contains %s, which no generator sets", found)
		}
		return value
	})
	if invalid == nil && strings.Contains(templateRE.ReplaceAllString(text, ""), "{{") {
		invalid = fmt.Errorf("its template contains %s, which is not a valid template", strings.Join(strings.Fields(text), " "))
	}
	return filled, invalid
}
