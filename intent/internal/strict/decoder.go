// Package strict decodes YAML into Go structs and forgives nothing: an unknown field, a key given
// twice, a value of another type or a missing one is a Problem with its position, what was expected
// and, for a typo, what was probably meant. All problems of a document are found in one pass.
//
// The Go types are the only description of the format: names come from json tags, a field without
// omitempty is required, and a type says more by the interfaces below. Maps and lists may come
// from aliases and merge keys; what they expand to is bounded.
//
// It knows nothing of Converge's kinds, reads no files, and imports the YAML parser only.
package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The interfaces by which a type says more than its Go kind does.
type (
	// Unmarshaler decodes itself, for values that may have several forms. Aliases of the node are
	// resolved already.
	Unmarshaler interface {
		DecodeStrict(d *Decoder, path string, node *yaml.Node)
	}
	// Checker checks a decoded scalar; nil is right.
	Checker interface {
		Check() *Fault
	}
	// Enum lists the only texts a string type may hold.
	Enum interface {
		Values() []string
	}
)

// maxValues bounds what one document may expand to through aliases.
const maxValues = 50_000

// Position is a point in a file, counted from one.
type Position struct{ Line, Column int }

// Decoder decodes one document and remembers where each value stood.
type Decoder struct {
	File     string
	Problems Problems
	// Subject is what the document is about, named before each path; empty in configuration.
	Subject string
	// Limit bounds the values of the document, aliases expanded; 0 is 50,000.
	Limit int

	at      map[string]Position
	grafts  []graft
	values  int
	merging map[*yaml.Node]bool
	within  map[*yaml.Node]bool
}

// Decode fills into, a pointer to a struct, from the document's top mapping. What could be decoded
// is filled in even when there are problems. False means that the document expands beyond all
// bounds; that is then its only problem.
func (d *Decoder) Decode(node *yaml.Node, into any) bool {
	d.Value("", node, into)
	return d.bounded(node)
}

// DecodeAny is Decode for a document of any form.
func (d *Decoder) DecodeAny(node *yaml.Node) (any, bool) {
	v := d.Any("", node)
	return v, d.bounded(node)
}

func (d *Decoder) bounded(node *yaml.Node) bool {
	if !d.full() {
		return true
	}
	d.Problems = nil
	d.Fail("", node, Fault{Code: "too-large", Message: fmt.Sprintf("the document expands to more than %d values", d.limit())})
	return false
}

func (d *Decoder) full() bool { return d.values >= d.limit() }

func (d *Decoder) limit() int {
	if d.Limit > 0 {
		return d.Limit
	}
	return maxValues
}

// At returns where the value of path stands; for a value that is not there, where the nearest one
// around it does.
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
	return Problem{d.File, at.Line, at.Column, d.Shown(path), fault}
}

// Fail adds a problem at a node.
func (d *Decoder) Fail(path string, node *yaml.Node, fault Fault) {
	d.Problems = append(d.Problems, Problem{d.File, max(node.Line, 1), max(node.Column, 1), d.Shown(path), fault})
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

// enter resolves an alias, notes the position, and keeps the bound.
func (d *Decoder) enter(path string, node *yaml.Node) (*yaml.Node, bool) {
	node = resolve(node)
	if d.at == nil {
		d.at = map[string]Position{}
	}
	d.at[path] = Position{max(node.Line, 1), max(node.Column, 1)}
	d.values++
	return node, !d.full()
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
		if d.full() {
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
	d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + Describe(node), Expected: wanted(want)})
}

// Field is the path of a field of the value at path.
func Field(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Index is the path of an item of the list at path.
func Index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// Key is the path of an entry of the map at path.
func Key(path, key string) string {
	if key == "" || strings.ContainsAny(key, ".[]\" \t\n") {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	return Field(path, key)
}

// parent cuts the last part off a path.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

// Has reports whether the document gives a value at path.
func (d *Decoder) Has(path string) bool {
	from, path := d.origin(path)
	_, ok := from.at[path]
	return ok
}

// Faulty reports whether decoding found something wrong at path or below, so that what follows from
// that is not reported as well.
func (d *Decoder) Faulty(path string) bool {
	if from, path := d.origin(path); from != d {
		return from.Faulty(path)
	}
	return slices.ContainsFunc(d.Problems, func(p Problem) bool {
		return p.Path == path || strings.HasPrefix(p.Path, path+".") || strings.HasPrefix(p.Path, path+"[")
	})
}
