package kubernetes

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// The inventory of an instance is the parent of its ApplySet: a ConfigMap that records the kinds and the namespaces of its objects.
// The labels identify the objects themselves. The inventory also holds the fence of the instance (fence.go).

var kindInventory = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// extent is the kinds and namespaces of the objects of an instance.
type extent struct {
	kinds      []string // Deployment.apps; sorted, each once
	namespaces []string // besides the namespace of the instance
}

// recordedExtent is the recorded extent: of the current inventory, if there is one, and of those in namespaces in which the instance was
// before.
func (a *apply) recordedExtent(parent *unstructured.Unstructured) extent {
	return a.extentOf(append(slices.Clone(a.earlierInventories), parent)...)
}

// extentOf is the extent of the declared objects and of some inventories.
func (a *apply) extentOf(inventories ...*unstructured.Unstructured) extent {
	var all extent
	for _, o := range a.allObjects() {
		all.kinds = append(all.kinds, idOf(o.Unstructured).kind.String())
		if n := o.GetNamespace(); n != "" && n != a.namespace {
			all.namespaces = append(all.namespaces, n)
		}
	}
	for _, parent := range inventories {
		if parent == nil {
			continue
		}
		all.kinds = append(all.kinds, annotationList(parent, annotationKinds)...)
		all.namespaces = append(all.namespaces, annotationList(parent, annotationMoreNS)...)
		if n := parent.GetNamespace(); n != a.namespace {
			all.kinds, all.namespaces = append(all.kinds, kindInventory.Kind), append(all.namespaces, n)
		}
	}
	all.namespaces = slices.DeleteFunc(all.namespaces, func(n string) bool { return n == a.namespace })
	return all.sorted()
}

func (e extent) sorted() extent {
	slices.Sort(e.kinds)
	slices.Sort(e.namespaces)
	return extent{kinds: slices.Compact(e.kinds), namespaces: slices.Compact(e.namespaces)}
}

// findInventory reads the inventory; nil if there is none. It also finds the inventories in namespaces in which the instance was before.
func (a *apply) findInventory(ctx context.Context) (*unstructured.Unstructured, resource, error) {
	name := inventoryName(a.owner)
	r, err := a.cluster.resource(ctx, kindInventory)
	if err != nil {
		return nil, r, explain(ctx, "read the inventory "+name, err)
	}
	if v, err := a.cluster.view(ctx, r, a.namespace); err == nil {
		a.earlierInventories = slices.DeleteFunc(v.byOwner(a.owner), func(o *unstructured.Unstructured) bool {
			return o.GetNamespace() == a.namespace || !isOriginalInventory(o, a.owner) || a.others.fenceOf(o) != nil
		})
		if o := v.get(a.namespace, name); o != nil {
			return o, r, nil
		}
	}
	live, err := a.getInventory(ctx, r)
	return live, r, err
}

