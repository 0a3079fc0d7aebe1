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
	// Number counts the deliveries of the instance: the same version may be delivered twice.
	Number int `json:"number,omitempty"`
	// Installed: one delivery has ended successfully, so later ones are no installation.
	Installed bool `json:"installed,omitempty"`
	Ended     bool `json:"ended,omitempty"` // this delivery has ended
	// Done are the hooks that succeeded, Failed those that did not.
	Done   []string               `json:"done,omitempty"`
	Failed map[string]hookFailure `json:"failed,omitempty"`
	// FailedAttempt is the attempt of the apply after which the failure hooks ran last.
	FailedAttempt string `json:"failedAttempt,omitempty"`
}

// hookFailure is the failure of a hook: the attempt of the apply, and the message.
type hookFailure struct {
	AttemptID string `json:"try,omitempty"`
	Reason    string `json:"why"`
}

// event is the kind of a delivery, named as in Helm.
type event string

const (
	install  event = "install"
	upgrade  event = "upgrade"
	rollback event = "rollback"
	deletion event = "delete" // of the instance: the version is the one that is removed
)

// maxDelivered limits the versions that an inventory records: an older one that is deployed again counts as an upgrade.
const maxDelivered = 20

// parseDelivery reads the delivery from an inventory; nil if it has none.
func parseDelivery(inventory *unstructured.Unstructured) (*delivery, error) {
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
			action: "read the annotation " + AnnotationDelivery + " of " + idOf(inventory).String(), reason: err.Error(), err: err,
			hint: "without the annotation hooks run as for an upgrade",
		}
	}
	return d, nil
}

// nextDelivery is the delivery of a version after another delivery; for the same version the delivery continues. hadInventory reports
// whether an inventory existed.
func nextDelivery(previous *delivery, version string, hadInventory bool) *delivery {
	removal := previous.isRemoval()
	if previous != nil && previous.Version == version && !removal {
		return previous
	}
	d := &delivery{Versions: []string{version}, Version: version, Event: install, Number: previous.nextNumber()}
	if removal {
		return d
	}
	switch {
	case previous == nil && hadInventory:
		d.Event, d.Installed = upgrade, true
		return d
	case previous == nil:
		return d
	}
	d.Versions, d.Installed = slices.Clone(previous.Versions), previous.Installed
	previousIndex, index := slices.Index(d.Versions, previous.Version), slices.Index(d.Versions, version)
	switch {
	case !previous.Installed:
	case index >= 0 && index < previousIndex:
		d.Event = rollback
	default:
		d.Event = upgrade
	}
	if index < 0 {
		d.Versions = append(d.Versions, version)
		d.Versions = d.Versions[max(0, len(d.Versions)-maxDelivered):]
	}
	return d
}

// isRemoval reports whether the delivery is the removal of the instance. An apply after it installs again what it may have removed.
func (d *delivery) isRemoval() bool { return d != nil && d.Event == deletion }

// nextNumber is the number of the delivery after this one.
func (d *delivery) nextNumber() int {
	if d == nil {
		return 1
	}
	return d.Number + 1
}

// loadDelivery finds the delivery of this apply. Without hooks, now and before, none is recorded. Otherwise it asks the server, because
// the watch may not show yet how the last delivery ended.
func (a *apply) loadDelivery(ctx context.Context) error {
	inventory, r, err := a.findInventory(ctx)
	if err != nil {
		return err
	}
	if a.version == "" || len(a.hooks) == 0 && (inventory == nil || inventory.GetAnnotations()[AnnotationDelivery] == "") {
		return nil
	}
	if inventory, err = a.getInventory(ctx, r); err != nil {
		return err
	}
	before, err := parseDelivery(inventory)
	if err != nil {
		return err
	}
	a.delivery = nextDelivery(before, a.version, inventory != nil)
	a.forgetFailure()
	return nil
}

// setDelivery writes the progress of the delivery on an inventory.
func (a *apply) setDelivery(wanted, recorded *unstructured.Unstructured) error {
	text := ""
	if recorded != nil {
		text = recorded.GetAnnotations()[AnnotationDelivery]
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

// markDelivered marks the delivery as ended; a later write of the inventory records it.
func (a *apply) markDelivered() {
	if a.delivery != nil {
		a.delivery.Ended, a.delivery.Installed = true, true
		a.delivery.Done, a.delivery.Failed, a.delivery.FailedAttempt = nil, nil, ""
	}
}
