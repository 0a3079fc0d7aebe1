package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
)

// A field is foreign if another writer added it to the pod template of a workload and it is not declared: a container, a volume,
// hostNetwork. The managedFields of the workload show it. They do not show sidecars that are injected into the pods, or the changes
// of a webhook to an apply, since those have no owner.

// foreign is a field that another writer added.
type foreign struct {
	path    path
	manager string
}

// String is "spec.template.spec.containers[name=debug] (by kubectl-edit)".
func (f foreign) String() string { return f.path.String() + " (by " + f.manager + ")" }

// foreignIn finds the fields that others added to a live object, after an apply or in the answer to a dry run. Declared fields are
// ours. A field that is declared to belong to others is not foreign.
func foreignIn(o *unstructured.Unstructured, d declared) (all []foreign) {
	template := templateOf(idOf(o).kind)
	if !isWorkload(o) || template == nil {
		return nil
	}
	at := path{}
	for _, field := range append(slices.Clip(template), "spec") {
		at = at.with(part{field: field})
	}
	ours, theirs := appliedFields(o), d.omittedPaths(o)
	for _, entry := range o.GetManagedFields() {
		ignored := func(i entities.IgnoredDifference) bool { return i.MatchesManager(entry.Manager) }
		if entry.Manager == FieldManager || entry.Subresource != "" || slices.ContainsFunc(d.ignoredManagers, ignored) {
			continue
		}
		for _, added := range addedFields(at, fieldsAt(fieldsOf(entry), at), ours) {
			if value := added.get(o.Object); value != nil && !isDefault(added, value) && !isWithinPaths(added.String(), theirs) {
				all = append(all, foreign{added, entry.Manager})
			}
		}
	}
	slices.SortFunc(all, func(a, b foreign) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// fieldsAt is the part of a set of fields below a path; nil: none.
func fieldsAt(fields map[string]any, at path) map[string]any {
	for _, part := range at {
		fields, _ = fields["f:"+part.field].(map[string]any)
	}
	return fields
}

// addedFields lists the fields of a set that are not ours. A field that was added as a whole is one entry.
func addedFields(at path, fields, ours map[string]any) (all []path) {
	for _, name := range keysOf(fields) {
		part, ok := parseManagedField(name)
		if !ok {
			continue
		}
		below, _ := fields[name].(map[string]any)
		_, complete := below["."]
		switch added := at.with(part); {
		case (complete || len(below) == 0) && !containsPath(ours, added):
			all = append(all, added)
		default:
			all = append(all, addedFields(added, below, ours)...)
		}
	}
	return all
}

// isDefault reports whether a field has the value that the server fills in. Such a field belongs to the tool that created the object
// without an apply; it is not an addition.
func isDefault(at path, value any) bool {
	if m, ok := value.(map[string]any); ok && len(m) == 0 {
		return true
	}
	switch fmt.Sprint(at[len(at)-1].field, "=", value) {
	case "dnsPolicy=ClusterFirst", "restartPolicy=Always", "schedulerName=default-scheduler", "terminationGracePeriodSeconds=30",
		"terminationMessagePath=/dev/termination-log", "terminationMessagePolicy=File", "imagePullPolicy=Always", "imagePullPolicy=IfNotPresent",
		"protocol=TCP", "scheme=HTTP", "successThreshold=1", "failureThreshold=3", "periodSeconds=10", "timeoutSeconds=1", "defaultMode=420":
		return true
	}
	return false
}

// foreignTexts are foreign fields as text for people.
func foreignTexts(all []foreign) (texts []string) {
	for _, f := range all {
		texts = append(texts, f.String())
	}
	return texts
}

// removalPatch is a JSON patch that removes foreign fields from a live object. It applies only to the object as it was read.
func removalPatch(o *unstructured.Unstructured, all []foreign) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	ops := []operation{{Op: "test", Path: "/metadata/resourceVersion", Value: o.GetResourceVersion()}}
	var paths []string
	for _, f := range all {
		paths = append(paths, pointerTo(o.Object, f.path))
	}
	slices.SortFunc(paths, func(a, b string) int { return byIndex(b, a) }) // of two elements of a list, the later one first
	for _, at := range paths {
		ops = append(ops, operation{Op: "remove", Path: at})
	}
	return json.Marshal(ops)
}

// byIndex compares pointers; it compares numbers in them by value.
func byIndex(a, b string) int {
	if len(a) != len(b) && strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// pointerTo is the JSON pointer of a path in an object.
func pointerTo(object any, at path) string {
	var b strings.Builder
	for _, part := range at {
		inner, n := part.find(object)
		if _, list := object.([]any); list {
			fmt.Fprintf(&b, "/%d", n)
		} else {
			b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part.field))
		}
		object = inner
	}
	return b.String()
}

// removeForeign removes from an applied object the fields that others added, if the payload does not allow them.
func (a *apply) removeForeign(ctx context.Context, t *trial) error {
	if !a.clearForeign || len(t.foreign) == 0 {
		return nil
	}
	action, at := "remove fields that others added to "+idOf(t.Unstructured).String(), a.clients.resourceClient(t.resource, t.GetNamespace())
	live, last := t.applied, error(nil)
	for range maxConflictRetries {
		found := foreignIn(live, t.declared)
		if len(found) == 0 {
			return nil
		}
		patch, err := removalPatch(live, found)
		if err != nil {
			return err
		}
		applied, err := at.Patch(ctx, t.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		if err == nil {
			for _, f := range found {
				a.log.add("removed %s of %s, which %s had added", f.path, displayName(applied), f.manager)
			}
			t.applied = applied
			return nil
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) { // the object is now another one
			return explain(ctx, action, err)
		}
		last = err
		if live, err = at.Get(ctx, t.GetName(), metav1.GetOptions{}); err != nil {
			return explain(ctx, action, err)
		}
	}
	return explain(ctx, action, last)
}
