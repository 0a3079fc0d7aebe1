package strict

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is one field of a struct in the format.
type field struct {
	name     string
	alias    string // alternative name
	required bool
	index    []int
	kind     reflect.Type
}

// fields lists a struct's fields in order, with the fields of embedded structs in place.
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
		all = append(all, field{name, f.Tag.Get("also"), !strings.Contains(options, "omitempty"), []int{i}, f.Type})
	}
	return all
}

func (d *Decoder) structure(path string, node *yaml.Node, to reflect.Value) {
	if node.Kind != yaml.MappingNode {
		d.wrongType(path, node, to.Type())
		return
	}
	known := fields(to.Type())
	given, meant := map[string]bool{}, map[string]bool{}
	for _, p := range d.pairs(path, node) {
		at := slices.IndexFunc(known, func(f field) bool { return f.name == p.name || f.alias != "" && f.alias == p.name })
		if at < 0 {
			meant[d.unknownField(path, p, known)] = true
			continue
		}
		f := known[at]
		if given[f.name] {
			d.Fail(Key(path, p.name), p.key, Fault{Code: "one-of", Message: fmt.Sprintf("%q and %q are both given", f.name, f.alias), Expected: "one of them"})
			continue
		}
		given[f.name] = true
		d.Value(Field(path, f.name), p.value, to.FieldByIndex(f.index).Addr().Interface())
	}
	d.missing(path, node, known, func(f field) bool { return given[f.name] || meant[f.name] })
}

func (d *Decoder) missing(path string, node *yaml.Node, known []field, has func(field) bool) {
	for _, f := range known {
		if f.required && !has(f) {
			d.Fail(Field(path, f.name), node, Fault{Code: "missing-field", Message: fmt.Sprintf("%q is missing", f.name), Expected: wanted(f.kind)})
		}
	}
}

// unknownField returns the field that was probably meant, or "".
func (d *Decoder) unknownField(path string, p pair, known []field) (meant string) {
	names := Map(known, func(f field) string { return f.name })
	fault := Fault{Code: "unknown-field", Message: fmt.Sprintf("unknown field %q", p.name), Expected: OneOf(names), Suggestion: Nearest(p.name, names)}
	meant = fault.Suggestion
	if path == "" && p.name == "metadata" && slices.Contains(names, "name") { // as in Kubernetes
		fault.Expected, fault.Suggestion, meant = `"name" and "labels" at the top of the document, without "metadata"`, "", "name"
	}
	d.Fail(Key(path, p.name), p.key, fault)
	return meant
}

// pair is one entry of a mapping.
type pair struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
}

// pairs lists a mapping's entries in order. Entries of merge keys (`<<`) come last, and only if the mapping does not have the key. A
// duplicate key is a problem, and its first value counts.
func (d *Decoder) pairs(path string, node *yaml.Node) []pair {
	if d.rejectCycle(&d.merging, path, node, "this mapping merges itself") {
		return nil
	}
	defer delete(d.merging, node)

	var own, merged []pair
	first := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolve(node.Content[i]), node.Content[i+1]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, d.merged(path, value)...)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.Fail(path, node.Content[i], Fault{Code: "wrong-type", Message: "this key is " + Describe(key), Expected: "text" + quoteHint(key)})
		case first[key.Value] != nil:
			d.Fail(Key(path, key.Value), key, Fault{
				Code: "duplicate-key", Message: fmt.Sprintf("%q is given twice, first on line %d", key.Value, first[key.Value].Line),
			})
		default:
			first[key.Value] = key
			own = append(own, pair{key.Value, key, value})
		}
	}
	for _, p := range merged {
		if first[p.name] == nil {
			first[p.name] = p.key
			own = append(own, p)
		}
	}
	return own
}

// merged lists the entries of a merge key: of a mapping, or of a list of mappings, of which the earlier takes precedence.
func (d *Decoder) merged(path string, value *yaml.Node) []pair {
	value = resolve(value)
	if d.values += len(value.Content); d.limitReached() {
		return nil
	}
	switch value.Kind {
	case yaml.MappingNode:
		return d.pairs(path, value)
	case yaml.SequenceNode:
		var all []pair
		for _, item := range value.Content {
			if resolve(item).Kind == yaml.SequenceNode {
				break // nested lists are not a valid merge
			}
			all = append(all, d.merged(path, item)...)
		}
		return all
	}
	d.Fail(path, value, Fault{Code: "wrong-type", Message: "the merge key << is given " + Describe(value), Expected: "a mapping, or a list of mappings"})
	return nil
}

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	return node
}

// rejectCycle records that a node is being decoded, and rejects a node that contains itself.
func (d *Decoder) rejectCycle(of *map[*yaml.Node]bool, path string, node *yaml.Node, refusal string) bool {
	if (*of)[node] {
		d.Fail(path, node, Fault{Code: "alias-cycle", Message: refusal})
		return true
	}
	if *of == nil {
		*of = map[*yaml.Node]bool{}
	}
	(*of)[node] = true
	return false
}

// DisplayPath returns a path in the form for problems: with the subject of the document as a prefix, if it has one.
func (d *Decoder) DisplayPath(path string) string {
	if d.Subject == "" || path == "" {
		return d.Subject + path
	}
	return fmt.Sprintf("%s %s", d.Subject, path)
}
