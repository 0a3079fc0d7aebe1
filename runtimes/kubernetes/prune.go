package kubernetes

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leftover is an object of ours that is no longer declared.
type leftover struct {
	*unstructured.Unstructured
	at resource
}

// kept tells whether an object is never removed by pruning: with it would go what nobody declared.
func (l leftover) kept() bool {
	kind := idOf(l.Unstructured).kind
	return kind == kindNamespace || kind == kindDefinition || kind == kindClaim
}

// leave ends an apply: what is no longer declared is removed when the payload says so, once all that
// is declared is ready, and stays where it is otherwise (D10). The inventory then shrinks to what is.
func (a *apply) leave(ctx context.Context, trials []*trial) error {
	parent, r, err := a.parent(ctx)
	if err != nil {
		return err
	}
	left, unknown, err := a.leftovers(ctx, a.known(parent))
	if err != nil {
		return err
	}
	if a.prune && slices.ContainsFunc(left, func(l leftover) bool { return !l.kept() }) {
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
		a.told.say("left in place %s, which is no longer declared", called(l.Unstructured))
		there.kinds = append(there.kinds, idOf(l.Unstructured).kind.String())
		if n := l.GetNamespace(); n != "" && n != a.home {
			there.namespaces = append(there.namespaces, n)
		}
	}
	if len(unknown) > 0 {
		there.namespaces = append(there.namespaces, a.known(parent).namespaces...)
	}
	return a.note(ctx, r, parent, there.sorted())
}

// pruneAll removes leftovers, later waves first, and returns those that stay.
func (a *apply) pruneAll(ctx context.Context, left []leftover) (stay []leftover, err error) {
	for _, l := range left {
		if l.kept() {
			stay = append(stay, l)
			continue
		}
		if err := a.pruneOne(ctx, l); err != nil {
			return nil, err
		}
	}
	return stay, nil
}

// pruneOne removes an object if it is still the one that was seen, and still ours. Its controller may
// write it at the same time, so what is removed is read again when it changed.
func (a *apply) pruneOne(ctx context.Context, l leftover) error {
	const attempts = 10
	var err error
	for range attempts {
		if err = a.pruneNow(ctx, l); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return explain(ctx, "remove "+idOf(l.Unstructured).String()+", which is no longer declared", err)
	}
	return nil
}

func (a *apply) pruneNow(ctx context.Context, l leftover) error {
	at := a.clients.at(l.at, l.GetNamespace())
	live, err := at.Get(ctx, l.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !a.owns(live) || byOthers(live) || live.GetDeletionTimestamp() != nil {
		return nil
	}
	background, uid, version := metav1.DeletePropagationBackground, live.GetUID(), live.GetResourceVersion()
	err = at.Delete(ctx, l.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err == nil {
		a.told.say("pruned %s", called(live))
	}
	return err
}

// leftovers are the objects of ours that are not declared, in reverse order of applying, and the
// kinds of which nobody knows since they may not be read. Those are an error only when pruning.
func (a *apply) leftovers(ctx context.Context, all extent) (left []leftover, unknown []string, err error) {
	known := map[id]bool{{kind: kindParent.GroupKind(), namespace: a.home, name: parentName(a.owner)}: true}
	for _, o := range a.objects {
		known[idOf(o.Unstructured)] = true
	}
	for _, name := range all.kinds {
		found, err := a.undeclared(ctx, schema.ParseGroupKind(name), append([]string{a.home}, all.namespaces...), known)
		if err != nil && (a.prune || ctx.Err() != nil) {
			return nil, nil, explain(ctx, "look for objects of kind "+name+" that are no longer declared", err)
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
			if known[idOf(o)] || byOthers(o) || o.GetDeletionTimestamp() != nil || a.bookkeeping(o) && !a.prune {
				continue
			}
			left = append(left, leftover{Unstructured: o, at: r})
		}
	}
	return left, nil
}

// ours lists what carries our labels. Where an answer that is a moment old would lose objects (a kind
// that is about to be forgotten) or leave them (when pruning), the server is asked and not the watch.
func (a *apply) ours(ctx context.Context, v *view, kind schema.GroupKind) ([]*unstructured.Unstructured, error) {
	if !a.prune && a.declares(kind) {
		return v.of(a.owner), nil
	}
	list, err := a.clients.at(v.resource, v.namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{
		LabelApplication: a.owner.Application, LabelService: a.owner.Service, LabelChannel: a.owner.Channel,
	}).String()})
	if err != nil {
		return nil, err
	}
	all := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

func (a *apply) declares(kind schema.GroupKind) bool {
	return slices.ContainsFunc(a.objects, func(d declared) bool { return idOf(d.Unstructured).kind == kind })
}

// bookkeeping tells whether an object is an inventory of this instance.
func (a *apply) bookkeeping(o *unstructured.Unstructured) bool {
	return idOf(o).kind == kindParent.GroupKind() && o.GetName() == parentName(a.owner)
}
