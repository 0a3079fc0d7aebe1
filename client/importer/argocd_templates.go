package importer

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/sources"
)

// This file fills the template of an ApplicationSet in.

var templateRE = regexp.MustCompile(`\{\{-?\s*([^{}]*?)\s*-?\}\}`)

// simpleName matches a single name. In Go templates the name begins with a dot.
var simpleName = regexp.MustCompile(`^\.?[A-Za-z_][-A-Za-z0-9_]*(\.[A-Za-z_][-A-Za-z0-9_]*|\[[0-9]+\])*$`)

// filler fills a template in with the parameters of one Application.
type filler struct {
	parameters map[string]any
	flat       map[string]string // the same, by their path
	goTemplate bool
	missingKey string
}

func newFiller(spec any, parameters map[string]any) filler {
	f := filler{parameters: parameters, flat: flatParameters(parameters), goTemplate: field(spec, "goTemplate") == true}
	for _, option := range listAt(spec, "goTemplateOptions") {
		if text, ok := strings.CutPrefix(fmt.Sprint(option), "missingkey="); ok {
			f.missingKey = text
		}
	}
	return f
}

// fill returns a template with its expressions replaced. One that cannot be evaluated is an error.
func (f filler) fill(template any) (any, error) {
	switch x := template.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(x)) {
			name, err := f.text(key)
			if err != nil {
				return nil, err
			}
			if out[name], err = f.fill(x[key]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for n := range x {
			var err error
			if out[n], err = f.fill(x[n]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		return f.text(x)
	}
	return template, nil
}

// text fills one text in. Only names are replaced here; the renderer, which has limits, executes what has functions.
func (f filler) text(text string) (string, error) {
	var invalid error
	simple := true
	filled := templateRE.ReplaceAllStringFunc(text, func(found string) string {
		name := templateRE.FindStringSubmatch(found)[1]
		value, known := f.flat[strings.TrimPrefix(name, ".")]
		switch {
		case !simpleName.MatchString(name) || strings.HasPrefix(name, ".") != f.goTemplate:
			simple = false
			invalid = fmt.Errorf("its template contains %s; expected the name of a parameter", found)
		case !known:
			invalid = fmt.Errorf("its template contains %s, which no generator sets", found)
		}
		return value
	})
	if strings.Contains(templateRE.ReplaceAllString(text, ""), "{{") {
		simple = false
		invalid = fmt.Errorf("its template contains %s, which is not a valid template", strings.Join(strings.Fields(text), " "))
	}
	if simple || !f.goTemplate {
		return filled, invalid
	}
	filled, err := sources.Template{Text: text, Parameters: f.parameters, MissingKey: f.missingKey}.Execute()
	if err != nil {
		return "", fmt.Errorf("its template contains %s: %w", strings.Join(strings.Fields(text), " "), err)
	}
	return filled, nil
}
