package kubernetes

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// delivery is how far a version has been brought to an instance, as its inventory says: which hooks run now, and which have
// ended. It is written as soon as an instance has hooks, in the same request as the fence.
type delivery struct {
	// Versions are those that were delivered, in the order in which they first came; the oldest are forgotten.
	Versions []string `json:"versions"`
	Version  string   `json:"version"` // that is being delivered, or was last
	Event    event    `json:"event"`
	// Installed: one delivery came to its end, so that what comes next is no installation.
	Installed bool `json:"installed,omitempty"`
	Ended     bool `json:"ended,omitempty"` // this one
	// Done are the hooks that ended well, Failed those that did not.
	Done   []string               `json:"done,omitempty"`
	Failed map[string]hookFailure `json:"failed,omitempty"`
}

// hookFailure is how a hook failed: in which attempt at an apply, and what there is to say about it.
type hookFailure struct {
	Try string `json:"try,omitempty"`
	Why string `json:"why"`
}

// event is what a delivery is for the instance, as Helm names it.
type event string

const (
	install  event = "install"
	upgrade  event = "upgrade"
	rollback event = "rollback"
)

// maxDelivered bounds how many versions an inventory remembers: one that is older and comes back is an upgrade.
const maxDelivered = 20

// deliveryIn is what an inventory says; nil when it says nothing.
func deliveryIn(inventory *unstructured.Unstructured) (*delivery, error) {
	if inventory == nil {
		return nil, nil
	}
	text, ok := inventory.GetAnnotations()[AnnotationDelivery]
	if !ok {
		return nil, nil
	}
	d := &delivery{}
	if err := json.Unmarshal([]byte(text), d); err != nil {
		return nil, &problem{
			doing: "read the annotation " + AnnotationDelivery + " of " + idOf(inventory).String(), why: err.Error(), err: err,
			hint: "without the annotation hooks run as for an upgrade",
		}
	}
	return d, nil
}

// next is the delivery of a version after another one; of the same version it is the same, which goes on. There was something
// where an inventory was.
func next(before *delivery, version string, there bool) *delivery {
	if before != nil && before.Version == version {
		return before
	}
	d := &delivery{Versions: []string{version}, Version: version, Event: install}
	switch {
	case before == nil && there:
		d.Event, d.Installed = upgrade, true
		return d
	case before == nil:
		return d
	}
	d.Versions, d.Installed = slices.Clone(before.Versions), before.Installed
	was, is := slices.Index(d.Versions, before.Version), slices.Index(d.Versions, version)
	switch {
	case !before.Installed:
	case is >= 0 && is < was:
		d.Event = rollback
	default:
		d.Event = upgrade
	}
	if is < 0 {
		d.Versions = append(d.Versions, version)
		d.Versions = d.Versions[max(0, len(d.Versions)-maxDelivered):]
	}
	return d
}

// deliver finds what the apply delivers. Where there are no hooks, and were none, nothing is said of it. Otherwise the server is
// asked, and not the watch, which may not know yet how the delivery before ended.
func (a *apply) deliver(ctx context.Context) error {
	inventory, r, err := a.parent(ctx)
	if err != nil {
		return err
	}
	if a.version == "" || len(a.hooks) == 0 && (inventory == nil || inventory.GetAnnotations()[AnnotationDelivery] == "") {
		return nil
	}
	if inventory, err = a.liveParent(ctx, r); err != nil {
		return err
	}
	before, err := deliveryIn(inventory)
	if err != nil {
		return err
	}
	a.delivery = next(before, a.version, inventory != nil)
	return nil
}

// noteDelivery writes on an inventory how far the delivery is.
func (a *apply) noteDelivery(wanted, stands *unstructured.Unstructured) error {
	text := ""
	if stands != nil {
		text = stands.GetAnnotations()[AnnotationDelivery]
	}
	if a.delivery != nil {
		encoded, err := json.Marshal(a.delivery)
		if err != nil {
			return runtimes.Permanent(err)
		}
		text = string(encoded)
	}
	if text != "" {
		annotations := wanted.GetAnnotations()
		annotations[AnnotationDelivery] = text
		wanted.SetAnnotations(annotations)
	}
	return nil
}

// delivered: the delivery has come to its end, but for what the inventory is told with the rest.
func (a *apply) delivered() {
	if a.delivery != nil {
		a.delivery.Ended, a.delivery.Installed = true, true
		a.delivery.Done, a.delivery.Failed = nil, nil
	}
}
