package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/runtimes"
)

// This file plans a removal: which objects it would delete and which would stay, by the same reading with which a removal starts.

// PlanRemoval implements runtimes.RemovalPlanner. It does a dry run of each deletion on the server, so that a forbidden deletion is
// reported before any object is deleted.
func (r *Runtime) PlanRemoval(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	if in.Payload == nil { // nothing was ever applied
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
	if err := a.checkFences(append(slices.Clone(a.earlierInventories), parent)...); err != nil {
		return nil, err
	}
	if err := a.loadDeletionHooks(ctx, in, at); err != nil {
		return nil, err
	}
	all := a.fullExtent(in, parent)
	targets, kept, err := a.listForRemoval(ctx, all.without(kindNamespace))
	if err != nil {
		return nil, err
	}
	removedUIDs := map[types.UID]bool{}
	for _, g := range targets {
		removedUIDs[g.GetUID()] = true
	}
	removals, after := a.deletionHookChanges(ctx)
	var keeps []runtimes.Change
	for _, g := range slices.Concat(reverseWaves(targets)...) {
		change, err := a.removalChange(ctx, g, removedUIDs)
		if err != nil {
			return nil, err
		}
		if change.Action == runtimes.ActionKeep {
			keeps = append(keeps, change)
			continue
		}
		removals = append(removals, change)
		for _, claim := range a.claimsOf(ctx, g.Unstructured) {
			if claim.Action == runtimes.ActionRemove {
				removals = append(removals, claim)
			} else {
				keeps = append(keeps, claim)
			}
		}
	}
	for _, s := range append(kept, a.ownNamespaces(ctx, all)...) {
		keeps = append(keeps, newRemovalChange(s.Unstructured, runtimes.ActionKeep, s.reason))
	}
	return slices.Concat(removals, after, keeps), nil
}

func newRemovalChange(o *unstructured.Unstructured, action runtimes.Action, reason string) runtimes.Change {
	return runtimes.Change{Action: action, Type: o.GetKind(), Name: o.GetName(), Namespace: o.GetNamespace(), Message: reason}
}

// removalChange is the effect of a removal on an object, given the objects that are already gone at that point.
func (a *apply) removalChange(ctx context.Context, g removalTarget, gone map[types.UID]bool) (runtimes.Change, error) {
	used, err := a.usedByOthers(ctx, g, gone)
	if err != nil {
		return runtimes.Change{}, err
	}
	change := newRemovalChange(g.Unstructured, runtimes.ActionRemove, "")
	switch {
	case used:
		change.Action, change.Message = runtimes.ActionKeep, definitionKeptReason
	case g.GetDeletionTimestamp() != nil:
		change.Message = deletionMessage(g.Unstructured)
	default:
		err := a.tryDelete(ctx, g)
		if ctx.Err() != nil {
			return change, explain(ctx, "plan", err)
		}
		if err != nil {
			change.Action, change.Message = runtimes.ActionRefuse, err.Error()
		}
	}
	return change, nil
}

// tryDelete does a dry run of a deletion. An object that is already gone counts as deletable. So does one with a webhook that does
// not support dry runs, as far as is known.
func (a *apply) tryDelete(ctx context.Context, g removalTarget) error {
	policy, uid := propagation(idOf(g.Unstructured).kind), g.GetUID()
	err := a.clients.resourceClient(g.resource, g.GetNamespace()).Delete(ctx, g.GetName(), metav1.DeleteOptions{
		DryRun: []string{metav1.DryRunAll}, PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if noDryRun(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return explain(ctx, "delete "+idOf(g.Unstructured).String(), err)
}

// definitionKeptReason is why a definition stays.
const definitionKeptReason = "it has objects that stay or belong to others, and they would be deleted with it"

// usedByOthers is stillUsed before any deletion: whether there is an object of a definition other than those that will be removed.
func (a *apply) usedByOthers(ctx context.Context, g removalTarget, gone map[types.UID]bool) (bool, error) {
	if idOf(g.Unstructured).kind != kindDefinition {
		return false, nil
	}
	action := "check for objects of " + idOf(g.Unstructured).String()
	at, ok, err := a.served(ctx, definedBy(g.Unstructured))
	if err != nil || !ok {
		return false, explain(ctx, action, err)
	}
	// The limit is one more than gone, so that one is another object.
	list, err := a.clients.resourceClient(at, "").List(ctx, metav1.ListOptions{Limit: int64(len(gone)) + 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, explain(ctx, action, err)
	}
	return slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return !gone[o.GetUID()] }), nil
}

// ownNamespaces are the Namespaces that the instance has applied; none if this worker may not read them.
func (a *apply) ownNamespaces(ctx context.Context, all extent) []keptObject {
	if !slices.Contains(all.kinds, kindNamespace.Kind) {
		return nil
	}
	_, kept, err := a.listForRemoval(ctx, extent{kinds: []string{kindNamespace.Kind}})
	if err != nil {
		return nil
	}
	return kept
}

// claimsOf are the claims that a StatefulSet created from its templates, and their fate by its own retention policy when it is
// removed.
func (a *apply) claimsOf(ctx context.Context, o *unstructured.Unstructured) []runtimes.Change {
	templates, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	if idOf(o).kind != (schema.GroupKind{Group: "apps", Kind: "StatefulSet"}) || len(templates) == 0 {
		return nil
	}
	action, reason := runtimes.ActionKeep, "StatefulSet/"+o.GetName()+" created it, and keeps it"
	if deleted, _, _ := unstructured.NestedString(o.Object, "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"); deleted == "Delete" {
		action, reason = runtimes.ActionRemove, "StatefulSet/"+o.GetName()+" created it, and has whenDeleted: Delete"
	}
	claims, err := a.madeClaims(ctx, o)
	if err != nil {
		return []runtimes.Change{{Action: action, Type: kindClaim.Kind, Name: o.GetName() + "-…", Namespace: o.GetNamespace(), Message: reason + " (the claims cannot be listed: " + err.Error() + ")"}}
	}
	var out []runtimes.Change
	for _, claim := range claims {
		out = append(out, newRemovalChange(&claim, action, reason))
	}
	return out
}

// madeClaims are the claims of a StatefulSet: they have the labels of its selector, and names from its templates.
func (a *apply) madeClaims(ctx context.Context, o *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	selects, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
	at, err := a.cluster.preferred(ctx, kindClaim)
	if err != nil {
		return nil, explain(ctx, "list claims", err)
	}
	list, err := a.clients.resourceClient(at, o.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selects).String()})
	if err != nil {
		return nil, explain(ctx, "list claims", err)
	}
	var names []string
	for _, template := range elementsOf(o, "spec", "volumeClaimTemplates") {
		names = append(names, fmt.Sprintf("%s-%s-", nestedMap(template, "metadata")["name"], o.GetName()))
	}
	return slices.DeleteFunc(list.Items, func(claim unstructured.Unstructured) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			number, ok := strings.CutPrefix(claim.GetName(), name)
			return ok && number != "" && strings.Trim(number, "0123456789") == ""
		})
	}), nil
}

// elementsOf are the maps of a list.
func elementsOf(o *unstructured.Unstructured, at ...string) (all []map[string]any) {
	list, _, _ := unstructured.NestedSlice(o.Object, at...)
	for _, each := range list {
		if m, ok := each.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// without is the extent without a kind.
func (e extent) without(kind schema.GroupKind) extent {
	e.kinds = slices.DeleteFunc(slices.Clone(e.kinds), func(name string) bool { return name == kind.String() })
	return e
}
