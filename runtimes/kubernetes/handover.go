package kubernetes

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An object moves from one service of an application to another without a deletion. The earlier service declares it with
// AnnotationMovedTo until the next one has it: that is its consent, on the live object. Or the next one declares it with
// AnnotationMovedFrom. The next service then applies it over the live object, with its own labels. For the earlier service the object is
// no longer declared from then on, and not its own, so it is neither missing, nor drift, nor pruned.

// isGivenTo reports whether a declared object was handed over: the live object belongs to the service that its declaration names.
func (a *apply) isGivenTo(d declared, live *unstructured.Unstructured) bool {
	next := a.owner
	next.Service = d.GetAnnotations()[AnnotationMovedTo]
	owner, ok := ownerOf(live.GetLabels())
	return ok && next.Service != "" && owner == next && owner != a.owner
}

// dropGiven removes the objects from the declared ones that other services have taken over.
func (a *apply) dropGiven(ctx context.Context) error {
	var kept []declared
	for _, d := range a.objects {
		if d.GetAnnotations()[AnnotationMovedTo] != "" {
			live, err := a.liveOf(ctx, d)
			if err != nil {
				return err
			}
			if live != nil && a.isGivenTo(d, live) {
				continue
			}
		}
		kept = append(kept, d)
	}
	a.objects = kept
	return nil
}

// liveOf reads an object from the server; nil if it does not exist.
func (a *apply) liveOf(ctx context.Context, d declared) (*unstructured.Unstructured, error) {
	at, err := a.cluster.resource(ctx, d.GroupVersionKind())
	if err != nil {
		return nil, nil //nolint:nilerr // its trial reports a kind that is not served
	}
	live, err := a.clients.resourceClient(at, d.GetNamespace()).Get(ctx, d.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, explain(ctx, "look up "+idOf(d.Unstructured).String(), err)
}

// mayTake reports whether an object of another service moves to this one. Both are services of one application, in the same channel and
// instance, and one of them declares the move.
func (a *apply) mayTake(ctx context.Context, t *trial, live *unstructured.Unstructured) bool {
	owner, _ := ownerOf(live.GetLabels())
	from := owner.Service
	consents := live.GetAnnotations()[AnnotationMovedTo] == a.owner.Service || t.GetAnnotations()[AnnotationMovedFrom] == from
	if owner.Service = a.owner.Service; owner != a.owner || !consents {
		return false
	}
	owner.Service = from
	if a.otherInstallationText(ctx, owner, live) != "" {
		return false
	}
	t.movedFrom = from
	return true
}

// moveMessage is the move of an object in the form of a plan; "" if it does not move.
func (t *trial) moveMessage() string {
	if t.movedFrom != "" {
		return "moves here from service " + t.movedFrom
	}
	if to := t.GetAnnotations()[AnnotationMovedTo]; to != "" {
		return "moves to service " + to
	}
	return ""
}

// guardedText is the object in its sent form. One that is handed over is written only over the object that was tried: the next service may
// take it over in between.
func (t *trial) guardedText() []byte {
	if t.GetAnnotations()[AnnotationMovedTo] == "" || t.live == nil || t.outcome == recreated {
		return t.text
	}
	o := t.DeepCopy()
	o.SetResourceVersion(t.live.GetResourceVersion())
	text, err := o.MarshalJSON()
	if err != nil { // cannot fail: the object was encoded before
		return t.text
	}
	return text
}

// withoutGiven are the declared objects without those that other services have taken over.
func (ob *observation) withoutGiven(ctx context.Context, all []declared) ([]declared, error) {
	a := &apply{owner: ob.owner}
	var failed error
	return slices.DeleteFunc(all, func(d declared) bool {
		if d.GetAnnotations()[AnnotationMovedTo] == "" || failed != nil {
			return false
		}
		v, err := ob.viewOf(ctx, d.GroupVersionKind(), d.GetNamespace())
		if failed = err; err != nil || v == nil {
			return false
		}
		live := v.get(d.GetNamespace(), d.GetName())
		return live != nil && a.isGivenTo(d, live)
	}), failed
}
