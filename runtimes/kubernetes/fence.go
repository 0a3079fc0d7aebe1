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

// fenceIn reads the fence of an inventory. It is nil if there is none: the inventory is then older than any fence.
func fenceIn(inventory *unstructured.Unstructured) (*runtimes.Fence, error) {
	text, ok := inventory.GetAnnotations()[AnnotationFence]
	if !ok {
		return nil, nil
	}
	fence := &runtimes.Fence{}
	if err := json.Unmarshal([]byte(text), fence); err != nil {
		return nil, &problem{
			doing: "read the annotation " + AnnotationFence + " of " + idOf(inventory).String(), why: err.Error(), err: err,
			hint: "without the annotation the next apply is accepted",
		}
	}
	return fence, nil
}

// mark writes the fence of an apply on the inventory that it records. An apply without a fence keeps the fence of the live
// inventory.
func (a *apply) mark(wanted, stands *unstructured.Unstructured) error {
	text := ""
	switch {
	case a.fence != nil:
		encoded, err := json.Marshal(a.fence)
		if err != nil {
			return runtimes.Permanent(err)
		}
		text = string(encoded)
	case stands != nil:
		text = stands.GetAnnotations()[AnnotationFence]
	}
	annotations := wanted.GetAnnotations()
	if text != "" {
		annotations[AnnotationFence] = text
	}
	if stands != nil {
		if taken := a.near.taken(stands, a.near.anothers(stands)); taken != "" {
			annotations[AnnotationTaken] = taken
		}
	}
	wanted.SetAnnotations(annotations)
	return nil
}

// admit refuses a write if an inventory has a later fence.
func (a *apply) admit(inventories ...*unstructured.Unstructured) error {
	for _, inventory := range inventories {
		if err := a.refuseAnothers(inventory); err != nil {
			return err
		}
		if inventory == nil || a.fence == nil {
			continue
		}
		stands, err := fenceIn(inventory)
		if err != nil {
			return err
		}
		if stands != nil && stands.Stops(*a.fence) {
			return &runtimes.FencedError{By: *stands, Refused: *a.fence}
		}
	}
	return nil
}

// unfenced checks the watched inventories for a later fence since this apply was admitted. If they may not be watched, this is not
// known.
func (a *apply) unfenced(ctx context.Context) error {
	if a.fence == nil {
		return nil
	}
	r, err := a.cluster.resource(ctx, kindParent)
	if err != nil {
		return explain(ctx, "read the inventory "+parentName(a.owner), err)
	}
	v, err := a.cluster.view(ctx, r, a.home)
	if err != nil {
		return ctx.Err()
	}
	return a.admit(slices.DeleteFunc(v.of(a.owner), func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() != a.home && (!isSet(o, a.owner) || a.near.anothers(o) != nil) || !isInventory(o, a.owner)
	})...)
}

// tellTakeover reports the installation that had an instance before.
func (a *apply) tellTakeover(inventory *unstructured.Unstructured) {
	if stands := a.near.anothers(inventory); stands != nil {
		a.account.say("took over from the installation %s, which had %s here", stands.Installation, stands.FullVersion)
	}
}
