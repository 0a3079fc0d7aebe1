// Package strict decodes YAML into Go structs strictly. An unknown field, a duplicate key, a wrong type or a missing value is a Problem
// with its position, the expected value and, for a typo, the probable name. One pass finds all problems of a document.
//
// The Go types are the only description of the format: names come from json tags, a field without omitempty is required, and a type can
// add rules by the interfaces below. Maps and lists may come from aliases and merge keys; their expanded size is bounded.
//
// It does not know Converge's kinds, reads no files, and imports the YAML parser only.
package strict

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The interfaces by which a type adds rules to its Go kind.
type (
	// Unmarshaler decodes itself, for values that may have several forms. Aliases of the node are already resolved.
	Unmarshaler interface {
		DecodeStrict(d *Decoder, path string, node *yaml.Node)
	}
	// Checker checks a decoded scalar; nil is valid.
	Checker interface {
		Check() *Fault
	}
	// Enum lists the allowed texts of a string type.
	Enum interface {
		Values() []string
	}
)

// maxValues bounds the expanded size of one document with aliases.
const maxValues = 50_000

// Position is a point in a file, counted from one.
type Position struct{ Line, Column int }

// Decoder decodes one document and records the position of each value.
type Decoder struct {
	File     string
	Problems Problems
	// Subject is the object of the document, shown before each path; empty in configuration.
	Subject string
	// Limit bounds the values of the document, aliases expanded; 0 is 50,000.
	Limit int

	at      map[string]Position
	scalars map[string]*yaml.Node // by path
	grafts  []graft
	values  int
	merging map[*yaml.Node]bool
	within  map[*yaml.Node]bool
}

// Decode decodes the document's top-level mapping to into, a pointer to a struct. It also sets valid fields if there are problems. False
// means that the expanded document exceeds the limit; that is then its only problem.
func (d *Decoder) Decode(node *yaml.Node, into any) bool {
	d.Value("", node, into)
	return d.checkLimit(node)
}

// DecodeAny is Decode for a document of any structure.
func (d *Decoder) DecodeAny(node *yaml.Node) (any, bool) {
	v := d.Any("", node)
	return v, d.checkLimit(node)
}

func (d *Decoder) checkLimit(node *yaml.Node) bool {
	if !d.limitReached() {
		return true
	}
	d.Problems = nil
	d.Fail("", node, Fault{Code: "too-large", Message: fmt.Sprintf("the document expands to more than %d values", d.limit())})
	return false
}

func (d *Decoder) limitReached() bool { return d.values >= d.limit() }

func (d *Decoder) limit() int {
	if d.Limit > 0 {
		return d.Limit
	}
	return maxValues
}

// At returns the position of the value at path. For a missing value it returns the position of the nearest enclosing value.
func (d *Decoder) At(path string) Position {
	if from, path := d.origin(path); from != d {
		return from.At(path)
	}
	for {
		if p, ok := d.at[path]; ok {
			return p
		}
		if path == "" {
			return Position{1, 1}
		}
		path = parent(path)
	}
}

// Report adds a problem at the position of path.
func (d *Decoder) Report(path string, fault Fault) {
	d.Problems = append(d.Problems, d.Problem(path, fault))
}

// Problem is a fault at the position of path.
func (d *Decoder) Problem(path string, fault Fault) Problem {
	if from, path := d.origin(path); from != d {
		return from.Problem(path, fault)
	}
	at := d.At(path)
	return Problem{d.File, at.Line, at.Column, d.DisplayPath(path), fault}
}

// Fail adds a problem at a node.
func (d *Decoder) Fail(path string, node *yaml.Node, fault Fault) {
	d.Problems = append(d.Problems, Problem{d.File, max(node.Line, 1), max(node.Column, 1), d.DisplayPath(path), fault})
}

// Value decodes node into the pointer into.
func (d *Decoder) Value(path string, node *yaml.Node, into any) {
	node, ok := d.enter(path, node)
	if !ok {
		return
	}
	if u, ok := into.(Unmarshaler); ok {
		u.DecodeStrict(d, path, node)
		return
	}
	if empty(node) {
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "no value given", Expected: wanted(reflect.TypeOf(into).Elem())})
		return
	}
	d.fill(path, node, reflect.ValueOf(into).Elem())
}

