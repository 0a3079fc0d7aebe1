package kubernetes

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// lacking lists the declared fields that a live object lacks, or has another value in, without the server. The live object is complete,
// with its managedFields, which tell lists with keys and sets from lists that are replaced as a whole. What the server adds to a declared
// value (defaults), another notation of a quantity, and the marks of Converge do not count. Fields of others do not count either.
func lacking(live *unstructured.Unstructured, d declared) ([]difference, error) {
	sent, err := d.sent()
	if err != nil {
		return nil, err
	}
	wanted := declarable(sent)
	dropMarks(wanted, "metadata")
	dropMarks(wanted, append(templateOf(idOf(d.Unstructured).kind), "metadata")...)
	l := &comparison{secret: isSecret(live)}
	l.lackingFields(nil, knownFields(live), declarable(live), wanted)
	return dropDifferences(l.found, d.omittedPaths(live)), nil
}

// isOwnName reports whether a label or an annotation is one of Converge.
func isOwnName(name string) bool { return strings.HasPrefix(name, "converge/") || name == LabelPartOf }

// dropMarks drops the labels and annotations of Converge from metadata at a path of an object, in place; the maps on the path are copied.
func dropMarks(o map[string]any, at ...string) {
	for n, field := range at {
		inner := maps.Clone(nestedMap(o, field))
		if inner == nil {
			return
		}
		o[field] = inner
		if o = inner; n < len(at)-1 {
			continue
		}
		for _, name := range []string{"labels", "annotations"} {
			kept := maps.Clone(nestedMap(o, name))
			maps.DeleteFunc(kept, func(name string, _ any) bool { return isOwnName(name) })
			o[name] = kept
		}
	}
}

// lackingFields compares the declared fields of a map; known are the managed fields below it.
func (c *comparison) lackingFields(at path, known *fieldpath.Set, live, declared map[string]any) {
	for _, name := range keysOf(declared) {
		c.lackingValue(at.with(part{field: name}), known.WithPrefix(fieldpath.FieldNameElement(name)), live[name], declared[name])
	}
}

func (c *comparison) lackingValue(at path, known *fieldpath.Set, live, declared any) {
	switch now := declared.(type) {
	case map[string]any:
		if old, ok := live.(map[string]any); ok {
			c.lackingFields(at, known, old, now)
			return
		}
	case []any:
		if old, ok := live.([]any); ok {
			c.lackingElements(at, known, old, now)
			return
		}
	}
	if !reflect.DeepEqual(live, declared) && !(live == nil && isEmptyText(jsonText(declared))) && !isSameQuantity(at, live, declared) {
		c.add(at, live, declared)
	}
}

// lackingElements compares the declared elements of a list: by their keys, as a set, or one by one if the list is replaced as a whole.
func (c *comparison) lackingElements(at path, known *fieldpath.Set, live, declared []any) {
	switch keys := listKeysIn(known); {
	case keys != nil && allMaps(live) && allMaps(declared):
		for _, each := range declared {
			now := each.(map[string]any)
			n := slices.IndexFunc(live, func(old any) bool { return sameKeys(old.(map[string]any), now, keys) })
			element := part{key: keys[0], value: strings.Trim(jsonText(now[keys[0]]), `"`)}
			if n < 0 {
				c.add(at.with(element), nil, now)
				continue
			}
			old := live[n].(map[string]any)
			c.lackingFields(at.with(element), known.WithPrefix(keyElement(old, keys)), old, now)
		}
	case isSetIn(known):
		for _, each := range declared {
			if !slices.ContainsFunc(live, func(old any) bool { return reflect.DeepEqual(old, each) }) {
				c.add(at, live, declared)
				return
			}
		}
	case len(live) != len(declared):
		c.add(at, live, declared)
	default:
		for n := range declared {
			c.lackingValue(at.with(part{index: n, isIndex: true}), &fieldpath.Set{}, live[n], declared[n])
		}
	}
}

// quantityFields are the fields below which quantities are: the server stores 0.5 as 500m.
var quantityFields = []string{"limits", "requests", "capacity", "hard", "overhead", "sizeLimit", "averageValue", "divisor"}

// isSameQuantity reports whether two values are notations of one quantity, at a field that has quantities.
func isSameQuantity(at path, live, declared any) bool {
	if !slices.ContainsFunc(at, func(p part) bool { return slices.Contains(quantityFields, p.field) }) {
		return false
	}
	parse := func(value any) (quantity.Quantity, error) {
		return quantity.ParseQuantity(strings.Trim(jsonText(value), `"`))
	}
	old, err := parse(live)
	if err != nil {
		return false
	}
	now, err := parse(declared)
	return err == nil && old.Cmp(now) == 0
}
