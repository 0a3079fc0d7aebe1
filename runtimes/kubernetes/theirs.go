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

// This file keeps fields that are somebody else's (H2): what ignoreDifferences names, and the replicas of what is scaled. They
// are part of an object that is made, so that it does not begin without them. Of one that is there they are left out, which
// leaves them as they are, unless they are still ours alone: what is left out would be taken away then, so they are sent as they
// are there. Whoever writes them next takes them over.

// ignored are the fields that the runtime says are somebody else's.
func (r *Runtime) ignored() []entities.IgnoredDifference {
	if r.def.Kubernetes == nil {
		return nil
	}
	return r.def.Kubernetes.Ignore
}

// isTheirs notes on an object which of its fields are declared to be somebody else's.
func (d *declared) isTheirs(ignore []entities.IgnoredDifference) {
	kind := d.GroupVersionKind()
	for _, i := range ignore {
		if !i.Is(entities.AllowedKind{Group: kind.Group, Kind: kind.Kind}, d.GetNamespace(), d.GetName()) {
			continue
		}
		for _, pointer := range i.JSONPointers {
			if at := pathOf(d.Object, pointer); at != nil {
				d.theirs = append(d.theirs, at)
			}
		}
		if len(i.Managers) > 0 {
			d.ignore = append(d.ignore, i)
		}
	}
}

// pathOf is where a JSON pointer leads in an object that is declared. The elements of lists are named as they are, since theirs
// may stand at another place there. It is nil where the pointer leads into a list past its end.
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

// partOf names an element of a list.
func partOf(list []any, n int) part {
	if ofMaps(list) {
		if key := keyOf(list); key != "" {
			names, _ := byKey(list, key)
			return part{key: key, value: names[n]}
		}
	}
	return part{index: n, isIndex: true}
}

// find is what is at a part of a value, and where in a list; nil when nothing is.
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

// get is what is at a path; nil when nothing is.
func (p path) get(in any) any {
	for _, part := range p {
		in, _ = part.find(in)
	}
	return in
}

// put sets what is at a path, or takes it away when it is nil, where what it is in is there. In lists nothing moves: see sweep.
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

// sweep takes out of lists what was taken away.
func sweep(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = sweep(inner)
		}
	case []any:
		v = slices.DeleteFunc(v, func(each any) bool { return each == nil })
		for n := range v {
			v[n] = sweep(v[n])
		}
		return v
	}
	return value
}

// without is an object without what is at some paths. The object itself is not changed.
func without(object map[string]any, paths []path) map[string]any {
	if len(paths) == 0 {
		return object
	}
	o := (&unstructured.Unstructured{Object: object}).DeepCopy().Object
	for _, at := range paths {
		at.put(o, nil)
	}
	sweep(o)
	return o
}

// theirsIn are the fields of an object that is there which are somebody else's, as far as that is not said by who writes them.
func (d declared) theirsIn(live *unstructured.Unstructured) []path {
	if d.scaler == "" && (d.unscaled || scaledBy(live) == "") {
		return d.theirs
	}
	return append(slices.Clip(d.theirs), replicas)
}

// within reports whether a field, as conflicts name it, is one of some or in one.
func within(field string, paths []path) bool {
	return slices.ContainsFunc(paths, func(at path) bool {
		rest, ok := strings.CutPrefix(field, at.String())
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// leavingOut leaves out of differences those in fields that are somebody else's.
func leavingOut(found []difference, theirs []path) []difference {
	return slices.DeleteFunc(found, func(d difference) bool {
		return slices.ContainsFunc(theirs, func(at path) bool { return len(d.at) >= len(at) && slices.Equal(d.at[:len(at)], at) })
	})
}

// watched reports whether what is watched of an object tells whose its fields are: it does for replicas.
func (d declared) watched() bool { return len(d.theirs) == 0 && len(d.ignore) == 0 }

// yield is an object as it is sent over the one that is there, which was read as a whole unless it is watched. It stays the
// same object to whoever compares what was declared.
func (d declared) yield(live *unstructured.Unstructured) (declared, error) {
	theirs := d.theirsIn(live)
	if len(theirs) == 0 && len(d.ignore) == 0 {
		return d, nil
	}
	d.Unstructured = d.DeepCopy()
	ours := oursIn(live)
	for _, at := range theirs {
		var value any
		if holds(ours, at) {
			value = at.get(live.Object)
		}
		at.put(d.Object, value)
	}
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != FieldManager && slices.ContainsFunc(d.ignore, func(i entities.IgnoredDifference) bool { return i.By(entry.Manager) }) {
			d.Object, _ = leave(d.Object, fieldsOf(entry)).(map[string]any)
		}
	}
	sweep(d.Object)
	text, err := json.Marshal(d.Object)
	d.text = text
	return d, err
}

// leave takes out of a value the fields that a set of managedFields has; nil when nothing is left.
func leave(value any, fields map[string]any) any {
	for _, name := range keysOf(fields) {
		at, ok := namedBy(name)
		old, n := at.find(value)
		if !ok || old == nil {
			continue // the element itself, which goes when nothing else of it is left
		}
		var rest any
		key := path{{field: at.key}}.get(old)
		if inner, _ := fields[name].(map[string]any); len(inner) > 0 {
			rest = leave(old, inner)
		}
		switch in := value.(type) {
		case []any:
			in[n] = at.named(rest, key)
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

// named is what is left of a list's element, which keeps its name as long as there is anything else.
func (p part) named(rest, name any) any {
	left, isMap := rest.(map[string]any)
	if !isMap || p.key == "" {
		return rest
	}
	if delete(left, p.key); len(left) == 0 {
		return nil
	}
	left[p.key] = name
	return left
}

// namedBy is which part of a value a name in managedFields stands for; not ok for one of a value in a set, and for the whole.
func namedBy(name string) (part, bool) {
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

// oursIn are the fields of an object that we applied last, in the form of managedFields; of one that is watched, only its replicas.
func oursIn(live *unstructured.Unstructured) map[string]any {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			if fields := fieldsOf(entry); len(fields) > 0 {
				return fields
			}
		}
	}
	return map[string]any{"": nil} // an empty set would be one that ends above
}

// pointer is a path of a conflict as ignoreDifferences takes it: .spec.template.spec.containers[name="web"].image is
// /spec/template/spec/containers/0/image of the object that is declared. It is empty where that does not have it.
func pointer(object any, field string) string {
	switch v := object.(type) {
	case map[string]any:
		for _, name := range slices.Backward(keysOf(v)) { // the longer one of two with the same beginning
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

// needsWhole reads an object as a whole, where what is watched of it does not say whose its fields are.
func (a *apply) needsWhole(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	if t.watched() {
		return t.live, nil
	}
	live, err := a.clients.at(t.at, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	return live, explain(ctx, "read whose the fields of "+idOf(t.Unstructured).String()+" are", err)
}

// leaveTheirs takes out of what is sent what is somebody else's there.
func (a *apply) leaveTheirs(ctx context.Context, t *trial) error {
	if t.live == nil {
		return nil
	}
	live, err := a.needsWhole(ctx, t)
	if err != nil {
		return err
	}
	if t.declared, err = t.yield(live); err != nil {
		return runtimes.Permanent(err)
	}
	return nil
}

// ignoring is what to declare to have fields left to whoever owns them.
func ignoring(d declared, fields []string) string {
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
