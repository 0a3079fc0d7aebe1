// Package builtin checks objects of the kinds that are part of Kubernetes against their schema, without a cluster: the types of values and
// the keys of lists, which the API server checks in every apply. It accepts fields that it does not know, since a cluster may be newer.
// It may import intent/internal and intent/config.
package builtin

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
)

//go:generate go run ./generate

// schemaText has a line for each type: its name, and its fields with their types, separated by tabs (generate/main.go).
//
//go:embed schema.txt
var schemaText string

// kind is the type of a value: a scalar (s, n or b), a map or a list of another type, or the name of a type. The default of a scalar
// matters where it is a key of a list.
type kind struct {
	form     byte // s, n, b, {, [, or 0 for a named type
	keys     []string
	set      bool // a list in which every entry is different
	of       *kind
	name     string
	fallback any
}

var types = sync.OnceValue(func() map[string]map[string]kind {
	all := map[string]map[string]kind{}
	for line := range strings.Lines(schemaText) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		all[fields[0]] = map[string]kind{}
		for _, field := range fields[1:] {
			name, text, _ := strings.Cut(field, " ")
			text, fallback, given := strings.Cut(text, "=")
			k := parseKind(text)
			if given {
				k.fallback = fallback
			}
			all[fields[0]][name] = k
		}
	}
	return all
})

func parseKind(text string) kind {
	switch {
	case text == "s" || text == "n" || text == "b":
		return kind{form: text[0]}
	case strings.HasPrefix(text, "{}"):
		of := parseKind(text[2:])
		return kind{form: '{', of: &of}
	case strings.HasPrefix(text, "["):
		keys, rest, _ := strings.Cut(text[1:], "]")
		of := parseKind(rest)
		k := kind{form: '[', of: &of, set: keys == "*"}
		if keys != "" && !k.set {
			k.keys = strings.Split(keys, ",")
		}
		return k
	}
	return kind{name: text}
}

// variableType is the type of an environment variable: of several with one name, intent/sources keeps the last.
const variableType = "core.v1.EnvVar"

// groups are the API groups of the schema, by the name that its types have.
var groups = map[string]string{
	"": "core", "apps": "apps", "autoscaling": "autoscaling", "batch": "batch", "extensions": "extensions", "policy": "policy",
	"admissionregistration.k8s.io": "admissionregistration", "certificates.k8s.io": "certificates", "coordination.k8s.io": "coordination",
	"discovery.k8s.io": "discovery", "events.k8s.io": "events", "flowcontrol.apiserver.k8s.io": "flowcontrol", "networking.k8s.io": "networking",
	"node.k8s.io": "node", "rbac.authorization.k8s.io": "rbac", "resource.k8s.io": "resource", "scheduling.k8s.io": "scheduling",
	"storage.k8s.io": "storage",
}

// Check reports the values of an object that the API server refuses, at their paths. It does not check apiVersion, kind and metadata, and
// no object of a kind that the schema does not have. Text with a substitution is valid everywhere.
func Check(d *strict.Decoder, object map[string]any) {
	apiVersion, _ := object["apiVersion"].(string)
	name, _ := object["kind"].(string)
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	fields := types()[groups[group]+"."+version+"."+name]
	c := check{d}
	for _, key := range strict.Keys(object) {
		if k, known := fields[key]; known && key != "apiVersion" && key != "kind" && key != "metadata" {
			c.value(key, object[key], k)
		}
	}
}

type check struct{ *strict.Decoder }

func (c check) value(path string, v any, k kind) {
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
	case '{':
		all, ok := v.(map[string]any)
		c.expect(ok, path, v, "a mapping")
		for _, key := range strict.Keys(all) {
			c.value(strict.Key(path, key), all[key], *k.of)
		}
	case '[':
		c.list(path, v, k)
	default:
		c.named(path, v, types()[k.name])
	}
}

// named checks a value of a type with fields; nil accepts any value.
func (c check) named(path string, v any, fields map[string]kind) {
	if fields == nil {
		return
	}
	all, ok := v.(map[string]any)
	c.expect(ok, path, v, "a mapping")
	for _, key := range strict.Keys(all) {
		if k, known := fields[key]; known {
			c.value(strict.Key(path, key), all[key], k)
		}
	}
}

func (c check) list(path string, v any, k kind) {
	items, ok := v.([]any)
	c.expect(ok, path, v, "a list")
	first := map[string]int{}
	for i, item := range items {
		at := strict.Index(path, i)
		c.value(at, item, *k.of)
		key := keyOf(item, k)
		if earlier, twice := first[key]; twice && key != "" && k.of.name != variableType {
			c.Report(at, strict.Fault{
				Code: "duplicate-key", Message: fmt.Sprintf("this entry has the same %s as entry %d of the list", key, earlier+1), Expected: "one entry for each " + keysText(k),
			})
			continue
		}
		first[key] = i
	}
}

// keyOf describes the key of an entry of a list: "containerPort 8080, protocol TCP"; "" if the list has no keys or the entry has none.
func keyOf(item any, k kind) string {
	if k.set {
		return fmt.Sprint("value ", item)
	}
	entry, ok := item.(map[string]any)
	if !ok {
		return ""
	}
	var parts []string
	for _, key := range k.keys {
		value := entry[key]
		if value == nil {
			value = types()[k.of.name][key].fallback
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

func (c check) expect(ok bool, path string, v any, expected string) {
	if !ok {
		c.Report(path, strict.Fault{Code: "wrong-type", Message: "this is " + substitute.Describe(v), Expected: expected})
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
