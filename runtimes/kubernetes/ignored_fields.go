package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// This file handles fields that other writers own (H2): the fields that ignoreDifferences names, and the replicas of a scaled
// object. A new object is created with them, so that it starts complete. An apply to an existing object omits them, which keeps
// their values. The exception is a field that only Converge owns: the server would remove it when it is omitted, so the apply sends
// its live value. The next writer of that field becomes its owner.

// ignoreDifferences are the ignoreDifferences of the runtime.
func (r *Runtime) ignoreDifferences() []entities.IgnoredDifference {
	if r.def.Kubernetes == nil {
		return nil
	}
	return r.def.Kubernetes.Ignore
}

// setIgnored records which fields of an object are declared as owned by others.
func (d *declared) setIgnored(ignore []entities.IgnoredDifference) {
	kind := d.GroupVersionKind()
	for _, i := range ignore {
		if !i.Matches(entities.AllowedKind{Group: kind.Group, Kind: kind.Kind}, d.GetNamespace(), d.GetName()) {
			continue
		}
		for _, pointer := range i.JSONPointers {
			if at := pathOf(d.Object, pointer); at != nil {
				d.ignoredPaths = append(d.ignoredPaths, at)
			}
		}
		if len(i.Managers) > 0 {
			d.ignoredManagers = append(d.ignoredManagers, i)
		}
	}
}

// pathOf is the path of a JSON pointer in a declared object. It names list elements by their keys, since the live object may have
// them at other positions. It is nil where the pointer leads into a list past its end.
func pathOf(object map[string]any, pointer string) (at path) {
	var value any = object
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		list, isList := value.([]any)
		if !isList {
			m, _ := value.(map[string]any)
			at, value = at.with(part{field: token}), m[token]
			continue
		}
		n, err := strconv.Atoi(token)
		if err != nil || n < 0 || n >= len(list) {
			return nil
		}
		at, value = at.with(partOf(list, n)), list[n]
	}
	return at
}

// partOf is the part of a path that names an element of a list.
func partOf(list []any, n int) part {
	if allMaps(list) {
		if key := keyOf(list); key != "" {
			names, _ := byKey(list, key)
			return part{key: key, value: names[n]}
		}
	}
	return part{index: n, isIndex: true}
}

// find is the value at one part of a path, and its index if it is in a list; nil if there is none.
func (p part) find(in any) (value any, index int) {
	list, isList := in.([]any)
	if !isList {
		m, _ := in.(map[string]any)
		return m[p.field], 0
	}
	for n, each := range list {
		m, _ := each.(map[string]any)
		if p.isIndex && n == p.index || p.key != "" && m[p.key] != nil && partOf([]any{each}, 0).value == p.value {
			return each, n
		}
	}
	return nil, 0
}

// get is the value at a path; nil if there is none.
func (p path) get(in any) any {
	for _, part := range p {
		in, _ = part.find(in)
	}
	return in
}

// put sets the value at a path, or removes it if value is nil, provided that its parent exists. Elements of lists do not move: see
// compactLists.
func (p path) put(in, value any) {
	last := p[len(p)-1]
	switch in := p[:len(p)-1].get(in).(type) {
	case map[string]any:
		in[last.field] = value
		if value == nil {
			delete(in, last.field)
		}
	case []any:
		if old, n := last.find(in); old != nil {
			in[n] = value
		}
	}
}

// compactLists deletes the removed elements from lists.
func compactLists(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = compactLists(inner)
		}
	case []any:
		v = slices.DeleteFunc(v, func(each any) bool { return each == nil })
		for n := range v {
			v[n] = compactLists(v[n])
		}
		return v
	}
	return value
}

// withoutPaths is a copy of an object without the values at some paths.
func withoutPaths(object map[string]any, paths []path) map[string]any {
	if len(paths) == 0 {
		return object
	}
	o := (&unstructured.Unstructured{Object: object}).DeepCopy().Object
	for _, at := range paths {
		at.put(o, nil)
	}
	compactLists(o)
	return o
}

// omittedPaths are the fields of a live object that others own, except those that only the writer's name determines.
func (d declared) omittedPaths(live *unstructured.Unstructured) []path {
	if d.scaler == "" && (d.scalerGone || scaledBy(live) == "") {
		return d.ignoredPaths
	}
	return append(slices.Clip(d.ignoredPaths), replicas)
}

