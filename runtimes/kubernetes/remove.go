package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/runtimes"
)

// Remove implements runtimes.Remover (A24). It removes the objects that the inventory of the instance leads to and that carry its
// labels: never an object of another owner. It removes them in the reverse of the apply order, one wave at a time. Each wave begins
// after the one before is gone, and the inventory is last. So an interrupted removal can run again. Objects that are marked to be
// kept stay, and so do claims with their data, unless the payload says otherwise (H5). Namespaces always stay, and so does a
// CustomResourceDefinition that still has objects: their deletion would delete objects of others.
func (r *Runtime) Remove(ctx context.Context, in runtimes.Request) error {
	if in.Payload == nil { // nothing was ever applied
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.def.Timing.ApplyTimeout, defaultApplyTimeout))
	defer cancel()
	if err := r.removeObjects(ctx, in); err != nil {
		return fmt.Errorf("remove %s/%s from %s: %w", in.Application, in.Service, in.ID, err)
	}
	return nil
}

func (r *Runtime) removeObjects(ctx context.Context, in runtimes.Request) error {
	a, err := r.newRemoval(ctx, in)
	if err != nil {
		return err
	}
	parent, at, err := a.findInventory(ctx)
	if err != nil {
		return err
	}
	if err := a.checkFences(a.earlierInventories...); err != nil {
		return err
	}
	if err := a.loadDeletionHooks(ctx, in, at); err != nil {
		return err
	}
	if parent != nil && a.fence != nil {
		if err := a.writeInventory(ctx, at, parent, a.recordedExtent); err != nil {
			return err
		}
		parent = a.inventory
	}
	if err := a.runHooks(ctx, phasePre); err != nil {
		return err
	}
	all, _, err := a.listForRemoval(ctx, a.fullExtent(in, parent).without(kindNamespace))
	if err != nil {
		return err
	}
	for _, wave := range reverseWaves(all) {
		if err := a.removeWave(ctx, wave); err != nil {
			return err
		}
	}
	if err := a.runHooksAfterRemoval(ctx); err != nil {
		return err
	}
	return a.deleteInventories(ctx, at, parent)
}

// newRemoval prepares the removal of an instance, or its plan.
func (r *Runtime) newRemoval(ctx context.Context, in runtimes.Request) (*apply, error) {
	clients, err := r.clientsFor(ctx, in)
	if err != nil {
		return nil, err
	}
	a := &apply{Runtime: r, clients: clients, owner: in.Owner, namespace: namespaceOf(in), log: &applyLog{}, fence: in.Fence, others: newOtherInstallations(in), siblings: readSiblings(ctx, in), excluded: exclusionsOf(in)}
	a.removeClaims = in.Payload.Kubernetes != nil && in.Payload.Kubernetes.RemoveClaims
	return a, nil
}

// fullExtent is the extent that the inventories record, and that of the declared objects, since the inventory may be lost.
func (a *apply) fullExtent(in runtimes.Request, parent *unstructured.Unstructured) extent {
	all := a.recordedExtent(parent)
	if in.Payload.Kubernetes == nil {
		return all
	}
	for _, raw := range in.Payload.Kubernetes.Objects {
		var o metav1.PartialObjectMetadata // other fields may be anything, for example encrypted
		if json.Unmarshal(raw, &o) != nil || o.Kind == "" {
			continue
		}
		all.kinds = append(all.kinds, o.GroupVersionKind().GroupKind().String())
		if n := o.GetNamespace(); n != "" && n != a.namespace {
			all.namespaces = append(all.namespaces, n)
		}
	}
	return all.sorted()
}

// removalTarget is an object of ours that will be removed.
type removalTarget struct {
	leftover
	wave int
}

// keptObject is an object of the instance that stays, and the reason.
type keptObject struct {
	*unstructured.Unstructured
	reason string
}

// listForRemoval lists the objects of the instance that will be removed, including those that are being deleted, and those that stay.
func (a *apply) listForRemoval(ctx context.Context, all extent) (targets []removalTarget, kept []keptObject, err error) {
	seen := map[id]bool{}
	for _, name := range all.kinds {
		objects, at, err := a.listLiveIn(ctx, schema.ParseGroupKind(name), append([]string{a.namespace}, all.namespaces...))
		if err != nil {
			return nil, nil, explain(ctx, "list objects of kind "+name, err)
		}
		for _, o := range objects {
			if seen[idOf(o)] || createdByOthers(o) || isInventory(o, a.owner) || a.runsAfterRemoval(o) {
				continue
			}
			seen[idOf(o)] = true
			reason, err := a.removalKeepReason(ctx, o)
			if err != nil {
				return nil, nil, err
			}
			if reason != "" {
				kept = append(kept, keptObject{o, reason})
				continue
			}
			wave, err := waveOf(o)
			if err != nil {
				wave = 0 // another writer changed the annotation; the object is removed anyway
			}
			targets = append(targets, removalTarget{leftover{Unstructured: o, resource: at}, wave})
		}
	}
	return targets, kept, nil
}

// removalKeepReason is why an object with our labels is not removed with its instance; empty: it is removed.
func (a *apply) removalKeepReason(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	if inventory := a.otherInventoryOf(ctx, o); inventory != nil {
		return "it belongs to " + installationOf(a.owner, a.others.fenceOf(inventory)), nil
	}
	if idOf(o).kind == kindNamespace {
		return namespacesKeptReason, nil
	}
	if next, err := a.nextOwner(o); next != "" || err != nil {
		return nextOwnerText(next), err
	}
	return a.keepReason(o), nil
}