// enter resolves an alias, records the position, and enforces the limit.
func (d *Decoder) enter(path string, node *yaml.Node) (*yaml.Node, bool) {
	node = resolve(node)
	if d.at == nil {
		d.at, d.scalars = map[string]Position{}, map[string]*yaml.Node{}
	}
	d.at[path] = Position{max(node.Line, 1), max(node.Column, 1)}
	if node.Kind == yaml.ScalarNode {
		d.scalars[path] = node
	}
	d.values++
	return node, !d.limitReached()
}

func (d *Decoder) fill(path string, node *yaml.Node, to reflect.Value) {
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		d.Value(path, node, to.Interface())
	case reflect.Struct:
		d.structure(path, node, to)
	case reflect.Slice:
		d.list(path, node, to)
	case reflect.Map:
		d.mapping(path, node, to)
	default:
		d.scalar(path, node, to)
	}
}

func (d *Decoder) list(path string, node *yaml.Node, to reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		d.wrongType(path, node, to.Type())
		return
	}
	for i, item := range node.Content {
		if d.limitReached() {
			return
		}
		one := reflect.New(to.Type().Elem())
		d.Value(Index(path, i), item, one.Interface())
		to.Set(reflect.Append(to, one.Elem()))
	}
}

func (d *Decoder) mapping(path string, node *yaml.Node, to reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.wrongType(path, node, to.Type())
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for _, p := range d.pairs(path, node) {
		key := reflect.ValueOf(p.name).Convert(to.Type().Key())
		d.check(Key(path, p.name), p.key, key)
		one := reflect.New(to.Type().Elem())
		d.Value(Key(path, p.name), p.value, one.Interface())
		to.SetMapIndex(key, one.Elem())
	}
}

func (d *Decoder) wrongType(path string, node *yaml.Node, want reflect.Type) {
	d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + Describe(node), Expected: wanted(want), Suggestion: named(node, want)})
}

// named is a mapping with the text as its name, where a name alone is all that a mapping needs; or "".
func named(node *yaml.Node, want reflect.Type) string {
	if want.Kind() != reflect.Struct || node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" || !nameRE.MatchString(node.Value) {
		return ""
	}
	all := fields(want)
	if !slices.ContainsFunc(all, func(f field) bool { return f.name == "name" }) || slices.ContainsFunc(all, func(f field) bool { return f.required && f.name != "name" }) {
		return ""
	}
	return "{name: " + node.Value + "}"
}

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Field returns the path of a field of the value at path.
func Field(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Index returns the path of an item of the list at path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// Key returns the path of an entry of the map at path.
func Key(path, key string) string {
	if key == "" || strings.ContainsAny(key, ".[]\" \t\n") {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	return Field(path, key)
}

// parent removes the last part of a path.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

// Has reports whether the document has a value at path.
func (d *Decoder) Has(path string) bool {
	from, path := d.origin(path)
	_, ok := from.at[path]
	return ok
}

// Faulty reports whether decoding found a problem at path or below, so that the caller does not report consequences of it.
func (d *Decoder) Faulty(path string) bool {
	if from, path := d.origin(path); from != d {
		return from.Faulty(path)
	}
	return slices.ContainsFunc(d.Problems, func(p Problem) bool {
		return p.Path == path || strings.HasPrefix(p.Path, path+".") || strings.HasPrefix(p.Path, path+"[")
	})
}

// Misspelt reports whether the document has an unknown field that probably means the field at a path, or a field of the mapping there.
func (d *Decoder) Misspelt(path string) bool {
	if from, path := d.origin(path); from != d {
		return from.Misspelt(path)
	}
	return slices.ContainsFunc(d.Problems, func(p Problem) bool {
		if p.Code != "unknown-field" || p.Suggestion == "" {
			return false
		}
		return path == parent(p.Path) || path == Field(parent(p.Path), p.Suggestion)
	})
}