// getInventory reads the inventory from the server; nil if there is none.
func (a *apply) getInventory(ctx context.Context, r resource) (*unstructured.Unstructured, error) {
	live, err := a.clients.resourceClient(r, a.namespace).Get(ctx, inventoryName(a.owner), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, explain(ctx, "read the inventory "+inventoryName(a.owner), err)
}

// recordInventory records the extent and the target of an apply before its first object. So the objects can be found after any failure, and
// no earlier target is applied any more (F2). It creates the namespace of the instance if that is missing and the payload asks for it.
func (a *apply) recordInventory(ctx context.Context) error {
	parent, r, err := a.findInventory(ctx)
	if err != nil {
		return err
	}
	err = a.writeInventory(ctx, r, parent, a.recordedExtent)
	if !a.createNS || !isMissingNamespace(err) {
		return err
	}
	if err := a.createNamespace(ctx); err != nil {
		return err
	}
	return a.writeInventory(ctx, r, nil, a.recordedExtent)
}

// maxConflictRetries limits how often the inventory is read again because another writer changes it at the same time.
const maxConflictRetries = 10

// writeInventory writes the inventory, if it changes, with the extent and the fence. It writes only over the inventory that it has
// read, and refuses the write if the fence there is later.
func (a *apply) writeInventory(ctx context.Context, r resource, parent *unstructured.Unstructured, all func(parent *unstructured.Unstructured) extent) error {
	for n := 1; ; n++ {
		if err := a.checkFences(append(slices.Clone(a.earlierInventories), parent)...); err != nil {
			return err
		}
		wanted := a.newInventory(all(parent))
		if err := errors.Join(a.setFence(wanted, parent), a.setDelivery(wanted, parent)); err != nil {
			return err
		}
		if parent != nil && includes(parent.GetLabels(), wanted.GetLabels()) && includes(parent.GetAnnotations(), wanted.GetAnnotations()) {
			a.inventory = parent
			return nil
		}
		written, err := a.overwrite(ctx, r, parent, wanted)
		if err == nil {
			a.logTakeover(parent)
			a.inventory = written
		}
		if err == nil || !isConflict(err) || n == maxConflictRetries {
			return err
		}
		if parent, err = a.getInventory(ctx, r); err != nil {
			return err
		}
	}
}

// overwrite writes the inventory over the one that was read, or creates it if there was none. It returns a conflict if there is now
// another one. Its fields have no other owner.
func (a *apply) overwrite(ctx context.Context, r resource, parent, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if parent == nil { // an apply cannot require that the object does not exist
		made, err := a.clients.resourceClient(r, a.namespace).Create(ctx, wanted, metav1.CreateOptions{FieldManager: FieldManager})
		return made, explain(ctx, "create the inventory "+idOf(wanted).String(), err)
	}
	wanted.SetResourceVersion(parent.GetResourceVersion())
	text, err := wanted.MarshalJSON()
	if err != nil {
		return nil, runtimes.Permanent(err)
	}
	t := &trial{declared: declared{Unstructured: wanted, text: text}, resource: r, live: parent, force: true}
	if err := a.checkOwnership(ctx, t, parent); err != nil {
		return nil, err
	}
	return a.send(ctx, t, false)
}

// newInventory is the inventory as it is applied. It carries the labels of the instance, so that the same watch covers it, and is not a
// member of the set.
func (a *apply) newInventory(all extent) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kindInventory)
	o.SetNamespace(a.namespace)
	o.SetName(inventoryName(a.owner))
	labels := labelsOf(a.owner)
	labels[labelSetID] = setID(inventoryName(a.owner), a.namespace)
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{
		annotationTooling: tooling,
		annotationKinds:   strings.Join(all.kinds, ","),
		annotationMoreNS:  strings.Join(all.namespaces, ","),
	})
	return o
}

