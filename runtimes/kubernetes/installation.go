package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// Two installations of Converge that do not know each other may declare instances of the same names on one cluster (H10). The
// part-of label of an object names its inventory, whose fence names the installation. Objects of another installation are not
// overwritten, not removed, and not reported as orphans here, unless the object or the service consents to adoption. An installation
// from which an object was taken cannot adopt it back, so that two installations with consents do not alternate.

// otherInstallations are the inventories of other installations for an instance with the same names as ours, by ApplySet id.
type otherInstallations struct {
	installation string // ours; empty: not known, so no installation counts as another

	mu          sync.Mutex
	loaded      bool
	inventories map[string]*unstructured.Unstructured
}

// newOtherInstallations returns an otherInstallations that has not read the inventories yet.
func newOtherInstallations(in runtimes.Request) *otherInstallations {
	n := &otherInstallations{installation: in.Installation}
	if n.installation == "" && in.Fence != nil {
		n.installation = in.Fence.Installation
	}
	return n
}

// fenceOf is the fence of an inventory that another installation applied; nil if it is ours, or has no installation.
func (n *otherInstallations) fenceOf(inventory *unstructured.Unstructured) *runtimes.Fence {
	if n.installation == "" || inventory == nil {
		return nil
	}
	if f, err := parseFence(inventory); err == nil && f != nil && f.Installation != "" && f.Installation != n.installation {
		return f
	}
	return nil
}

// load reads the inventories of an owner from the watch. If they may not be watched, no other installation is known.
func (n *otherInstallations) load(ctx context.Context, c *cluster, owner runtimes.Owner, namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loaded || n.installation == "" {
		return
	}
	r, err := c.resource(ctx, kindInventory)
	if err != nil {
		return
	}
	v, err := c.view(ctx, r, namespace)
	if err != nil {
		return
	}
	n.loaded, n.inventories = true, map[string]*unstructured.Unstructured{}
	for _, o := range v.byOwner(owner) {
		if isInventory(o, owner) && n.fenceOf(o) != nil {
			n.inventories[setID(o.GetName(), o.GetNamespace())] = o
		}
	}
}

// inventoryOf is the inventory of another installation to which an object belongs; nil if there is none.
func (n *otherInstallations) inventoryOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inventories[o.GetLabels()[LabelPartOf]]
}

// otherInventoryOf is the inventory of another installation to which an object with our labels belongs; nil if there is none.
func (a *apply) otherInventoryOf(ctx context.Context, o *unstructured.Unstructured) *unstructured.Unstructured {
	a.others.load(ctx, a.cluster, a.owner, a.namespace)
	return a.others.inventoryOf(o)
}

// wasTakenOver reports whether an object, or an inventory, was taken over from our installation.
func (n *otherInstallations) wasTakenOver(o *unstructured.Unstructured) bool {
	return slices.Contains(annotationList(o, AnnotationTakenFrom), n.installation)
}

// refuseOtherInventory refuses to write an inventory of another installation.
func (a *apply) refuseOtherInventory(inventory *unstructured.Unstructured) error {
	f := a.others.fenceOf(inventory)
	if f == nil || a.adopt && !a.others.wasTakenOver(inventory) {
		return nil
	}
	p := &problem{action: "write " + idOf(inventory).String(), reason: "it belongs to " + installationOf(a.owner, f)}
	p.hint = "remove it there, or set adopt to take it over; this is the installation " + a.others.installation
	if a.others.wasTakenOver(inventory) {
		p.reason += ", and took it over from this one"
		p.hint = "to get it back, remove it there, or: " + removeAnnotationsCommand(inventory, AnnotationFence, AnnotationTakenFrom)
	}
	return runtimes.Permanent(p)
}

// refuseOtherInstallation refuses an object with our labels that belongs to another installation.
func (a *apply) refuseOtherInstallation(ctx context.Context, t *trial, live *unstructured.Unstructured) error {
	inventory := a.otherInventoryOf(ctx, live)
	f := a.others.fenceOf(inventory)
	if f == nil {
		return nil
	}
	takenOver := a.others.wasTakenOver(live) || a.others.wasTakenOver(inventory)
	if !takenOver && a.hasNewConsent(t, live) {
		return nil
	}
	p := &problem{action: "apply " + idOf(t.Unstructured).String(), reason: "it belongs to " + installationOf(a.owner, f)}
	p.hint = "give one of them another name or namespace, or consent to taking it over, by adopt or by the annotation " + AnnotationAdopt +
		"; this is the installation " + a.others.installation
	if takenOver {
		p.reason += ", and took it over from this one"
		p.hint = "to get it back, remove it there, or: " + removeAnnotationsCommand(inventory, AnnotationFence, AnnotationTakenFrom)
		if inventory.GetNamespace() != a.namespace {
			p.hint = "to get it back, remove it there, or: " + removeAnnotationsCommand(live, AnnotationTakenFrom)
		}
	}
	return runtimes.Permanent(p)
}

// removeAnnotationsCommand is the command that removes annotations from an object.
func removeAnnotationsCommand(o *unstructured.Unstructured, annotations ...string) string {
	text := "kubectl"
	if o.GetNamespace() != "" {
		text += " -n " + o.GetNamespace()
	}
	text += fmt.Sprintf(" annotate %s %s", strings.ToLower(o.GetKind()), o.GetName())
	for _, name := range annotations {
		text += " " + name + "-"
	}
	return text
}

// installationOf is "the installation ID (epoch 2), which manages shop/web in prod at v7".
func installationOf(owner runtimes.Owner, f *runtimes.Fence) string {
	text := fmt.Sprintf("the installation %s (epoch %d), which manages %s", f.Installation, f.Epoch, owner)
	if f.FullVersion == "" {
		return text + ", and removes it"
	}
	return text + " at " + f.FullVersion
}

// otherInstallationText is the other installation that has the instance of an object; empty if it is ours or not known.
func (a *apply) otherInstallationText(ctx context.Context, owner runtimes.Owner, o *unstructured.Unstructured) string {
	others := otherInstallations{installation: a.others.installation}
	others.load(ctx, a.cluster, owner, a.namespace)
	if f := others.fenceOf(others.inventoryOf(o)); f != nil {
		return fmt.Sprintf(", of the installation %s (epoch %d)", f.Installation, f.Epoch)
	}
	return ""
}

// takenFrom are the installations from which an object, or an inventory, was taken over, after it is ours.
func (n *otherInstallations) takenFrom(object *unstructured.Unstructured, previous *runtimes.Fence) string {
	all := annotationList(object, AnnotationTakenFrom)
	if previous != nil && !slices.Contains(all, previous.Installation) {
		all = append(all, previous.Installation)
	}
	return strings.Join(slices.DeleteFunc(all, func(id string) bool { return id == n.installation }), ",")
}

// recordTakenFrom records on an object from which installations it was taken over.
func (a *apply) recordTakenFrom(t *trial) error {
	if t.live == nil || a.others.installation == "" {
		return nil
	}
	taken := a.others.takenFrom(t.live, a.others.fenceOf(a.others.inventoryOf(t.live)))
	if taken == "" {
		return nil
	}
	t.Unstructured = t.DeepCopy()
	return errors.Join(merge(t.Object, map[string]string{AnnotationTakenFrom: taken}, []string{"metadata", "annotations"}), t.encode())
}
