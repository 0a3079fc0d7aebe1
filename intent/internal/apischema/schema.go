// Package apischema checks objects of Kubernetes against their schemas, without a cluster: those of the kinds that are part of a supported
// version of Kubernetes, and those of CustomResourceDefinitions. It checks the fields, the types of values, the keys of lists, and names,
// as the API server does in every apply. It may import intent/internal and intent/config.
package apischema

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run ./generate

// schemaText has the oldest and the newest version, and a line for each type: its name, and its fields with their types, separated by
// tabs (generate/main.go).
//
//go:embed schema.txt
var schemaText string

// kind is the type of a value: a scalar (s, n, b, or i for a number or text), a map or a list of another type, a structure, or the name of a
// built-in structure. The default of a scalar matters where it is a key of a list. The zero value accepts any value.
type kind struct {
	form     byte // s, n, b, i, {, [, f, or 0 for a named type
	keys     []string
	set      bool // a list in which every entry is different
	of       *kind
	name     string
	fallback any
	lifetime

	structure *structure // of a CustomResourceDefinition, or the type of the name
	enum      []any      // nil: any value
	limits    *limits    // of a CustomResourceDefinition; nil: none
}

// structure is a type with fields.
type structure struct {
	fields   map[string]kind
	required []string
	open     bool // it accepts other fields
	lifetime
	replacement string // of a kind that is no longer served
}

// lifetime is the first and the last minor version of Kubernetes that has a kind or a field; 0: there is no bound.
type lifetime struct{ first, last int }

// builtin are the built-in types by name.
type builtin struct {
	types          map[string]*structure
	groupVersions  map[string][]string // the kinds
	oldest, newest int
}

var schema = sync.OnceValue(func() builtin {
	b := builtin{types: map[string]*structure{}, groupVersions: map[string][]string{}}
	header, text, _ := strings.Cut(schemaText, "\n")
	oldest, newest, _ := strings.Cut(header, "\t")
	b.oldest, b.newest = minorOf(oldest), minorOf(newest)
	for line := range strings.Lines(text) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		s := &structure{fields: map[string]kind{}}
		var name string
		name, s.lifetime, s.replacement = parseName(words[0])
		for _, field := range words[1:] {
			name, k := parseField(field)
			s.fields[name] = k
		}
		b.types[name] = s
		if _, is := s.fields["apiVersion"]; is && s.fields["metadata"].name != "" {
			at := strings.LastIndexByte(name, '.')
			b.groupVersions[name[:at]] = append(b.groupVersions[name[:at]], name[at+1:])
		}
	}
	return b
})

func minorOf(text string) int {
	minor, _ := strconv.Atoi(text) // none is no bound
	return minor
}

// parseName parses NAME@FIRST-LAST=REPLACEMENT.
func parseName(text string) (name string, l lifetime, replacement string) {
	text, replacement, _ = strings.Cut(text, "=")
	name, versions, _ := strings.Cut(text, "@")
	first, last, _ := strings.Cut(versions, "-")
	return name, lifetime{minorOf(first), minorOf(last)}, replacement
}

// parseField parses NAME@FIRST-LAST TYPE=DEFAULT.
func parseField(field string) (name string, k kind) {
	name, text, _ := strings.Cut(field, " ")
	text, fallback, given := strings.Cut(text, "=")
	k = parseKind(text)
	if given {
		k.fallback = fallback
	}
	name, k.lifetime, _ = parseName(name)
	return name, k
}

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

// structureOf returns the structure of a kind with fields; nil accepts any value.
func (k kind) structureOf() *structure {
	if k.structure != nil {
		return k.structure
	}
	return schema().types[k.name]
}

// groups are the API groups of the schema, by the name that its types have.
var groups = map[string]string{
	"": "core", "apps": "apps", "autoscaling": "autoscaling", "batch": "batch", "extensions": "extensions", "policy": "policy",
	"admissionregistration.k8s.io": "admissionregistration", "certificates.k8s.io": "certificates", "coordination.k8s.io": "coordination",
	"discovery.k8s.io": "discovery", "events.k8s.io": "events", "flowcontrol.apiserver.k8s.io": "flowcontrol", "networking.k8s.io": "networking",
	"node.k8s.io": "node", "rbac.authorization.k8s.io": "rbac", "resource.k8s.io": "resource", "scheduling.k8s.io": "scheduling",
	"storage.k8s.io": "storage",
}

// IsBuiltin reports whether the kinds of an API group are part of Kubernetes.
func IsBuiltin(group string) bool { _, is := groups[group]; return is }