// listLiveIn lists the objects with our labels in some namespaces.
func (a *apply) listLiveIn(ctx context.Context, kind schema.GroupKind, namespaces []string) (found []*unstructured.Unstructured, at resource, err error) {
	at, ok, err := a.served(ctx, kind)
	if err != nil || !ok {
		return nil, at, err
	}
	if !at.namespaced {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		objects, err := a.listLive(ctx, at, namespace)
		if err != nil {
			return nil, at, err
		}
		found = append(found, objects...)
	}
	return found, at, nil
}

// listLive lists the objects with our labels from the server, not from a watch.
func (a *apply) listLive(ctx context.Context, at resource, namespace string) ([]*unstructured.Unstructured, error) {
	list, err := a.clients.resourceClient(at, namespace).List(ctx, metav1.ListOptions{LabelSelector: selectorOf(a.owner)})
	if err != nil {
		return nil, err
	}
	all := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// reverseWaves groups objects in the reverse of the apply order.
func reverseWaves(all []removalTarget) [][]removalTarget {
	slices.SortFunc(all, func(x, y removalTarget) int {
		return cmp.Or(cmp.Compare(y.wave, x.wave), -compareOrder(declared{Unstructured: x.Unstructured}, declared{Unstructured: y.Unstructured}))
	})
	return groupByWave(all, func(g removalTarget) int { return g.wave })
}

// removeWave deletes the objects of a wave and waits until they are gone.
func (a *apply) removeWave(ctx context.Context, wave []removalTarget) error {
	var targets []removalTarget
	for _, g := range wave {
		used, err := a.stillUsed(ctx, g)
		if err != nil {
			return err
		}
		if used {
			continue
		}
		if err := a.recheckFence(ctx); err != nil {
			return err
		}
		if _, err := a.delete(ctx, g.leftover, propagation(idOf(g.Unstructured).kind), true); err != nil {
			return explain(ctx, "delete "+idOf(g.Unstructured).String(), err)
		}
		targets = append(targets, g)
	}
	for _, g := range targets {
		if err := a.waitUntilGone(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// stillUsed reports whether an object is a definition that still has objects: ours are already gone at that point.
func (a *apply) stillUsed(ctx context.Context, g removalTarget) (bool, error) {
	if idOf(g.Unstructured).kind != kindDefinition {
		return false, nil
	}
	action := "check for objects of " + idOf(g.Unstructured).String()
	at, ok, err := a.served(ctx, definedBy(g.Unstructured))
	if err != nil || !ok {
		return false, explain(ctx, action, err)
	}
	list, err := a.clients.resourceClient(at, "").List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, explain(ctx, action, err)
	}
	return len(list.Items) > 0, nil
}

// delete deletes an object if it is still the object that was read, and still ours. It reports whether it did. The controller of the
// object may write it at the same time, so it is read again after a change. With respectKeep, an object stays if it is now marked to
// be kept.
func (a *apply) delete(ctx context.Context, l leftover, policy metav1.DeletionPropagation, respectKeep bool) (deleted bool, err error) {
	const attempts = 10
	at := a.clients.resourceClient(l.resource, l.GetNamespace())
	for range attempts {
		var live *unstructured.Unstructured
		live, err = at.Get(ctx, l.GetName(), metav1.GetOptions{})
		if err != nil {
			break
		}
		if live.GetUID() != l.GetUID() || !a.isOwned(live) || createdByOthers(live) || live.GetDeletionTimestamp() != nil || respectKeep && keepMark(live) != "" {
			return false, nil
		}
		uid, version := live.GetUID(), live.GetResourceVersion()
		err = at.Delete(ctx, l.GetName(), metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return err == nil, ignoreIf(apierrors.IsNotFound, err)
}

// propagation is the policy for a kind: an object that makes others (pods, mostly) is gone only when they are.
func propagation(kind schema.GroupKind) metav1.DeletionPropagation {
	switch {
	case kind.Group == "apps", kind.Group == "batch", kind.Kind == "ReplicationController", !builtIn(kind.Group):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// waitUntilGone waits until an object no longer exists, or is no longer ours: its labels may have been removed.
func (a *apply) waitUntilGone(ctx context.Context, g removalTarget) error {
	at := a.clients.resourceClient(g.resource, g.GetNamespace())
	return pollUntilGone(ctx, at, "wait until "+idOf(g.Unstructured).String()+" is gone", g.GetName(), func(live *unstructured.Unstructured) bool {
		return live.GetUID() != g.GetUID() || !a.isOwned(live)
	})
}

// removalPollInterval is the poll interval for an object that is being deleted.
const removalPollInterval = 250 * time.Millisecond

// pollUntilGone waits until an object no longer exists, or another one has its name.
func pollUntilGone(ctx context.Context, at dynamic.ResourceInterface, action, name string, isOther func(*unstructured.Unstructured) bool) error {
	ticker := time.NewTicker(removalPollInterval)
	defer ticker.Stop()
	var last *unstructured.Unstructured // as last read
	stillExistsErr := func() error {
		return &problem{action: action, reason: "it is still there: " + deletionMessage(last), err: context.Cause(ctx)}
	}
	for {
		live, err := at.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && isOther(live):
			return nil
		case err != nil && ctx.Err() != nil && last != nil:
			return stillExistsErr()
		case err != nil:
			return explain(ctx, action, err)
		}
		last = live
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return stillExistsErr()
		}
	}
}

// deleteInventories removes the inventory, also in the namespaces in which the instance was before.
func (a *apply) deleteInventories(ctx context.Context, at resource, parent *unstructured.Unstructured) error {
	for _, o := range append(slices.Clone(a.earlierInventories), parent) {
		if o == nil {
			continue
		}
		uid := o.GetUID()
		err := a.clients.resourceClient(at, o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return explain(ctx, "delete the inventory "+idOf(o).String(), err)
		}
	}
	return nil
}
