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

// The inventory of an instance is the parent of its ApplySet: a ConfigMap that remembers of which
// kinds, in which namespaces, there are objects of it. Which ones they are, their labels say. It also
// holds the fence of the instance (fence.go).

var kindParent = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// extent is where objects of an instance are.
type extent struct {
	kinds      []string // Deployment.apps; sorted, each once
	namespaces []string // besides the instance's own
}

// known is where objects are as far as anybody remembers: the inventory that is here, if there is one,
// and those of namespaces in which the instance once was.
func (a *apply) known(parent *unstructured.Unstructured) extent {
	return a.extentOf(append(slices.Clone(a.earlier), parent)...)
}

// extentOf is where the objects declared are, or an inventory says that there are some.
func (a *apply) extentOf(inventories ...*unstructured.Unstructured) extent {
	var all extent
	for _, o := range a.all() {
		all.kinds = append(all.kinds, idOf(o.Unstructured).kind.String())
		if n := o.GetNamespace(); n != "" && n != a.home {
			all.namespaces = append(all.namespaces, n)
		}
	}
	for _, parent := range inventories {
		if parent == nil {
			continue
		}
		all.kinds = append(all.kinds, listed(parent, annotationKinds)...)
		all.namespaces = append(all.namespaces, listed(parent, annotationMoreNS)...)
		if n := parent.GetNamespace(); n != a.home {
			all.kinds, all.namespaces = append(all.kinds, kindParent.Kind), append(all.namespaces, n)
		}
	}
	all.namespaces = slices.DeleteFunc(all.namespaces, func(n string) bool { return n == a.home })
	return all.sorted()
}

func (e extent) sorted() extent {
	slices.Sort(e.kinds)
	slices.Sort(e.namespaces)
	return extent{kinds: slices.Compact(e.kinds), namespaces: slices.Compact(e.namespaces)}
}

// parent reads the inventory; nil when there is none. It also finds those of namespaces in which the
// instance once was.
func (a *apply) parent(ctx context.Context) (*unstructured.Unstructured, resource, error) {
	name := parentName(a.owner)
	r, err := a.cluster.resource(ctx, kindParent)
	if err != nil {
		return nil, r, explain(ctx, "read the inventory "+name, err)
	}
	if v, err := a.cluster.view(ctx, r, a.home); err == nil {
		a.earlier = slices.DeleteFunc(v.of(a.owner), func(o *unstructured.Unstructured) bool {
			return o.GetNamespace() == a.home || !isSet(o, a.owner) || a.near.anothers(o) != nil
		})
		if o := v.get(a.home, name); o != nil {
			return o, r, nil
		}
	}
	live, err := a.liveParent(ctx, r)
	return live, r, err
}

