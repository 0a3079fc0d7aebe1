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

// neighbours are the inventories of other installations for an instance with the same names as ours, by ApplySet id.
type neighbours struct {
	installation string // ours; empty: not known, so no installation counts as another

	mu    sync.Mutex
	asked bool
	sets  map[string]*unstructured.Unstructured
}

// nextTo returns neighbours that have read nothing yet.
func nextTo(in runtimes.Instance) *neighbours {
	n := &neighbours{installation: in.Installation}
	if n.installation == "" && in.Fence != nil {
		n.installation = in.Fence.Installation
	}
	return n
}

// anothers is the fence of an inventory that another installation applied; nil if it is ours, or has no installation.
func (n *neighbours) anothers(inventory *unstructured.Unstructured) *runtimes.Fence {
	if n.installation == "" || inventory == nil {
		return nil
	}
	if f, err := fenceIn(inventory); err == nil && f != nil && f.Installation != "" && f.Installation != n.installation {
		return f
	}
	return nil
}

// know reads the inventories of an owner from the watch. If they may not be watched, no neighbour is known.
func (n *neighbours) know(ctx context.Context, c *cluster, owner runtimes.Owner, home string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asked || n.installation == "" {
		return
	}
	r, err := c.resource(ctx, kindParent)
	if err != nil {
		return
	}
	v, err := c.view(ctx, r, home)
	if err != nil {
		return
	}
	n.asked, n.sets = true, map[string]*unstructured.Unstructured{}
	for _, o := range v.of(owner) {
		if isInventory(o, owner) && n.anothers(o) != nil {
			n.sets[setID(o.GetName(), o.GetNamespace())] = o
		}
	}
}

// of is the inventory of another installation to which an object belongs; nil if there is none.
func (n *neighbours) of(o *unstructured.Unstructured) *unstructured.Unstructured {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sets[o.GetLabels()[LabelPartOf]]
}

// anothers is the inventory of another installation to which an object with our labels belongs; nil if there is none.
func (a *apply) anothers(ctx context.Context, o *unstructured.Unstructured) *unstructured.Unstructured {
	a.near.know(ctx, a.cluster, a.owner, a.home)
	return a.near.of(o)
}

// lost reports whether an object, or an inventory, was taken over from our installation.
func (n *neighbours) lost(o *unstructured.Unstructured) bool {
	return slices.Contains(listed(o, AnnotationTaken), n.installation)
}

// refuseAnothers refuses to write an inventory of another installation.
func (a *apply) refuseAnothers(inventory *unstructured.Unstructured) error {
	f := a.near.anothers(inventory)
	if f == nil || a.adopt && !a.near.lost(inventory) {
		return nil
	}
	p := &problem{doing: "write " + idOf(inventory).String(), why: "it belongs to " + installationOf(a.owner, f)}
	p.hint = "remove it there, or set adopt to take it over; this is the installation " + a.near.installation
	if a.near.lost(inventory) {
		p.why += ", and took it over from this one"
		p.hint = "to get it back, remove it there, or: " + clearing(inventory, AnnotationFence, AnnotationTaken)
	}
	return runtimes.Permanent(p)
}

// foreignObject refuses an object with our labels that belongs to another installation.
func (a *apply) foreignObject(ctx context.Context, t *trial, live *unstructured.Unstructured) error {
	inventory := a.anothers(ctx, live)
	f := a.near.anothers(inventory)
	if f == nil {
		return nil
	}
	lost := a.near.lost(live) || a.near.lost(inventory)
	if !lost && a.consents(t, live) {
		return nil
	}
	p := &problem{doing: "apply " + idOf(t.Unstructured).String(), why: "it belongs to " + installationOf(a.owner, f)}
	p.hint = "give one of them another name or namespace, or consent to taking it over, by adopt or by the annotation " + AnnotationAdopt +
		"; this is the installation " + a.near.installation
	if lost {
		p.why += ", and took it over from this one"
		p.hint = "to get it back, remove it there, or: " + clearing(inventory, AnnotationFence, AnnotationTaken)
		if inventory.GetNamespace() != a.home {
			p.hint = "to get it back, remove it there, or: " + clearing(live, AnnotationTaken)
		}
	}
	return runtimes.Permanent(p)
}

// clearing is the command that removes annotations from an object.
func clearing(o *unstructured.Unstructured, annotations ...string) string {
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

// whose is the other installation that has the instance of an object; empty if it is ours or not known.
func (a *apply) whose(ctx context.Context, owner runtimes.Owner, o *unstructured.Unstructured) string {
	others := neighbours{installation: a.near.installation}
	others.know(ctx, a.cluster, owner, a.home)
	if f := others.anothers(others.of(o)); f != nil {
		return fmt.Sprintf(", of the installation %s (epoch %d)", f.Installation, f.Epoch)
	}
	return ""
}

// taken are the installations from which an object, or an inventory, was taken over, after it is ours.
func (n *neighbours) taken(stands *unstructured.Unstructured, from *runtimes.Fence) string {
	all := listed(stands, AnnotationTaken)
	if from != nil && !slices.Contains(all, from.Installation) {
		all = append(all, from.Installation)
	}
	return strings.Join(slices.DeleteFunc(all, func(id string) bool { return id == n.installation }), ",")
}

// noteTaken records on an object from which installations it was taken over.
func (a *apply) noteTaken(t *trial) error {
	if t.live == nil || a.near.installation == "" {
		return nil
	}
	taken := a.near.taken(t.live, a.near.anothers(a.near.of(t.live)))
	if taken == "" {
		return nil
	}
	t.Unstructured = t.DeepCopy()
	return errors.Join(merge(t.Object, map[string]string{AnnotationTaken: taken}, []string{"metadata", "annotations"}), t.encode())
}
