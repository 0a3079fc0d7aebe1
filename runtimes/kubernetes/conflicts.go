package kubernetes

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// conflict is a field that we declare and somebody else owns.
type conflict struct {
	field       string // spec.replicas
	owner       string // who wrote it
	subresource string // through which, as an autoscaler does
	operation   metav1.ManagedFieldsOperationType
}

// byHand tells whether a field was written once, and not declared: hand edits are taken back, those
// of kubectl too, whatever it wrote through. Another declaring tool, or a controller that writes
// through a subresource, would write again.
func (c conflict) byHand() bool {
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

// conflictsOf reads from a refusal which fields whose are, and from managedFields how they were
// written. A field whose owner is not found there counts as declared by it.
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
		c := conflict{field: plainPath(cause.Field), operation: metav1.ManagedFieldsOperationApply}
		c.owner, c.subresource = writer(cause.Message)
		for i, entry := range owners {
			if entry.Manager != c.owner || entry.Subresource != c.subresource {
				continue
			}
			if sets[i] == nil {
				sets[i] = setOf(entry)
			}
			if owns(sets[i], cause.Field) {
				c.operation = entry.Operation
				break
			}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b conflict) int { return strings.Compare(a.field+a.owner, b.field+b.owner) })
	return slices.Compact(all)
}

// writer reads: conflict with "NAME" with subresource "NAME" using apps/v1 at TIME.
func writer(message string) (name, subresource string) {
	found := regexp.MustCompile(`^conflict with "([^"]*)"(?: with subresource "([^"]*)")?`).FindStringSubmatch(message)
	if found == nil {
		return message, ""
	}
	return found[1], found[2]
}

func setOf(entry metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if entry.FieldsV1 != nil && set.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
		return &fieldpath.Set{} // nobody can read it, so it owns nothing that we know of
	}
	return set
}

func owns(set *fieldpath.Set, field string) (found bool) {
	set.Iterate(func(p fieldpath.Path) { found = found || p.String() == field })
	return found
}

// plainPath is .spec.template.spec.containers[name="web"].image as changes are told:
// spec.template.spec.containers[name=web].image.
func plainPath(field string) string {
	return strings.TrimPrefix(strings.ReplaceAll(field, `"`, ""), ".")
}