// liveParent asks the server for the inventory; nil when there is none.
func (a *apply) liveParent(ctx context.Context, r resource) (*unstructured.Unstructured, error) {
	live, err := a.clients.at(r, a.home).Get(ctx, parentName(a.owner), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, explain(ctx, "read the inventory "+parentName(a.owner), err)
}

// remember notes where objects are and will be, and for which target, before they are applied: whatever
// happens then, they are found again, and nothing earlier is applied any more (F2).
func (a *apply) remember(ctx context.Context) error {
	parent, r, err := a.parent(ctx)
	if err != nil {
		return err
	}
	return a.note(ctx, r, parent, a.known)
}

// notings bounds how often an inventory is read again that somebody else writes at the same time.
const notings = 10

// note writes the inventory, when it changes, with what is to be in it beside the fence. It does so only over the
// one that it has read, and refuses what is fenced off there.
func (a *apply) note(ctx context.Context, r resource, parent *unstructured.Unstructured, all func(parent *unstructured.Unstructured) extent) error {
	for n := 1; ; n++ {
		if err := a.admit(append(slices.Clone(a.earlier), parent)...); err != nil {
			return err
		}
		wanted := a.parentOf(all(parent))
		if err := errors.Join(a.mark(wanted, parent), a.noteDelivery(wanted, parent)); err != nil {
			return err
		}
		if parent != nil && same(parent.GetLabels(), wanted.GetLabels()) && same(parent.GetAnnotations(), wanted.GetAnnotations()) {
			a.noted = parent
			return nil
		}
		written, err := a.overwrite(ctx, r, parent, wanted)
		if err == nil {
			a.tellTakeover(parent)
			a.noted = written
		}
		if err == nil || !isConflict(err) || n == notings {
			return err
		}
		if parent, err = a.liveParent(ctx, r); err != nil {
			return err
		}
	}
}

// overwrite writes the inventory over the one that was read, or makes it where none was. It is a conflict when another one is
// there by now. Its fields are nobody else's to own.
func (a *apply) overwrite(ctx context.Context, r resource, parent, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if parent == nil { // an apply cannot say that there is to be none
		made, err := a.clients.at(r, a.home).Create(ctx, wanted, metav1.CreateOptions{FieldManager: FieldManager})
		return made, explain(ctx, "make the inventory "+idOf(wanted).String(), err)
	}
	wanted.SetResourceVersion(parent.GetResourceVersion())
	text, err := wanted.MarshalJSON()
	if err != nil {
		return nil, runtimes.Permanent(err)
	}
	t := &trial{declared: declared{Unstructured: wanted, text: text}, at: r, live: parent, force: true}
	if err := a.mayTake(ctx, t, parent); err != nil {
		return nil, err
	}
	return a.send(ctx, t, false)
}

// parentOf is the inventory as it is applied. It carries the labels of the instance, which lets it be
// watched with the rest, and is no part of the set.
func (a *apply) parentOf(all extent) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kindParent)
	o.SetNamespace(a.home)
	o.SetName(parentName(a.owner))
	labels := labelsOf(a.owner)
	labels[labelSetID] = setID(parentName(a.owner), a.home)
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{
		annotationTooling: tooling,
		annotationKinds:   strings.Join(all.kinds, ","),
		annotationMoreNS:  strings.Join(all.namespaces, ","),
	})
	return o
}

