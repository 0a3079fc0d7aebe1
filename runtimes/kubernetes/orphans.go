package kubernetes

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// orphans reports what carries our labels and is not declared (D10), in whichever namespace: an
// instance may have moved. It looks at the kinds of the payload and at those that the ApplySet's
// parent remembers from earlier ones. A kind that may no
// longer be read holds up nothing: orphans are for people to see.
func (l *look) orphans(ctx context.Context, wanted []declared) ([]entities.Object, error) {
	known := map[id]bool{}
	kinds := map[schema.GroupKind]string{} // and a version, where one is known
	namespaces := []string{l.home}
	for _, d := range wanted {
		gvk := d.GroupVersionKind()
		known[idOf(d.Unstructured)] = true
		kinds[gvk.GroupKind()] = gvk.Version
		namespaces = append(namespaces, d.GetNamespace())
	}
	parents, err := l.parents(ctx)
	if err != nil {
		return nil, err
	}
	for _, parent := range parents {
		for _, kind := range listed(parent, annotationKinds) {
			if _, ok := kinds[schema.ParseGroupKind(kind)]; !ok {
				kinds[schema.ParseGroupKind(kind)] = ""
			}
		}
		namespaces = append(append(namespaces, parent.GetNamespace()), listed(parent, annotationMoreNS)...)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(slices.DeleteFunc(namespaces, func(n string) bool { return n == "" }))
	var orphans []entities.Object
	for _, kind := range sortedKinds(kinds) {
		found, err := l.undeclared(ctx, kind.WithVersion(kinds[kind]), namespaces, known)
		if err != nil && !hasCode(err, runtimes.CodeForbidden) {
			return nil, err
		}
		orphans = append(orphans, found...)
	}
	return orphans, nil
}

// parents are the ConfigMaps that remember the set of objects: the instance's own, and those where it
// once was. There are none when nothing was applied yet.
func (l *look) parents(ctx context.Context) (found []*unstructured.Unstructured, err error) {
	v, err := l.viewOf(ctx, kindParent, l.home)
	if err != nil || v == nil {
		return nil, err
	}
	return slices.DeleteFunc(v.of(l.owner), func(o *unstructured.Unstructured) bool { return !l.isParent(o) }), nil
}

// isParent tells whether an object is our own book-keeping, here or where the instance once was.
func (l *look) isParent(o *unstructured.Unstructured) bool {
	return idOf(o).kind == schema.GroupKind{Kind: "ConfigMap"} && o.GetName() == parentName(l.owner)
}

// undeclared reports the objects of a kind that are ours and not known.
func (l *look) undeclared(ctx context.Context, kind schema.GroupVersionKind, namespaces []string, known map[id]bool) ([]entities.Object, error) {
	var found []entities.Object
	for _, namespace := range namespaces {
		v, err := l.viewOf(ctx, kind, namespace)
		if err != nil || v == nil {
			return found, err
		}
		for _, o := range v.of(l.owner) {
			if known[idOf(o)] || byOthers(o) || l.isParent(o) {
				continue
			}
			known[idOf(o)] = true // the same view may serve all namespaces
			object := l.named(o)
			object.Orphaned, object.Versions = true, ownVersion(o)
			object.Status, _ = health(o)
			object.Message = "no longer declared, left in place"
			found = append(found, object)
		}
	}
	return found, nil
}

func idOf(o *unstructured.Unstructured) id {
	return id{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

// listed reads an annotation that holds a list separated by commas.
func listed(o *unstructured.Unstructured, annotation string) []string {
	return strings.FieldsFunc(o.GetAnnotations()[annotation], func(r rune) bool { return r == ',' || r == ' ' })
}

func sortedKinds(kinds map[schema.GroupKind]string) []schema.GroupKind {
	sorted := make([]schema.GroupKind, 0, len(kinds))
	for kind := range kinds {
		sorted = append(sorted, kind)
	}
	slices.SortFunc(sorted, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return sorted
}