// isWithinPaths reports whether a field, named as in a conflict, equals one of the paths or lies below one.
func isWithinPaths(field string, paths []path) bool {
	return slices.ContainsFunc(paths, func(at path) bool {
		rest, ok := strings.CutPrefix(field, at.String())
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// dropDifferences drops the differences in fields that others own.
func dropDifferences(found []difference, paths []path) []difference {
	return slices.DeleteFunc(found, func(d difference) bool {
		return slices.ContainsFunc(paths, func(at path) bool { return len(d.at) >= len(at) && slices.Equal(d.at[:len(at)], at) })
	})
}

// watchedCopySuffices reports whether the watched copy of an object is enough to know who owns its fields: it is for replicas.
func (d declared) watchedCopySuffices() bool {
	return len(d.ignoredPaths) == 0 && len(d.ignoredManagers) == 0
}

// withoutOthersFields is the object to send over the live one. The live object must be complete, unless the watched copy is enough.
// The digest remains that of the declared object, for comparisons.
func (d declared) withoutOthersFields(live *unstructured.Unstructured) (declared, error) {
	omitted := d.omittedPaths(live)
	if len(omitted) == 0 && len(d.ignoredManagers) == 0 {
		return d, nil
	}
	d.Unstructured = d.DeepCopy()
	ours := appliedFields(live)
	for _, at := range omitted {
		var value any
		if containsPath(ours, at) {
			value = at.get(live.Object)
		}
		at.put(d.Object, value)
	}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != FieldManager && slices.ContainsFunc(d.ignoredManagers, func(i entities.IgnoredDifference) bool { return i.MatchesManager(entry.Manager) }) {
			d.Object, _ = dropFields(d.Object, fieldsOf(entry)).(map[string]any)
		}
	}
	compactLists(d.Object)
	text, err := json.Marshal(d.Object)
	d.text = text
	return d, err
}

// dropFields removes from a value the fields that a set of managedFields has; nil if nothing is left.
func dropFields(value any, fields map[string]any) any {
	for _, name := range keysOf(fields) {
		at, ok := parseManagedField(name)
		old, n := at.find(value)
		if !ok || old == nil {
			continue // the element itself: it is removed when it has no other field left
		}
		var rest any
		key := path{{field: at.key}}.get(old)
		if inner, _ := fields[name].(map[string]any); len(inner) > 0 {
			rest = dropFields(old, inner)
		}
		switch in := value.(type) {
		case []any:
			in[n] = at.restoreKey(rest, key)
		case map[string]any:
			if in[at.field] = rest; rest == nil {
				delete(in, at.field)
			}
		}
	}
	if m, ok := value.(map[string]any); ok && len(m) == 0 {
		return nil
	}
	return value
}

// restoreKey is the rest of a list element. The element keeps its key as long as it has any other field.
func (p part) restoreKey(rest, name any) any {
	remaining, isMap := rest.(map[string]any)
	if !isMap || p.key == "" {
		return rest
	}
	if delete(remaining, p.key); len(remaining) == 0 {
		return nil
	}
	remaining[p.key] = name
	return remaining
}

// parseManagedField is the part of a path that a name in managedFields means. It is not ok for a value in a set, and for the whole value.
func parseManagedField(name string) (part, bool) {
	if field, ok := strings.CutPrefix(name, "f:"); ok {
		return part{field: field}, true
	}
	var key map[string]any
	if keys, ok := strings.CutPrefix(name, "k:"); ok && json.Unmarshal([]byte(keys), &key) == nil {
		for _, field := range keysOf(key) {
			if names, _ := byKey([]any{key}, field); len(names) == 1 {
				return part{key: field, value: names[0]}, true
			}
		}
	}
	return part{}, false
}

func fieldsOf(entry metav1.ManagedFieldsEntry) (fields map[string]any) {
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return nil
	}
	return fields
}

// appliedFields are the fields of an object that Converge applied last, in the form of managedFields. A watched object has only its
// replicas.
func appliedFields(live *unstructured.Unstructured) map[string]any {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			if fields := fieldsOf(entry); len(fields) > 0 {
				return fields
			}
		}
	}
	return map[string]any{"": nil} // an empty set would mean that the set ends above this field
}

// pointer converts a path of a conflict to the form of ignoreDifferences: .spec.template.spec.containers[name="web"].image becomes
// /spec/template/spec/containers/0/image of the declared object. It is empty if the object does not have that path.
func pointer(object any, field string) string {
	switch v := object.(type) {
	case map[string]any:
		for _, name := range slices.Backward(keysOf(v)) { // of two names with the same prefix, the longer one first
			rest, ok := strings.CutPrefix(field, "."+name)
			if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
				continue
			}
			if below := pointer(v[name], rest); below != "" || rest == "" {
				return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name) + below
			}
		}
	case []any:
		return pointerInto(v, field)
	}
	return ""
}

// pointerInto is pointer for the elements of a list, which conflicts name by their keys: [name="web"].image.
func pointerInto(list []any, field string) string {
	keys, rest, _ := strings.Cut(strings.TrimPrefix(field, "["), "]")
	named := strings.Split(strings.ReplaceAll(keys, `"`, ""), ",")
	for n := range list {
		at := partOf(list, n)
		if !slices.Contains(named, at.key+"="+at.value) {
			continue
		}
		if below := pointer(list[n], rest); below != "" || rest == "" {
			return "/" + strconv.Itoa(n) + below
		}
	}
	return ""
}

// readComplete reads the complete object if the watched copy does not show who owns its fields.
func (a *apply) readComplete(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	if t.watchedCopySuffices() {
		return t.live, nil
	}
	live, err := a.clients.resourceClient(t.resource, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	return live, explain(ctx, "read the owners of the fields of "+idOf(t.Unstructured).String(), err)
}

// omitOthersFields removes from an apply the fields that others own in the live object.
func (a *apply) omitOthersFields(ctx context.Context, t *trial) error {
	if t.live == nil {
		return nil
	}
	live, err := a.readComplete(ctx, t)
	if err != nil {
		return err
	}
	if t.declared, err = t.withoutOthersFields(live); err != nil {
		return runtimes.Permanent(err)
	}
	return nil
}

// ignoreDeclaration is the declaration that leaves fields to their current owners.
func ignoreDeclaration(d declared, fields []string) string {
	var pointers []string
	for _, field := range fields {
		if at := pointer(d.Object, field); at != "" {
			pointers = append(pointers, at)
		}
	}
	kind := d.GroupVersionKind()
	group := "group: " + kind.Group + ", "
	if kind.Group == "" {
		group = ""
	}
	return fmt.Sprintf("ignoreDifferences: [{%skind: %s, name: %s, jsonPointers: [%s]}]", group, kind.Kind, d.GetName(), strings.Join(pointers, ", "))
}
