package render

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/sources"
)

// executeTemplate executes a template twice, with different results of clocks and random sources, and rejects a difference.
func executeTemplate(t sources.Template) (string, error) {
	first, err := executeOnce(t, doubles{})
	if err != nil {
		return "", err
	}
	if second, err := executeOnce(t, doubles{second: true}); err != nil || second != first {
		return "", &sources.Refusal{Text: "it depends on the time or on random values", Expected: "parameters"}
	}
	return first, nil
}

func executeOnce(t sources.Template, d doubles) (string, error) {
	parsed, err := template.New("").Funcs(argoFunctions(d)).Option("missingkey=" + missingKey(t.MissingKey)).Parse(t.Text)
	var text strings.Builder
	if err == nil {
		err = parsed.Execute(&text, t.Parameters)
	}
	if err != nil {
		return "", errors.New(strict.OneLine(strings.TrimPrefix(err.Error(), "template: :")))
	}
	return text.String(), nil
}

// missingKey returns a known option, because an unknown one is a panic.
func missingKey(option string) string {
	if option == "error" || option == "zero" {
		return option
	}
	return "invalid"
}

// argoFunctions are the functions of an ApplicationSet: those of sprig, without the environment and the network, and Argo CD's own.
func argoFunctions(d doubles) template.FuncMap {
	all := sprig.TxtFuncMap()
	maps.Copy(all, d.functions())
	for _, name := range []string{"env", "expandenv", "getHostByName"} {
		delete(all, name)
	}
	all["normalize"], all["slugify"] = normalize, slugify
	all["toYaml"] = func(v any) (string, error) {
		data, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(data), "\n"), err
	}
	all["fromYaml"] = func(text string) (v map[string]any, err error) { return v, yaml.Unmarshal([]byte(text), &v) }
	all["fromYamlArray"] = func(text string) (v []any, err error) { return v, yaml.Unmarshal([]byte(text), &v) }
	return all
}

var notInNames = regexp.MustCompile("[^-a-z0-9.]")

// normalize makes a DNS name of a text.
func normalize(text string) string {
	text = notInNames.ReplaceAllString(strings.ToLower(text), "-")
	return strings.Trim(text[:min(len(text), 253)], "-.")
}

var (
	notInSlugs = regexp.MustCompile("[^a-z0-9_-]")
	dashes     = regexp.MustCompile("-+")
)

// slugify makes a name of at most 50 characters of a text, which is the last argument. Before it may be another limit, and whether to cut
// between words.
func slugify(args ...any) (string, error) {
	limit, betweenWords := 50, false
	for _, arg := range args[:max(len(args)-1, 0)] {
		switch x := arg.(type) {
		case int:
			limit = x
		case bool:
			betweenWords = x
		}
	}
	text, ok := "", false
	if len(args) > 0 {
		text, ok = args[len(args)-1].(string)
	}
	if !ok || strings.ContainsFunc(text, func(r rune) bool { return r > 126 || strings.ContainsRune("&@'\"", r) }) {
		return "", fmt.Errorf("slugify of %v: expected ASCII without &, @ and quotes", args)
	}
	slug := strings.Trim(dashes.ReplaceAllString(notInSlugs.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "-"), "-"), "-_")
	if limit <= 0 || len(slug) <= limit {
		return slug, nil
	}
	if cut := strings.LastIndexByte(slug[:limit+1], '-'); betweenWords && cut > 0 {
		return slug[:cut], nil
	}
	return strings.Trim(slug[:limit], "-_"), nil
}
