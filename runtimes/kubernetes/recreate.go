package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// orphanDependents is the value of AnnotationRecreate that keeps the dependents of a recreated object.
const orphanDependents = "orphan"

// mayRecreate reports whether an object may be deleted and recreated.
func mayRecreate(o *unstructured.Unstructured) bool {
	text := o.GetAnnotations()[AnnotationRecreate]
	return text == "true" || text == orphanDependents
}

// dependents is the deletion policy for the dependents of a recreated object. The new object adopts the kept pods and ReplicaSets if
// its selector matches; otherwise they have no controller.
func dependents(o *unstructured.Unstructured) metav1.DeletionPropagation {
	if o.GetAnnotations()[AnnotationRecreate] == orphanDependents {
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationForeground
}

// onlyChangeRefused reports whether the server refuses only the change of a live object, and would create the declared object. Its words
// do not matter: every kind, and every rule of a custom kind, has others. A dry run creates the declared object under another name. It
// may fail because of that name, or because the live object holds what it wants (an address, a port of the nodes).
func (a *apply) onlyChangeRefused(ctx context.Context, t *trial) bool {
	o := t.origin.DeepCopy()
	sum := sha256.Sum256([]byte(t.live.GetUID()))
	o.SetName("converge-" + hex.EncodeToString(sum[:4]))
	options := metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}}
	_, err := a.clients.resourceClient(t.resource, t.GetNamespace()).Create(ctx, o, options)
	switch {
	case err == nil:
		return true
	case apierrors.IsForbidden(err): // a quota is checked last, and has room when the live object is gone
		return containsAny("exceeded quota")(err)
	}
	causes := causesOf(err)
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(field []string) bool { return !a.isHeld(t, field) })
}

// isHeld reports whether the fault of a field in another object of the same content is its name, or that the live object has the value.
func (a *apply) isHeld(t *trial, field []string) bool {
	if slices.Equal(field, []string{"metadata", "name"}) {
		return true
	}
	wanted, held := valuesAt(t.origin.Object, field), valuesAt(t.live.Object, field)
	return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(value string) bool { return !slices.Contains(held, value) })
}

// valuesAt are the values of a field, as JSON, in all elements of the lists on the way to it.
func valuesAt(value any, field []string) (values []string) {
	switch v := value.(type) {
	case nil:
		return nil
	case []any:
		for _, each := range v {
			values = append(values, valuesAt(each, field)...)
		}
		return values
	case map[string]any:
		if len(field) > 0 {
			return valuesAt(v[field[0]], field[1:])
		}
	}
	if len(field) > 0 {
		return nil
	}
	return []string{jsonText(value)}
}

// isRefusedGrowth reports whether admission refuses that a claim grows: its StorageClass does not allow it, and will not after this apply.
// Of the admission plugins of Kubernetes this is the only one that refuses a change for good and accepts the same content in a new object.
// A full quota refuses a claim too, but not for good.
func (a *apply) isRefusedGrowth(t *trial, refusal error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(refusal) || !errors.As(refusal, &status) || status.Status().Details == nil ||
		status.Status().Details.Kind != "persistentvolumeclaims" || containsAny("exceeded quota")(refusal) {
		return false
	}
	for _, d := range a.objects {
		if expands, _, _ := unstructured.NestedBool(d.Object, "allowVolumeExpansion"); expands && idOf(d.Unstructured).kind.Kind == "StorageClass" &&
			d.GetName() == storageClassName(t.live, nil) {
			return false
		}
	}
	size := func(o *unstructured.Unstructured) (resourceapi.Quantity, bool) {
		text, ok, err := unstructured.NestedString(o.Object, "spec", "resources", "requests", "storage")
		if !ok || err != nil {
			return resourceapi.Quantity{}, false
		}
		q, err := resourceapi.ParseQuantity(text)
		return q, err == nil
	}
	wanted, ok := size(t.Unstructured)
	held, known := size(t.live)
	return ok && known && wanted.Cmp(held) > 0
}

// resolveGrowth evaluates the refusal of a claim that would grow. Its StorageClass may change, so a retry can help.
func (a *apply) resolveGrowth(ctx context.Context, t *trial) {
	var p *problem
	switch {
	case !a.onlyChangeRefused(ctx, t):
	case mayRecreate(t.Unstructured):
		t.outcome, t.err = recreated, nil
	case errors.As(t.err, &p):
		changed := *p
		changed.hint = p.hint + "; or " + recreateHint(t.Unstructured)
		t.refuse(&changed)
	}
}

// resolveChange evaluates a refusal that no field to take out explains: the object may be recreated, or the advice says what to do.
// others are fields that other tools declare and that may be the cause.
func (a *apply) resolveChange(ctx context.Context, t *trial, others string) {
	onlyChange := a.onlyChangeRefused(ctx, t)
	if onlyChange && mayRecreate(t.Unstructured) {
		t.outcome, t.err = recreated, nil
		return
	}
	var advice []string
	if others != "" {
		advice = append(advice, others+": remove the field from one side, or set adopt to take it over")
	}
	if onlyChange {
		advice = append(advice, recreateHint(t.Unstructured))
	}
	t.refuse(replaceAdvice(t.err, strings.Join(advice, "; or ")))
}

// recreateHint is the advice for an object that cannot be changed in place.
func recreateHint(o *unstructured.Unstructured) string {
	text := "set the annotation " + AnnotationRecreate + `: "true" to have it deleted and recreated`
	if idOf(o).kind == kindClaim {
		text += "; that deletes its data, unless its volume is retained"
	}
	return text
}

// replaceAdvice replaces the advice of a refusal about an existing object. Without any, the refusal keeps its own, unless that is to recreate
// the object. A retry does not help.
func replaceAdvice(err error, advice string) error {
	var p *problem
	if !errors.As(err, &p) || advice == "" && !strings.Contains(p.hint, AnnotationRecreate) {
		return err
	}
	changed := *p
	changed.hint = advice
	return runtimes.Permanent(&changed)
}
