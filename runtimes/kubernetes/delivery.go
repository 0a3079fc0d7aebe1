package kubernetes

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// delivery is the progress of a version for an instance, as its inventory records it: the hooks that run now, and those that have
// ended. It is written once an instance has hooks, in the same request as the fence.
type delivery struct {
	// Versions are the delivered versions, in the order of their first delivery; the oldest are dropped.
	Versions []string `json:"versions"`
	Version  string   `json:"version"` // the version of this delivery, current or last
	Event    event    `json:"event"`
	// Installed: one delivery has ended successfully, so later ones are no installation.
	Installed bool `json:"installed,omitempty"`
	Ended     bool `json:"ended,omitempty"` // this delivery has ended
	// Done are the hooks that succeeded, Failed those that did not.
	Done   []string               `json:"done,omitempty"`
	Failed map[string]hookFailure `json:"failed,omitempty"`
}

// hookFailure is the failure of a hook: the attempt of the apply, and the message.
type hookFailure struct {
	Try string `json:"try,omitempty"`
	Why string `json:"why"`
}

// event is the kind of a delivery, named as in Helm.
type event string

const (
	install  event = "install"
	upgrade  event = "upgrade"
	rollback event = "rollback"
)

// maxDelivered limits the versions that an inventory records: the return of an older one is an upgrade.
const maxDelivered = 20

// deliveryIn reads the delivery from an inventory; nil if it has none.
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

// next is the delivery of a version after another delivery; for the same version the delivery continues. there reports whether an
// inventory existed.
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

// deliver finds the delivery of this apply. Without hooks, now and before, none is recorded. Otherwise it asks the server, because
// the watch may not show yet how the last delivery ended.
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

// noteDelivery writes the progress of the delivery on an inventory.
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

// delivered marks the delivery as ended; a later write of the inventory records it.
func (a *apply) delivered() {
	if a.delivery != nil {
		a.delivery.Ended, a.delivery.Installed = true, true
		a.delivery.Done, a.delivery.Failed = nil, nil
	}
}