func same(there, wanted map[string]string) bool {
	for name, value := range wanted {
		if got, ok := there[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// served finds how a kind of the inventory is served: in the version that the objects use, where they
// do. A kind that is no longer served has no objects.
func (a *apply) served(ctx context.Context, kind schema.GroupKind) (resource, bool, error) {
	for _, o := range a.all() {
		if gvk := o.GroupVersionKind(); gvk.GroupKind() == kind {
			r, err := a.cluster.resource(ctx, gvk)
			return r, err == nil, unless(meta.IsNoMatchError, err)
		}
	}
	r, err := a.cluster.preferred(ctx, kind)
	return r, err == nil, unless(meta.IsNoMatchError, err)
}

func unless(is func(error) bool, err error) error {
	if err == nil || is(err) {
		return nil
	}
	return err
}

// leftover is an object of ours that is no longer declared.
type leftover struct {
	*unstructured.Unstructured
	at resource
}

// leave ends an apply: what is no longer declared is removed when the payload says so, once all that
// is declared is ready, and stays where it is otherwise (D10). The inventory then shrinks to what is.
func (a *apply) leave(ctx context.Context, trials []*trial) error {
	parent := a.noted
	r, err := a.cluster.resource(ctx, kindParent)
	if err != nil {
		return explain(ctx, "read the inventory "+parentName(a.owner), err)
	}
	left, unknown, err := a.leftovers(ctx, a.known(parent))
	if err != nil {
		return err
	}
	if a.prune && slices.ContainsFunc(left, func(l leftover) bool { return a.spared(l.Unstructured) == "" }) {
		if err := a.ready(ctx, trials); err != nil {
			return err
		}
		if left, err = a.pruneAll(ctx, left); err != nil {
			return err
		}
	}
	there := a.extentOf(nil)
	there.kinds = append(there.kinds, unknown...)
	for _, l := range left {
		a.account.say("%s", a.leftInPlace(l))
		there.kinds = append(there.kinds, idOf(l.Unstructured).kind.String())
		if n := l.GetNamespace(); n != "" && n != a.home {
			there.namespaces = append(there.namespaces, n)
		}
	}
	if len(unknown) > 0 {
		there.namespaces = append(there.namespaces, a.known(parent).namespaces...)
	}
	there = there.sorted()
	return a.note(ctx, r, parent, func(*unstructured.Unstructured) extent { return there })
}

// leftInPlace says why an object that is no longer declared is there, where it would have been pruned otherwise.
func (a *apply) leftInPlace(l leftover) string {
	text := "left in place " + called(l.Unstructured) + ", which is no longer declared"
	if why := a.kept(l.Unstructured); a.prune && why != "" {
		text += " (" + why + ")"
	}
	return text
}

// pruneAll removes leftovers, later waves first, and returns those that stay.
func (a *apply) pruneAll(ctx context.Context, left []leftover) (stay []leftover, err error) {
	for _, l := range left {
		if a.spared(l.Unstructured) != "" {
			stay = append(stay, l)
			continue
		}
		if err := a.unfenced(ctx); err != nil {
			return nil, err
		}
		deleted, err := a.delete(ctx, l, metav1.DeletePropagationBackground, true) // what it made goes after it
		if err != nil {
			return nil, explain(ctx, "remove "+idOf(l.Unstructured).String()+", which is no longer declared", err)
		}
		if deleted {
			a.account.say("pruned %s", called(l.Unstructured))
		}
	}
	return stay, nil
}

// leftovers are the objects of ours that are not declared, in reverse order of applying, and the
// kinds of which nobody knows since they may not be read. Those are an error only when pruning.
func (a *apply) leftovers(ctx context.Context, all extent) (left []leftover, unknown []string, err error) {
	known := map[id]bool{{kind: kindParent.GroupKind(), namespace: a.home, name: parentName(a.owner)}: true}
	for _, o := range a.all() {
		known[idOf(o.Unstructured)] = true
	}
	for _, name := range all.kinds {
		found, err := a.undeclared(ctx, schema.ParseGroupKind(name), append([]string{a.home}, all.namespaces...), known)
		if err != nil && (a.prune || ctx.Err() != nil) {
			return nil, nil, explain(ctx, "list objects of kind "+name+" that are no longer declared", err)
		}
		if err != nil {
			unknown = append(unknown, name)
		}
		left = append(left, found...)
	}
	slices.SortFunc(left, func(x, y leftover) int {
		return -inOrder(declared{Unstructured: x.Unstructured}, declared{Unstructured: y.Unstructured})
	})
	return left, unknown, nil
}

func (a *apply) undeclared(ctx context.Context, kind schema.GroupKind, namespaces []string, known map[id]bool) (left []leftover, err error) {
	r, ok, err := a.served(ctx, kind)
	if err != nil || !ok {
		return nil, err
	}
	asked := map[string]bool{}
	for _, namespace := range namespaces {
		v, err := a.cluster.view(ctx, r, namespace)
		if err != nil {
			return left, err
		}
		if asked[v.namespace] {
			continue // one view may be of all namespaces
		}
		asked[v.namespace] = true
		objects, err := a.ours(ctx, v, kind)
		if err != nil {
			return left, err
		}
		for _, o := range objects {
			if isWithin(namespaces, o) && !known[idOf(o)] && a.leaves(ctx, o) {
				left = append(left, leftover{Unstructured: o, at: r})
			}
		}
	}
	return left, nil
}

// leaves: an object that is not declared is one of the instance, and no book-keeping that is to stay.
func (a *apply) leaves(ctx context.Context, o *unstructured.Unstructured) bool {
	inventory := isInventory(o, a.owner) && (!a.prune || a.near.anothers(o) != nil)
	return !byOthers(o) && o.GetDeletionTimestamp() == nil && !inventory && a.anothers(ctx, o) == nil
}

// isWithin: an object is in one of the namespaces in which the instance is, or was. What looks like it elsewhere is a copy.
func isWithin(namespaces []string, o *unstructured.Unstructured) bool {
	return o.GetNamespace() == "" || slices.Contains(namespaces, o.GetNamespace())
}

// ours lists what carries our labels. Where an answer that is a moment old would lose objects (a kind
// that is about to be forgotten) or leave them (when pruning), the server is asked and not the watch.
func (a *apply) ours(ctx context.Context, v *view, kind schema.GroupKind) ([]*unstructured.Unstructured, error) {
	if !a.prune && a.declares(kind) {
		return v.of(a.owner), nil
	}
	return a.listed(ctx, v.resource, v.namespace)
}

func (a *apply) declares(kind schema.GroupKind) bool {
	return slices.ContainsFunc(a.all(), func(d declared) bool { return idOf(d.Unstructured).kind == kind })
}
