package kubernetes

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// The inventory of an instance says for which target it was last applied (F2). An apply writes its own place there before its
// first object, and only over the inventory that it has compared itself with: of two at once, whatever stores they claimed it
// in, the server lets one through, and the other reads again. Before each object it looks once more at what is
// watched, which asks the server nothing.

// fenceIn reads the fence of an inventory; nil when it has none: it is older than anything then.
func fenceIn(inventory *unstructured.Unstructured) (*runtimes.Fence, error) {
	text, ok := inventory.GetAnnotations()[AnnotationFence]
	if !ok {
		return nil, nil
	}
	fence := &runtimes.Fence{}
	if err := json.Unmarshal([]byte(text), fence); err != nil {
		return nil, &problem{
			doing: "read the annotation " + AnnotationFence + " of " + idOf(inventory).String(), why: err.Error(), err: err,
			hint: "without the annotation whatever comes next is let through",
		}
	}
	return fence, nil
}

// mark writes the place of an apply on the inventory that it notes, or, where it has none, what stands there.
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

// admit refuses what is to be written where an inventory says that something later was.
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

// unfenced looks at what is watched for something later that came since this apply was admitted. Where nothing may be
// watched nobody knows.
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

// tellTakeover tells of the installation that had an instance until now.
func (a *apply) tellTakeover(inventory *unstructured.Unstructured) {
	if stands := a.near.anothers(inventory); stands != nil {
		a.account.say("took over from the installation %s, which had %s here", stands.Installation, stands.FullVersion)
	}
}
