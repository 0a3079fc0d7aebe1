package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

var _ runtimes.Returner = (*Runtime)(nil)

// Return implements runtimes.Returner: it removes our labels and annotations from each object, and us from its managedFields, so that the
// next apply of another tool owns all fields. The template of pods keeps its marks, since a change would replace the pods. Then it removes the
// inventory. Repeated, it finds what is left.
func (r *Runtime) Return(ctx context.Context, in runtimes.Request) ([]string, error) {
	if in.Payload == nil {
		return nil, ctx.Err()
	}
	a, err := r.newRemoval(ctx, in)
	if err != nil {
		return nil, err
	}
	parent, at, err := a.findInventory(ctx)
	if err != nil {
		return nil, err
	}
	returned, err := a.returnObjects(ctx, a.fullExtent(in, parent))
	if err != nil {
		return nil, err
	}
	if err := a.deleteInventories(ctx, at, parent); err != nil {
		return nil, err
	}
	return []string{entities.Count(returned, "object") + " given up"}, nil
}

func (a *apply) returnObjects(ctx context.Context, all extent) (returned int, err error) {
	targets, kept, err := a.listForRemoval(ctx, all)
	if err != nil {
		return 0, err
	}
	objects := make([]*unstructured.Unstructured, 0, len(targets)+len(kept))
	for _, t := range targets {
		objects = append(objects, t.Unstructured)
	}
	for _, k := range kept {
		objects = append(objects, k.Unstructured)
	}
	for _, o := range objects {
		if a.others.inventoryOf(o) != nil {
			continue // of another installation
		}
		if err := a.returnObject(ctx, o); err != nil {
			return returned, err
		}
		returned++
	}
	return returned, nil
}

// returnObject writes only over the object as it was read.
func (a *apply) returnObject(ctx context.Context, o *unstructured.Unstructured) error {
	action := "return " + idOf(o).String()
	kind, err := a.cluster.resource(ctx, o.GroupVersionKind())
	if err != nil {
		return explain(ctx, action, err)
	}
	at := a.clients.resourceClient(kind, o.GetNamespace())
	for n := 1; ; n++ {
		live, err := at.Get(ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && !a.hasLabels(live) {
			return nil
		}
		if err != nil {
			return explain(ctx, action, err)
		}
		patch, err := withoutUs(live)
		if err != nil {
			return runtimes.Permanent(fmt.Errorf("%s: %w", action, err))
		}
		_, err = at.Patch(ctx, o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		if err == nil || !isConflict(err) || n == maxConflictRetries {
			return explain(ctx, action, err)
		}
	}
}

// withoutUs is the patch that removes our marks from the metadata of an object.
func withoutUs(live *unstructured.Unstructured) ([]byte, error) {
	ours := func(name, _ string) bool { return isOwnName(name) }
	labels, annotations := maps.Clone(live.GetLabels()), maps.Clone(live.GetAnnotations())
	maps.DeleteFunc(labels, ours)
	maps.DeleteFunc(annotations, ours)
	entries := slices.DeleteFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == FieldManager })
	if len(entries) == 0 {
		entries = []metav1.ManagedFieldsEntry{{}} // the server clears the list; an empty one would change nothing
	}
	patch := []map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
	}
	for field, kept := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
		if _, exists := nestedMap(live.Object, "metadata")[field]; exists {
			patch = append(patch, map[string]any{"op": "replace", "path": "/metadata/" + field, "value": kept})
		}
	}
	return json.Marshal(patch)
}
