package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is one field of a struct as the format sees it.
type field struct {
	name     string
	required bool
	index    []int
	kind     reflect.Type
}

// fields lists a struct's fields in order, those of embedded structs in their place.
func fields(t reflect.Type) []field {
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			for _, inner := range fields(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				all = append(all, inner)
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		all = append(all, field{name, !strings.Contains(options, "omitempty"), []int{i}, f.Type})
	}
	return all
}

func (d *Decoder) structure(path string, node *yaml.Node, to reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.wrongType(path, node, to.Type())
		return
	}
	known := fields(to.Type())
	given, later := map[string]bool{}, false
	for _, p := range d.pairs(path, node) {
		at := slices.IndexFunc(known, func(f field) bool { return f.name == p.name })
		if at < 0 {
			later = d.unknownField(path, p, to.Type(), known) || later
			continue
		}
		given[p.name] = true
		d.Value(Field(path, p.name), p.value, to.FieldByIndex(known[at].index).Addr().Interface())
	}
	if !later { // a planned field may stand for one that is missing
		d.missing(path, node, known, given)
	}
}

func (d *Decoder) missing(path string, node *yaml.Node, known []field, given map[string]bool) {
	for _, f := range known {
		if f.required && !given[f.name] {
			d.Fail(Field(path, f.name), node, Fault{Code: "missing-field", Message: fmt.Sprintf("%q is missing", f.name), Expected: wanted(f.kind)})
		}
	}
}

// unknownField refuses a field, and tells whether a later version accepts it.
func (d *Decoder) unknownField(path string, p pair, t reflect.Type, known []field) bool {
	var names []string
	for _, f := range known {
		names = append(names, f.name)
	}
	if planner, ok := reflect.Zero(t).Interface().(Planner); ok && slices.Contains(planner.Planned(), p.name) {
		d.Fail(Field(path, p.name), p.key, Fault{
			Code:    "not-supported-yet",
			Message: fmt.Sprintf("%q is not supported yet by this version of Converge; remove it", p.name),
		})
		return true
	}
	d.Fail(Key(path, p.name), p.key, Fault{
		Code:       "unknown-field",
		Message:    fmt.Sprintf("there is no field %q here", p.name),
		Expected:   OneOf(names),
		Suggestion: Nearest(p.name, names),
	})
	return false
}