func includes(actual, wanted map[string]string) bool {
	for name, value := range wanted {
		if got, ok := actual[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// served finds how the server serves a kind of the inventory: in the version that the objects use, if they use that kind. A kind
// that is no longer served has no objects.
func (a *apply) served(ctx context.Context, kind schema.GroupKind) (resource, bool, error) {
	for _, o := range a.allObjects() {
		if gvk := o.GroupVersionKind(); gvk.GroupKind() == kind {
			r, err := a.cluster.resource(ctx, gvk)
			return r, err == nil, ignoreIf(meta.IsNoMatchError, err)
		}
	}
	r, err := a.cluster.preferred(ctx, kind)
	return r, err == nil, ignoreIf(meta.IsNoMatchError, err)
}

func ignoreIf(ignorable func(error) bool, err error) error {
	if err == nil || ignorable(err) {
		return nil
	}
	return err
}

// leftover is an object of ours that is no longer declared.
type leftover struct {
	*unstructured.Unstructured
	resource resource
	pruned   bool   // by this apply; finalizers hold it
	next     string // the service that declares it now; empty: none
}

// finish ends an apply. If the payload says so, it removes the objects that are no longer declared, once all declared objects are
// ready; otherwise they stay (D10). It then reduces the inventory to the existing objects.
func (a *apply) finish(ctx context.Context, trials []*trial) error {
	parent := a.inventory
	r, err := a.cluster.resource(ctx, kindInventory)
	if err != nil {
		return explain(ctx, "read the inventory "+inventoryName(a.owner), err)
	}
	leftovers, unknown, err := a.leftovers(ctx, a.recordedExtent(parent))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(leftovers, a.mustPrune) {
		if err := a.waitReady(ctx, trials); err != nil {
			return err
		}
		if leftovers, err = a.pruneAll(ctx, leftovers); err != nil {
			return err
		}
	}
	remaining := a.extentOf(nil)
	remaining.kinds = append(remaining.kinds, unknown...)
	for _, l := range leftovers {
		a.log.add("%s", a.orphanText(l))
		remaining.kinds = append(remaining.kinds, idOf(l.Unstructured).kind.String())
		if n := l.GetNamespace(); n != "" && n != a.namespace {
			remaining.namespaces = append(remaining.namespaces, n)
		}
	}
	if len(unknown) > 0 {
		remaining.namespaces = append(remaining.namespaces, a.recordedExtent(parent).namespaces...)
	}
	remaining = remaining.sorted()
	return a.writeInventory(ctx, r, parent, func(*unstructured.Unstructured) extent { return remaining })
}

// mustPrune reports whether this apply removes an object that is no longer declared.
func (a *apply) mustPrune(l leftover) bool {
	return a.prune && l.GetDeletionTimestamp() == nil && a.pruneKeepReason(l) == ""
}

// orphanText says why an object that is no longer declared still exists.
func (a *apply) orphanText(l leftover) string {
	if l.pruned {
		return "pruned " + displayName(l.Unstructured) + ": " + deletionMessage(l.Unstructured)
	}
	if l.GetDeletionTimestamp() != nil {
		return displayName(l.Unstructured) + ", which is no longer declared: " + deletionMessage(l.Unstructured)
	}
	if reason := a.excluded[idOf(l.Unstructured)]; reason != "" {
		return "left alone " + displayName(l.Unstructured) + " (" + reason + ")"
	}
	text := "left in place " + displayName(l.Unstructured) + ", which is no longer declared"
	switch reason := a.keepReason(l.Unstructured); {
	case l.next != "":
		text += ": " + nextOwnerText(l.next)
	case a.prune && reason != "":
		text += " (" + reason + ")"
	}
	return text
}

// pruneAll removes leftovers, later waves first, and returns those that still exist: kept ones, and those that finalizers hold.
func (a *apply) pruneAll(ctx context.Context, leftovers []leftover) (kept []leftover, err error) {
	for _, l := range leftovers {
		if !a.mustPrune(l) {
			kept = append(kept, l)
			continue
		}
		if err := a.recheckFence(ctx); err != nil {
			return nil, err
		}
		deleted, err := a.delete(ctx, l, prunePropagation(l.Unstructured), true)
		if err != nil {
			return nil, explain(ctx, "remove "+idOf(l.Unstructured).String()+", which is no longer declared", err)
		}
		if held := a.stillHeld(ctx, l); deleted && held != nil {
			kept = append(kept, leftover{Unstructured: held, resource: l.resource, pruned: true})
		} else if deleted {
			a.log.add("pruned %s", displayName(l.Unstructured))
		}
	}
	return kept, nil
}

// prunePropagation is how the dependents of an object are deleted when it is pruned. By default they are deleted after it.
func prunePropagation(o *unstructured.Unstructured) metav1.DeletionPropagation {
	switch o.GetAnnotations()[AnnotationPrune] {
	case "foreground":
		return metav1.DeletePropagationForeground
	case orphanDependents:
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationBackground
}

// stillHeld is a deleted object that its finalizers, or those of the deletion, hold; nil if it is gone, or if that is unknown. An object
// without finalizers is gone at once.
func (a *apply) stillHeld(ctx context.Context, l leftover) *unstructured.Unstructured {
	if len(l.GetFinalizers()) == 0 && prunePropagation(l.Unstructured) == metav1.DeletePropagationBackground {
		return nil
	}
	live, err := a.clients.resourceClient(l.resource, l.GetNamespace()).Get(ctx, l.GetName(), metav1.GetOptions{})
	if err != nil || live.GetUID() != l.GetUID() {
		return nil
	}
	return live
}

// leftovers are the objects of ours that are not declared, in the reverse of the apply order, and the kinds that this worker may not
// read. Those kinds are an error only when pruning.
func (a *apply) leftovers(ctx context.Context, all extent) (left []leftover, unknown []string, err error) {
	known := map[id]bool{{kind: kindInventory.GroupKind(), namespace: a.namespace, name: inventoryName(a.owner)}: true}
	for _, o := range a.allObjects() {
		known[idOf(o.Unstructured)] = true
	}
	for _, name := range all.kinds {
		found, err := a.undeclared(ctx, schema.ParseGroupKind(name), append([]string{a.namespace}, all.namespaces...), known)
		if err != nil && (a.prune || ctx.Err() != nil) {
			return nil, nil, explain(ctx, "list objects of kind "+name+" that are no longer declared", err)
		}
		if err != nil {
			unknown = append(unknown, name)
		}
		left = append(left, found...)
	}
	for n := range left {
		if left[n].next, err = a.nextOwner(left[n].Unstructured); err != nil && a.prune {
			return nil, nil, err
		}
	}
	slices.SortFunc(left, func(x, y leftover) int {
		return -compareOrder(declared{Unstructured: x.Unstructured}, declared{Unstructured: y.Unstructured})
	})
	return left, unknown, nil
}

func (a *apply) undeclared(ctx context.Context, kind schema.GroupKind, namespaces []string, known map[id]bool) (left []leftover, err error) {
	r, ok, err := a.served(ctx, kind)
	if err != nil || !ok {
		return nil, err
	}
	seen := map[string]bool{}
	for _, namespace := range namespaces {
		v, err := a.cluster.view(ctx, r, namespace)
		if err != nil {
			return left, err
		}
		if seen[v.namespace] {
			continue // one view may cover all namespaces
		}
		seen[v.namespace] = true
		objects, err := a.ownObjects(ctx, v, kind)
		if err != nil {
			return left, err
		}
		for _, o := range objects {
			if isInNamespaces(namespaces, o) && !known[idOf(o)] && a.isLeftover(ctx, o) {
				left = append(left, leftover{Unstructured: o, resource: r})
			}
		}
	}
	return left, nil
}

// isLeftover reports whether an undeclared object is a leftover of the instance: no other writer or installation has it, and it is not an
// inventory that has to stay.
func (a *apply) isLeftover(ctx context.Context, o *unstructured.Unstructured) bool {
	inventory := isInventory(o, a.owner) && (!a.prune || a.others.fenceOf(o) != nil)
	return !createdByOthers(o) && !inventory && a.otherInventoryOf(ctx, o) == nil
}

// isInNamespaces reports whether an object is in a namespace of the instance, present or earlier. A similar object elsewhere is a copy.
func isInNamespaces(namespaces []string, o *unstructured.Unstructured) bool {
	return o.GetNamespace() == "" || slices.Contains(namespaces, o.GetNamespace())
}

// ownObjects lists the objects with our labels. It asks the server instead of the watch if an outdated answer would lose objects (a kind
// is about to be dropped from the inventory) or leave them behind (when pruning).
func (a *apply) ownObjects(ctx context.Context, v *view, kind schema.GroupKind) ([]*unstructured.Unstructured, error) {
	if !a.prune && a.declares(kind) {
		return v.byOwner(a.owner), nil
	}
	return a.listLive(ctx, v.resource, v.namespace)
}

func (a *apply) declares(kind schema.GroupKind) bool {
	return slices.ContainsFunc(a.allObjects(), func(d declared) bool { return idOf(d.Unstructured).kind == kind })
}
