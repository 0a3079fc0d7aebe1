package kubernetes

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// The inventory of an instance records the target of its last apply (F2). An apply writes its own fence there before its first
// object, and only over the inventory that it has compared with. So the server accepts one of two concurrent applies, even if they
// claimed the instance in different stores, and the other reads again. Before each object the apply also checks the watched
// inventory, which costs no request.

// parseFence reads the fence of an inventory. It is nil if there is none: the inventory is then older than any fence.
func parseFence(inventory *unstructured.Unstructured) (*runtimes.Fence, error) {
	text, ok := inventory.GetAnnotations()[AnnotationFence]
	if !ok {
		return nil, nil
	}
	fence := &runtimes.Fence{}
	if err := json.Unmarshal([]byte(text), fence); err != nil {
		return nil, &problem{
			action: "read the annotation " + AnnotationFence + " of " + idOf(inventory).String(), reason: err.Error(), err: err,
			hint: "without the annotation the next apply is accepted",
		}
	}
	return fence, nil
}

// setFence writes the fence of an apply on the inventory that it records. An apply without a fence keeps the fence of the live
// inventory.
func (a *apply) setFence(wanted, recorded *unstructured.Unstructured) error {
	text := ""
	switch {
	case a.fence != nil:
		encoded, err := json.Marshal(a.fence)
		if err != nil {
			return runtimes.Permanent(err)
		}
		text = string(encoded)
	case recorded != nil:
		text = recorded.GetAnnotations()[AnnotationFence]
	}
	annotations := wanted.GetAnnotations()
	if text != "" {
		annotations[AnnotationFence] = text
	}
	if recorded != nil {
		if taken := a.others.takenFrom(recorded, a.others.fenceOf(recorded)); taken != "" {
			annotations[AnnotationTakenFrom] = taken
		}
	}
	wanted.SetAnnotations(annotations)
	return nil
}

// checkFences refuses a write if an inventory has a later fence.
func (a *apply) checkFences(inventories ...*unstructured.Unstructured) error {
	for _, inventory := range inventories {
		if err := a.refuseOtherInventory(inventory); err != nil {
			return err
		}
		if inventory == nil || a.fence == nil {
			continue
		}
		recorded, err := parseFence(inventory)
		if err != nil {
			return err
		}
		if recorded != nil && recorded.Rejects(*a.fence) {
			return &runtimes.FencedError{By: *recorded, Refused: *a.fence}
		}
	}
	return nil
}

// recheckFence checks the watched inventories for a later fence since this apply was admitted. If they may not be watched, this is not
// known.
func (a *apply) recheckFence(ctx context.Context) error {
	if a.fence == nil {
		return nil
	}
	r, err := a.cluster.resource(ctx, kindInventory)
	if err != nil {
		return explain(ctx, "read the inventory "+inventoryName(a.owner), err)
	}
	v, err := a.cluster.view(ctx, r, a.namespace)
	if err != nil {
		return ctx.Err()
	}
	return a.checkFences(slices.DeleteFunc(v.byOwner(a.owner), func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() != a.namespace && (!isOriginalInventory(o, a.owner) || a.others.fenceOf(o) != nil) || !isInventory(o, a.owner)
	})...)
}

// logTakeover reports the installation that had an instance before.
func (a *apply) logTakeover(inventory *unstructured.Unstructured) {
	if previous := a.others.fenceOf(inventory); previous != nil {
		a.log.add("took over from the installation %s, which had %s here", previous.Installation, previous.FullVersion)
	}
}
