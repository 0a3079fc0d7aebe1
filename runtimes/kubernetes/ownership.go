package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// present is the object that is there under the name of a declared one, nil when none is. It is an
// error when it may not be taken (D11). Watched objects are believed to be ours when they say so;
// whatever is not among them is asked for.
func (a *apply) present(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	if v, err := a.cluster.view(ctx, t.at, t.GetNamespace()); err == nil {
		if o := v.get(t.GetNamespace(), t.GetName()); o != nil && a.owns(o) && o.GetDeletionTimestamp() == nil {
			return o, nil
		}
	}
	return a.read(ctx, t)
}

// read asks the server for what is there, and whether it may be taken.
func (a *apply) read(ctx context.Context, t *trial) (*unstructured.Unstructured, error) {
	live, err := a.clients.at(t.at, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(ctx, "look whether there is a "+idOf(t.Unstructured).String(), err)
	}
	if live.GetDeletionTimestamp() != nil {
		return nil, fmt.Errorf("apply %s: the one that is there is being deleted; it is made again once it is gone", idOf(t.Unstructured))
	}
	return live, a.mayTake(t, live)
}

func (a *apply) owns(o *unstructured.Unstructured) bool {
	owner, ok := ownerOf(o.GetLabels())
	return ok && owner == a.owner
}

// mayTake tells why an object that is there may not be applied over: another instance's never, what
// is somebody else's only when adopting was asked for.
func (a *apply) mayTake(t *trial, live *unstructured.Unstructured) error {
	owner, ok := ownerOf(live.GetLabels())
	switch {
	case ok && owner == a.owner:
		return nil
	case ok:
		// Not for good: when an object moves from one service to another, the one that had it may be about to prune it.
		return &problem{
			doing: "apply " + idOf(t.Unstructured).String(),
			why:   fmt.Sprintf("it belongs to %s/%s in %s; one object has one owner", owner.Application, owner.Service, owner.Channel),
			hint:  "remove it from one of them; what was moved has to be pruned there, or deleted, first",
		}
	case a.adopt || a.wasOurs(live):
		return nil
	}
	why := "it is there already, and not ours"
	if by := writers(live); by != "" {
		why += " (written by " + by + ")"
	}
	return a.foreign(t, why, "set adopt to take it over, or delete it")
}

func (a *apply) foreign(t *trial, why, hint string) error {
	return runtimes.Permanent(&problem{doing: "apply " + idOf(t.Unstructured).String(), why: why, hint: hint})
}

// wasOurs tells whether an object was applied by this instance and had labels taken off by hand: we
// are among its writers, and what is left of our marks is this instance's.
func (a *apply) wasOurs(live *unstructured.Unstructured) bool {
	if !appliedByUs(live) {
		return false
	}
	marks := 0
	for name, value := range map[string]string{
		LabelApplication: a.owner.Application, LabelService: a.owner.Service, LabelChannel: a.owner.Channel,
		LabelPartOf: setID(parentName(a.owner), a.home),
	} {
		switch there, ok := live.GetLabels()[name]; {
		case ok && there != value:
			return false
		case ok:
			marks++
		}
	}
	_, versioned := live.GetAnnotations()[AnnotationVersion]
	return marks > 0 || versioned
}

// appliedByUs tells whether an object was applied under our name, here or by an earlier worker. Labels
// alone do not say that: whoever clones an object copies them, and so do controllers (Endpoints have
// those of their Service).
func appliedByUs(o *unstructured.Unstructured) bool {
	entries, _ := inside(o.Object, "metadata")["managedFields"].([]any)
	return slices.ContainsFunc(entries, func(each any) bool {
		entry, _ := each.(map[string]any)
		return entry["manager"] == FieldManager && entry["operation"] == string(metav1.ManagedFieldsOperationApply)
	})
}

// byOthers tells that an object with our labels is not ours to report or to remove when nobody declares
// it: a controller made it for another object, or somebody else wrote it.
func byOthers(o *unstructured.Unstructured) bool {
	return metav1.GetControllerOfNoCopy(o) != nil || !appliedByUs(o)
}

// writers names who wrote an object.
func writers(o *unstructured.Unstructured) string {
	var names []string
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource == "" {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
