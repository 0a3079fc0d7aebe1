package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// An object moves from one service of an application to another without a deletion:
//   - The earlier service declares it with AnnotationMovedTo until the next one has it: that is its consent, on the live object.
//   - The next service declares it with AnnotationMovedFrom.
//   - The newest incarnation declares it in the next service, and not in the earlier one, which was applied without it, or is not there any
//     more. Until the next service has it, the earlier one neither prunes nor removes it.
//
// The next service then applies it over the live object, with its own labels. For the earlier service the object is no longer declared from
// then on, and not its own, so it is neither missing, nor drift, nor pruned.

// isGivenTo reports whether a declared object was handed over: another service of the application has the live object. That service has
// checked that it is the one to which the object goes.
func (a *apply) isGivenTo(d declared, live *unstructured.Unstructured) bool {
	owner, ok := ownerOf(live.GetLabels())
	return ok && d.GetAnnotations()[AnnotationMovedTo] != "" && owner != a.owner && a.isSibling(owner)
}

// isSibling reports whether an owner is another service, or this one, of the application in the same channel and instance.
func (a *apply) isSibling(owner runtimes.Owner) bool {
	owner.Service = a.owner.Service
	return owner == a.owner
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

// mayTake reports whether an object of another service moves to this one.
func (a *apply) mayTake(ctx context.Context, t *trial, live *unstructured.Unstructured) bool {
	from, _ := ownerOf(live.GetLabels())
	if !a.isSibling(from) {
		return false
	}
	to, origin := live.GetAnnotations()[AnnotationMovedTo], t.GetAnnotations()[AnnotationMovedFrom]
	consents := to == a.owner.Service || origin == from.Service
	if !consents {
		all := a.siblings()
		consents = all.firstName(to) == a.owner.Service || all.firstName(origin) == from.Service || a.wasDropped(ctx, from, live)
	}
	if !consents || a.otherInstallationText(ctx, from, live) != "" {
		return false
	}
	t.movedFrom = from.Service
	return true
}

// isDropped reports whether the newest incarnation does not declare an object there any more in the service that has it.
func (a *apply) isDropped(from runtimes.Owner, live *unstructured.Unstructured) bool {
	if !a.isSibling(from) {
		return false
	}
	all := a.siblings()
	return !all.unknown && all.objects[idOf(live)] != from.Service
}

// wasDropped reports whether the newest incarnation does not declare an object in another service any more, and that service was applied
// without it. A plan does not wait for that.
func (a *apply) wasDropped(ctx context.Context, from runtimes.Owner, live *unstructured.Unstructured) bool {
	if !a.isDropped(from, live) {
		return false
	}
	namespace, declared := a.siblings().namespaces[from.Service]
	if !declared || a.planned {
		return true
	}
	r, err := a.cluster.resource(ctx, kindInventory)
	if err != nil {
		return false
	}
	inventory, err := a.clients.resourceClient(r, namespace).Get(ctx, inventoryName(from), metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	fence, err := parseFence(inventory)
	return err == nil && fence != nil && fence.FullVersion != versionIn(live)
}

// siblings are the other services of the application at this place, as the newest incarnation declares them.
type siblings struct {
	unknown    bool
	err        error             // why they are unknown
	objects    map[id]string     // the first name of the service that declares an object; without its namespace, too
	namespaces map[string]string // of the instance of a service, by its first name
	names      map[string]string // the first names of renamed services, by their current names
}

// readSiblings returns a function that reads the siblings once.
func readSiblings(ctx context.Context, in runtimes.Request) func() *siblings {
	return sync.OnceValue(func() *siblings {
		if in.Siblings == nil {
			return &siblings{unknown: true}
		}
		read, err := in.Siblings(ctx)
		if err != nil {
			return &siblings{unknown: true, err: explain(ctx, "read the other services of "+in.Application, err)}
		}
		all := &siblings{objects: map[id]string{}, namespaces: map[string]string{}, names: map[string]string{}}
		for first, current := range read.Names {
			all.names[current] = first
		}
		for n := range read.Payloads {
			all.add(&read.Payloads[n])
		}
		return all
	})
}

func (s *siblings) add(p *entities.Payload) {
	if p.Kubernetes == nil {
		return
	}
	namespace := namespaceOf(runtimes.Request{Payload: p})
	s.namespaces[p.Service] = namespace
	for _, raw := range p.Kubernetes.Objects {
		var o metav1.PartialObjectMetadata // other fields may be anything, for example encrypted
		if json.Unmarshal(raw, &o) != nil {
			continue
		}
		of := id{o.GroupVersionKind().GroupKind(), cmp.Or(o.GetNamespace(), namespace), o.GetName()}
		s.objects[of] = p.Service
		of.namespace = "" // the kind may have none
		s.objects[of] = p.Service
	}
}

// firstName is the first name of a service, by which owners are identified.
func (s *siblings) firstName(service string) string { return cmp.Or(s.names[service], service) }

// nextOwner is the service that declares an object of this one in the newest incarnation; empty: none does. It is an error if that is not
// known.
func (a *apply) nextOwner(o *unstructured.Unstructured) (string, error) {
	all := a.siblings()
	return all.objects[idOf(o)], all.err
}

// nextOwnerText says why an object that another service declares now is not removed.
func nextOwnerText(service string) string {
	return "service " + service + " declares it, and takes it over"
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
