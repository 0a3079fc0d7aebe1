package kubernetes

import (
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// This file merges a declaration into a live object without the server, as server-side apply would. The managedFields of the live
// object say how: they name the elements of a list by its keys, and a list or map that is replaced as a whole is one field there.

// overlay is the result of a merge.
type overlay struct {
	merged     map[string]any
	undeclared []fieldpath.Path // the fields and list elements of the live object that are not declared, without what is below them
}

// overlayOf merges a declaration into a live object. The live object is complete, with its managedFields. Neither is changed.
func overlayOf(live *unstructured.Unstructured, d declared) (*overlay, error) {
	sent, err := d.sent()
	if err != nil {
		return nil, err
	}
	o := &overlay{}
	o.merged = o.mergeMaps(nil, knownFields(live), declarable(live), declarable(sent))
	return o, nil
}

// sent is the object as it is sent, with the types of numbers that live objects have.
func (d declared) sent() (*unstructured.Unstructured, error) {
	sent := &unstructured.Unstructured{}
	return sent, sent.UnmarshalJSON(d.text)
}

// knownFields are the fields of a live object that have a manager, without those of subresources.
func knownFields(live *unstructured.Unstructured) *fieldpath.Set {
	known := &fieldpath.Set{}
	for _, entry := range live.GetManagedFields() {
		if entry.Subresource == "" {
			known = known.Union(setOf(entry))
		}
	}
	return known
}

// mergeMaps merges two maps; known are the managed fields below them, at is their path.
func (o *overlay) mergeMaps(at fieldpath.Path, known *fieldpath.Set, live, declared map[string]any) map[string]any {
	merged := maps.Clone(live)
	if merged == nil {
		merged = map[string]any{}
	}
	for _, name := range keysOf(live, declared) {
		element := fieldpath.FieldNameElement(name)
		below := append(slices.Clip(at), element)
		now, isDeclared := declared[name]
		if !isDeclared {
			o.undeclared = append(o.undeclared, below.Copy())
			continue
		}
		atomic := known.Members.Has(element) && known.WithPrefix(element).Empty()
		merged[name] = o.merge(below, known.WithPrefix(element), atomic, live[name], now)
	}
	return merged
}

// merge merges two values. A value that is replaced as a whole is the declared one.
func (o *overlay) merge(at fieldpath.Path, known *fieldpath.Set, atomic bool, live, declared any) any {
	switch now := declared.(type) {
	case map[string]any:
		if old, ok := live.(map[string]any); ok && !atomic {
			return o.mergeMaps(at, known, old, now)
		}
	case []any:
		old, ok := live.([]any)
		if keys := listKeysIn(known); ok && keys != nil && allMaps(old) && allMaps(now) {
			return o.mergeLists(at, known, keys, [2][]any{old, now})
		}
		if ok && isSetIn(known) {
			return mergeSets(old, now)
		}
	}
	return declared
}

// mergeLists merges lists whose elements have keys: the declared elements first, then those that only the live list has.
func (o *overlay) mergeLists(at fieldpath.Path, known *fieldpath.Set, keys []string, lists [2][]any) []any {
	live, merged := slices.Clone(lists[0]), []any{}
	for _, each := range lists[1] {
		now := each.(map[string]any)
		n := slices.IndexFunc(live, func(old any) bool { return sameKeys(old.(map[string]any), now, keys) })
		if n < 0 {
			merged = append(merged, now)
			continue
		}
		old, element := live[n].(map[string]any), keyElement(live[n].(map[string]any), keys)
		complete := maps.Clone(now)
		for _, key := range keys {
			if _, ok := now[key]; !ok && old[key] != nil {
				complete[key] = old[key] // the server's default
			}
		}
		merged = append(merged, o.mergeMaps(append(slices.Clip(at), element), known.WithPrefix(element), old, complete))
		live = slices.Delete(live, n, n+1)
	}
	for _, each := range live {
		o.undeclared = append(o.undeclared, append(slices.Clip(at), keyElement(each.(map[string]any), keys)).Copy())
	}
	return append(merged, live...)
}

// mergeSets merges lists that are sets of values.
func mergeSets(live, declared []any) []any {
	merged := slices.Clone(declared)
	for _, each := range live {
		if !slices.ContainsFunc(merged, func(other any) bool { return reflect.DeepEqual(each, other) }) {
			merged = append(merged, each)
		}
	}
	return merged
}

// listKeysIn are the names of the keys of a list's elements, from its managed fields; nil if it has none.
func listKeysIn(known *fieldpath.Set) (keys []string) {
	for _, p := range pathsOf(known) {
		if p[0].Key == nil {
			continue
		}
		for _, field := range *p[0].Key {
			keys = append(keys, field.Name)
		}
		return keys
	}
	return nil
}

func isSetIn(known *fieldpath.Set) bool {
	return slices.ContainsFunc(pathsOf(known), func(p fieldpath.Path) bool { return p[0].Value != nil })
}

// sameKeys reports whether a declared element of a list is a live one. A protocol that is not declared is TCP; other keys that are not
// declared may have any value, since the schema has their defaults.
func sameKeys(live, declared map[string]any, keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		wanted, ok := declared[key]
		if !ok && key == "protocol" {
			wanted, ok = "TCP", true
		}
		return ok && !reflect.DeepEqual(live[key], wanted)
	})
}

// keyElement is the part of a path that names an element of a list.
func keyElement(element map[string]any, keys []string) fieldpath.PathElement {
	var fields []value.Field
	for _, key := range keys {
		if v, ok := element[key]; ok {
			fields = append(fields, value.Field{Name: key, Value: value.NewValueInterface(v)})
		}
	}
	return fieldpath.KeyElement(fields...)
}

// entriesAt are the managed fields of a live object that are at a path or below it, by manager.
func entriesAt(live *unstructured.Unstructured, at fieldpath.Path) (entries []metav1.ManagedFieldsEntry) {
	for _, entry := range live.GetManagedFields() {
		if slices.ContainsFunc(pathsOf(setOf(entry)), func(p fieldpath.Path) bool { return hasPrefix(p, at) }) {
			entries = append(entries, entry)
		}
	}
	return entries
}

func pathsOf(set *fieldpath.Set) (paths []fieldpath.Path) {
	set.Iterate(func(p fieldpath.Path) { paths = append(paths, p.Copy()) })
	return paths
}

func hasPrefix(p, prefix fieldpath.Path) bool {
	return len(p) >= len(prefix) && p[:len(prefix)].Equals(prefix)
}
