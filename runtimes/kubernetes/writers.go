package kubernetes

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// writerOf names who wrote a field last besides us, from managedFields; empty when nobody is known.
func writerOf(o *unstructured.Unstructured, at path) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil || !holds(fields, at) {
			continue
		}
		if last.Manager == "" || last.Time.Before(entry.Time) {
			last = entry
		}
	}
	return last.Manager
}

// holds tells whether a set of fields, in the form of managedFields, has a field or something in it.
// A set that ends above the field holds it as a part of a value that is written as a whole.
func holds(fields map[string]any, at path) bool {
	for _, part := range at {
		if len(fields) == 0 {
			return true
		}
		next, ok := fields["f:"+part.field].(map[string]any)
		if part.key != "" {
			next, ok = elementOf(fields, part)
		}
		if !ok {
			return false
		}
		fields = next
	}
	return true
}

// elementOf finds a list's element by one of the fields that name it.
func elementOf(fields map[string]any, at part) (map[string]any, bool) {
	for _, name := range keysOf(fields) {
		var key map[string]any
		if len(name) < 2 || name[:2] != "k:" || json.Unmarshal([]byte(name[2:]), &key) != nil {
			continue
		}
		if names, _ := byKey([]any{key}, at.key); len(names) == 1 && names[0] == at.value {
			found, ok := fields[name].(map[string]any)
			return found, ok
		}
	}
	return nil, false
}
