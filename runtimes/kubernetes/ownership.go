package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/converge-engine/converge/runtimes"
)

// findLive is the live object with the name of a declared one, nil if there is none. It is an error if Converge may not take it over
// (D11). The watched object is trusted if it carries our labels. If the watch has no such object, it is read from the server.
func (a *apply) findLive(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	if v, err := a.cluster.view(ctx, t.resource, t.GetNamespace()); err == nil {
		if o := v.get(t.GetNamespace(), t.GetName()); o != nil && o.GetDeletionTimestamp() == nil && a.hasLabels(o) &&
			a.otherInventoryOf(ctx, o) == nil && !a.hasNewConsent(t, o) {
			return o, nil
		}
	}
	return a.read(ctx, t)
}

// read gets the live object from the server, and checks whether Converge may take it over.
func (a *apply) read(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	live, err := a.clients.resourceClient(t.resource, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(ctx, "look up "+idOf(t.Unstructured).String(), err)
	}
	if live.GetDeletionTimestamp() != nil {
		return nil, fmt.Errorf("apply %s: the existing object is being deleted; it is created again once it is gone", idOf(t.Unstructured))
	}
	return live, a.checkOwnership(ctx, t, live)
}

// isOwned reports whether an object carries our labels and belongs to this installation.
func (a *apply) isOwned(o *unstructured.Unstructured) bool {
	return a.hasLabels(o) && a.others.inventoryOf(o) == nil
}

func (a *apply) hasLabels(o *unstructured.Unstructured) bool {
	owner, ok := ownerOf(o.GetLabels())
	return ok && owner == a.owner
}

// checkOwnership says why an apply may not overwrite a live object. An object of another instance is never overwritten; an object of
// another owner only if adopting was requested.
func (a *apply) checkOwnership(ctx context.Context, t *trial, live *unstructured.Unstructured) error {
	owner, ok := ownerOf(live.GetLabels())
	switch {
	case ok && owner == a.owner:
		return a.refuseOtherInstallation(ctx, t, live)
	case ok && a.mayTake(ctx, t, live):
		return nil
	case ok && a.isDropped(owner, live):
		return runtimes.Unready(&problem{ // the earlier service decides when; no version has failed
			action: "apply " + idOf(t.Unstructured).String(),
			reason: fmt.Sprintf("it belongs to %s%s, which was not applied without it yet; then it is taken over", owner, a.otherInstallationText(ctx, owner, live)),
			hint:   "to move it at once, annotate it with " + AnnotationMovedFrom + ": " + owner.Service,
		})
	case ok:
		// This error is not permanent: when an object moves from one service to another, the earlier service may be about to prune
		// it.
		return &problem{
			action: "apply " + idOf(t.Unstructured).String(),
			reason: fmt.Sprintf("it belongs to %s%s; one object has one owner", owner, a.otherInstallationText(ctx, owner, live)),
			hint:   "remove it from one of them; to move it here, annotate it with " + AnnotationMovedTo + ": " + a.owner.Service + " there, or with " + AnnotationMovedFrom + " here",
		}
	case a.hasNewConsent(t, live) || a.wasOwned(live):
		return nil
	}
	reason := "it already exists, and does not belong to this instance"
	if by := managersOf(live); by != "" {
		reason += " (written by " + by + ")"
	}
	return runtimes.Permanent(&problem{action: "apply " + idOf(t.Unstructured).String(), reason: reason, hint: adoptHint})
}

// wasOwned reports whether this instance applied an object whose labels were then removed by hand: Converge is one of its field
// managers, and the remaining labels and annotations are those of this instance.
func (a *apply) wasOwned(live *unstructured.Unstructured) bool {
	if !appliedByUs(live) {
		return false
	}
	marks, ours := 0, labelsOf(a.owner)
	ours[LabelPartOf] = setID(inventoryName(a.owner), a.namespace)
	for name, value := range ours {
		switch actual, ok := live.GetLabels()[name]; {
		case ok && actual != value:
			return false
		case ok:
			marks++
		}
	}
	_, versioned := live.GetAnnotations()[AnnotationVersion]
	return marks > 0 || versioned
}

// appliedByUs reports whether Converge applied an object, with this worker or an earlier one. Labels are not enough: a clone of an
// object has the same labels, and some controllers copy them (Endpoints have those of their Service). An inventory is made by a
// create.
func appliedByUs(o *unstructured.Unstructured) bool {
	entries, _ := nestedMap(o.Object, "metadata")["managedFields"].([]any)
	inventory := o.GetAnnotations()[annotationTooling] == tooling
	return slices.ContainsFunc(entries, func(each any) bool {
		entry, _ := each.(map[string]any)
		return entry["manager"] == FieldManager && (inventory || entry["operation"] == string(metav1.ManagedFieldsOperationApply))
	})
}

