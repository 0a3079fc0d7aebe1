package apischema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

// Result is what a check of an object finds.
type Result struct {
	Problems []Problem
	Uses     []Use  // of what not every version of Kubernetes has
	Names    []Name // names with substitutions, whose value depends on the release channel
}

// Problem is a value that the API server refuses.
type Problem struct {
	Path string
	strict.Fault
}

// check checks one object. The decoder of its document advises how to quote text.
type check struct {
	*strict.Decoder
	found Result
}

// Check checks an object of a built-in kind. It does not check apiVersion, labels and annotations, and no object of a group or version
// that the schema does not have. Text with a substitution is valid everywhere.
func Check(d *strict.Decoder, object map[string]any) Result {
	apiVersion, _ := object["apiVersion"].(string)
	name, _ := object["kind"].(string)
	groupVersion := typeGroup(apiVersion)
	kinds := schema().groupVersions[groupVersion]
	if len(kinds) == 0 {
		return Result{}
	}
	c := check{Decoder: d}
	s := schema().types[groupVersion+"."+name]
	if s == nil || !slices.Contains(kinds, name) {
		c.use("kind", Use{lifetime: lifetime{first: schema().newest + 1}, what: apiVersion + " " + name, suggestion: strict.Nearest(name, kinds)})
		return c.found
	}
	c.use("apiVersion", Use{lifetime: s.lifetime, what: apiVersion + " " + name, replacement: s.replacement})
	c.objectName(groupVersion, name, object)
	c.fields("", groupVersion+"."+name, s, object)
	return c.found
}

// typeGroup returns the prefix of the types of an API version: apps.v1.
func typeGroup(apiVersion string) string {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	return groups[group] + "." + version
}

// use records a kind or a field that not every version has.
func (c *check) use(path string, u Use) {
	if u.lifetime != (lifetime{}) {
		u.Path = path
		c.found.Uses = append(c.found.Uses, u)
	}
}

func (c *check) problem(path string, fault strict.Fault) {
	c.found.Problems = append(c.found.Problems, Problem{path, fault})
}

func (c *check) value(path string, v any, k kind) {
	if text, ok := v.(string); v == nil || ok && config.HasSubstitution(text) {
		return
	}
	switch k.form {
	case 's':
		_, ok := v.(string)
		c.expect(ok, path, v, c.QuoteHint("text", path))
	case 'b':
		_, ok := v.(bool)
		c.expect(ok, path, v, "true or false")
	case 'n':
		c.expect(isNumber(v), path, v, "a number"+unquoted(v))
	case 'i':
		_, ok := v.(string)
		c.expect(ok || isNumber(v), path, v, "a number or text")
	case '{':
		all, ok := v.(map[string]any)
		c.expect(ok, path, v, "a mapping")
		for _, key := range strict.Keys(all) {
			c.value(strict.Key(path, key), all[key], *k.of)
		}
	case '[':
		c.list(path, v, k)
	default:
		c.structured(path, v, k)
	}
	c.oneOf(path, v, k)
	c.within(path, v, k.limits)
}

// oneOf checks that a value is one of those that the type lists.
func (c *check) oneOf(path string, v any, k kind) {
	text := fmt.Sprint(v)
	same := func(one any) bool { return fmt.Sprint(one) == text }
	if k.enum == nil || slices.ContainsFunc(k.enum, same) {
		return
	}
	names := strict.Map(k.enum, func(one any) string { return fmt.Sprint(one) })
	c.problem(path, strict.Unknown("bad-value", "this is "+substitute.Describe(v), text, names))
}

// structured checks a value of a type with fields.
func (c *check) structured(path string, v any, k kind) {
	s := k.structureOf()
	if s == nil {
		return
	}
	all, ok := v.(map[string]any)
	c.expect(ok, path, v, "a mapping")
	if ok {
		c.fields(path, k.name, s, all)
	}
}

// fields checks the fields of a structure with a name, which is empty in a CustomResourceDefinition.
func (c *check) fields(path, name string, s *structure, all map[string]any) {
	for _, key := range strict.Keys(all) {
		k, known := s.fields[key]
		at := strict.Key(path, key)
		switch {
		case known && path == "" && (key == "apiVersion" || key == "kind"):
		case path == "metadata" && (key == "labels" || key == "annotations"): // intent/sources checks their types
			c.names(at, name, key, all[key])
		case known:
			c.use(at, Use{lifetime: k.lifetime, what: fmt.Sprintf("the field %q", key)})
			c.names(at, name, key, all[key])
			c.value(at, all[key], k)
		case !s.open && !config.HasSubstitution(key):
			c.unknown(at, key, name, s)
		}
	}
	for _, key := range s.required {
		if _, given := all[key]; !given {
			c.problem(path, strict.Fault{Code: "missing-field", Message: fmt.Sprintf("%q is missing", key)})
		}
	}
}

// unknown reports a field that a structure does not have. A newer version of Kubernetes may have it; a CustomResourceDefinition may not.
func (c *check) unknown(path, key, name string, s *structure) {
	suggestion := strict.Nearest(key, strict.Keys(s.fields))
	if name != "" {
		c.use(path, Use{lifetime: lifetime{first: schema().newest + 1}, what: fmt.Sprintf("the field %q here", key), suggestion: suggestion})
		return
	}
	c.problem(path, strict.Fault{
		Code: "unknown-field", Message: fmt.Sprintf("the CustomResourceDefinition does not have the field %q here", key), Suggestion: suggestion,
	})
}

func (c *check) list(path string, v any, k kind) {
	items, ok := v.([]any)
	c.expect(ok, path, v, "a list")
	first := map[string]int{}
	for i, item := range items {
		at := strict.Index(path, i)
		c.value(at, item, *k.of)
		key := keyOf(item, k)
		if earlier, twice := first[key]; twice && key != "" && k.of.name != variableType {
			c.problem(at, strict.Fault{
				Code: "duplicate-key", Message: fmt.Sprintf("this entry has the same %s as entry %d of the list", key, earlier+1), Expected: "one entry for each " + keysText(k),
			})
			continue
		}
		first[key] = i
	}
}

// variableType is the type of an environment variable: of several with one name, intent/sources keeps the last.
const variableType = "core.v1.EnvVar"

// keyOf describes the key of an entry of a list: "containerPort 8080, protocol TCP"; "" if the list has no keys or the entry has none.
func keyOf(item any, k kind) string {
	if k.set {
		return fmt.Sprint("value ", item)
	}
	entry, ok := item.(map[string]any)
	s := k.of.structureOf()
	if !ok || s == nil {
		return ""
	}
	var parts []string
	for _, key := range k.keys {
		value := entry[key]
		if value == nil {
			value = s.fields[key].fallback
		}
		if value == nil {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%s %v", key, value))
	}
	return strings.Join(parts, ", ")
}

func keysText(k kind) string {
	if k.set {
		return "value"
	}
	return strings.Join(k.keys, " and ")
}

func (c *check) expect(ok bool, path string, v any, expected string) {
	if !ok {
		c.problem(path, strict.Fault{Code: "wrong-type", Message: "this is " + substitute.Describe(v), Expected: expected})
	}
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, uint64, float64:
		return true
	}
	return false
}

// unquoted advises to remove the quotes of a number.
func unquoted(v any) string {
	text, _ := v.(string)
	if text != "" && strings.Trim(text, "0123456789") == "" {
		return " (without the quotes: " + text + ")"
	}
	return ""
}
