package kubernetes

import (
	"context"
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
// kinds, in which namespaces, there are objects of it. Which ones they are, their labels say.

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
	for _, o := range a.objects {
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
			return o.GetNamespace() == a.home || !a.bookkeeping(o)
		})
		if o := v.get(a.home, name); o != nil {
			return o, r, nil
		}
	}
	live, err := a.clients.at(r, a.home).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, r, nil
	}
	return live, r, explain(ctx, "read the inventory "+name, err)
}

// remember notes where objects are and will be, before they are applied: whatever happens then, they
// are found again.
func (a *apply) remember(ctx context.Context) error {
	parent, r, err := a.parent(ctx)
	if err != nil {
		return err
	}
	return a.note(ctx, r, parent, a.known(parent))
}

// note writes the inventory, when it changes.
func (a *apply) note(ctx context.Context, r resource, parent *unstructured.Unstructured, all extent) error {
	wanted := a.parentOf(all)
	if parent != nil && same(parent.GetLabels(), wanted.GetLabels()) && same(parent.GetAnnotations(), wanted.GetAnnotations()) {
		return nil
	}
	text, err := wanted.MarshalJSON()
	if err != nil {
		return runtimes.Permanent(err)
	}
	t := &trial{declared: declared{Unstructured: wanted, text: text}, at: r, live: parent}
	if parent != nil {
		if err := a.mayTake(t, parent); err != nil {
			return err
		}
	}
	_, err = a.send(ctx, t, false)
	return err
}

// parentOf is the inventory as it is applied. It carries the labels of the instance, which lets it be
// watched with the rest, and is no part of the set.
func (a *apply) parentOf(all extent) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kindParent)
	o.SetNamespace(a.home)
	o.SetName(parentName(a.owner))
	o.SetLabels(map[string]string{
		labelSetID:       setID(parentName(a.owner), a.home),
		LabelApplication: a.owner.Application, LabelService: a.owner.Service, LabelChannel: a.owner.Channel,
	})
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
	for _, o := range a.objects {
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