// appliedAt is the time at which an apply of Converge last changed an object; zero if that is not known.
func appliedAt(o *unstructured.Unstructured) (at time.Time) {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Time != nil {
			at = entry.Time.Time
		}
	}
	return at
}

// createdByOthers reports whether an undeclared object with our labels must neither be reported nor removed: a controller made it for
// another object, or another writer made it.
func createdByOthers(o *unstructured.Unstructured) bool {
	return metav1.GetControllerOfNoCopy(o) != nil || !appliedByUs(o)
}

// managersOf lists the field managers of an object.
func managersOf(o *unstructured.Unstructured) string {
	var names []string
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "" {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// conflict is a declared field that another manager owns.
type conflict struct {
	field       string // spec.replicas
	at          string // .spec.replicas
	owner       string // its field manager
	subresource string // the subresource of the write, such as scale for an autoscaler
	operation   metav1.ManagedFieldsOperationType
}

// isManualEdit reports whether a field was written once, without declaring it. Converge overwrites manual edits, and all edits by kubectl
// through any subresource. Another declarative tool, or a controller that writes through a subresource, would write again.
func (c conflict) isManualEdit() bool {
	return c.operation == metav1.ManagedFieldsOperationUpdate && (c.subresource == "" || strings.HasPrefix(c.owner, "kubectl"))
}

// String says "spec.replicas belongs to hpa, which writes through scale".
func (c conflict) String() string {
	switch {
	case c.subresource != "":
		return fmt.Sprintf("%s belongs to %s, which writes it through %s", c.field, c.owner, c.subresource)
	case c.operation == metav1.ManagedFieldsOperationApply:
		return fmt.Sprintf("%s belongs to %s, which declares it too", c.field, c.owner)
	}
	return fmt.Sprintf("%s belongs to %s", c.field, c.owner)
}

// conflictsOf reads the fields and their owners from the server's error, and from managedFields how they were written. If
// managedFields does not have the owner, the field counts as declared by that owner.
func conflictsOf(err error, owners []metav1.ManagedFieldsEntry) []conflict {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	sets := make([]*fieldpath.Set, len(owners))
	var all []conflict
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		c := conflict{field: plainPath(cause.Field), at: cause.Field, operation: metav1.ManagedFieldsOperationApply}
		c.owner, c.subresource = parseManager(cause.Message)
		for i, entry := range owners {
			if entry.Manager != c.owner || entry.Subresource != c.subresource {
				continue
			}
			if sets[i] == nil {
				sets[i] = setOf(entry)
			}
			if setContains(sets[i], cause.Field) {
				c.operation = entry.Operation
				break
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b conflict) int { return strings.Compare(a.field+a.owner, b.field+b.owner) })
	return slices.Compact(all)
}

// parseManager parses: conflict with "NAME" with subresource "NAME" using apps/v1 at TIME.
func parseManager(message string) (name, subresource string) {
	found := regexp.MustCompile(`^conflict with "([^"]*)"(?: with subresource "([^"]*)")?`).FindStringSubmatch(message)
	if found == nil {
		return message, ""
	}
	return found[1], found[2]
}

func setOf(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if entry.FieldsV1 != nil && set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
		return &fieldpath.Set{} // it is not readable, so no owned field is known
	}
	return set
}

func setContains(set *fieldpath.Set, field string) (found bool) {
	set.Iterate(func(p fieldpath.Path) { found = found || p.String() == field })
	return found
}

// plainPath converts .spec.template.spec.containers[name="web"].image to the form of reported changes:
// spec.template.spec.containers[name=web].image.
func plainPath(field string) string {
	return strings.TrimPrefix(strings.ReplaceAll(field, `"`, ""), ".")
}

// lastWriter is the last manager besides Converge that wrote a field, from managedFields; empty if there is none.
func lastWriter(o *unstructured.Unstructured, at path) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil || !containsPath(fields, at) {
			continue
		}
		if last.Manager == "" || last.Time.Before(entry.Time) {
			last = entry
		}
	}
	return last.Manager
}

// containsPath reports whether a set of fields, in the form of managedFields, contains a field or something below it. A set that ends above
// the field contains it as a part of an atomic value.
func containsPath(fields map[string]any, at path) bool {
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

// elementOf finds an element of a list by one of its key fields.
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
