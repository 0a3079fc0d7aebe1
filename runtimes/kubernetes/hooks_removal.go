package kubernetes

import (
	"context"
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// Deletion hooks run before the first object of an instance is removed, and after the last one. The inventory records their progress in
// the same way as that of a delivery. So none runs without an inventory: nothing is there, or everything was removed before.

// The moments of deletion hooks.
const (
	momentBeforeRemoval = phasePre + string(deletion)
	momentAfterRemoval  = phasePost + string(deletion)
)

// deletionHooks are the deletion hooks of a payload. Its other objects are not decoded: a removal does not depend on them, and they may be
// encrypted.
func (r *Runtime) deletionHooks(ctx context.Context, in runtimes.Request) ([]declared, error) {
	if in.Payload.Kubernetes == nil {
		return nil, nil
	}
	payload, only := *in.Payload, *in.Payload.Kubernetes
	only.Objects = nil
	for _, raw := range in.Payload.Kubernetes.Objects {
		var o struct {
			metav1.PartialObjectMetadata
			Sops any `json:"sops"`
		}
		if json.Unmarshal(raw, &o) != nil {
			continue
		}
		if !runsAt(&o, momentBeforeRemoval) && !runsAt(&o, momentAfterRemoval) {
			continue
		}
		if o.Sops != nil {
			return nil, runtimes.Permanent(&problem{action: "run the hook " + o.Kind + " " + o.Name, reason: "it is encrypted, and a removal decrypts nothing"})
		}
		only.Objects = append(only.Objects, raw)
	}
	payload.Kubernetes, in.Payload = &only, &payload
	return r.declare(ctx, in)
}

// loadDeletionHooks finds the deletion hooks, and how far an earlier attempt at the removal came with them.
func (a *apply) loadDeletionHooks(ctx context.Context, in runtimes.Request, at resource) error {
	hooks, err := a.deletionHooks(ctx, in)
	if err != nil || len(hooks) == 0 {
		return err
	}
	inventory, err := a.getInventory(ctx, at) // the watch may not show yet how the last attempt ended
	if err != nil || inventory == nil {
		return err
	}
	before, err := parseDelivery(inventory)
	if err != nil {
		return err
	}
	a.hooks, a.allow, a.version = hooks, in.Allow, in.FullVersion
	a.attempt, a.attemptID = 1, in.AttemptID // each attempt at a removal runs a failed hook again
	a.delivery = before
	if !before.isRemoval() || before.Version != in.FullVersion {
		a.delivery = &delivery{Version: in.FullVersion, Event: deletion, Number: before.nextNumber()}
	}
	return nil
}

// runsAfterRemoval reports whether a live object is a hook that runs once everything else is removed.
func (a *apply) runsAfterRemoval(o *unstructured.Unstructured) bool {
	return a.delivery != nil && !a.delivery.Ended && strings.HasPrefix(o.GetAnnotations()[AnnotationHookRun], momentAfterRemoval+" ")
}

// runHooksAfterRemoval runs the hooks after the removal, and then removes them too: nothing would find them later.
func (a *apply) runHooksAfterRemoval(ctx context.Context) error {
	if len(a.delivery.due(a.hooks, phasePost)) == 0 {
		return nil
	}
	if err := a.runHooks(ctx, phasePost); err != nil {
		return err
	}
	a.delivery.Ended = true
	targets, _, err := a.listForRemoval(ctx, a.extentOf())
	if err != nil {
		return err
	}
	return a.removeWave(ctx, targets)
}

// deletionHookChanges are the deletion hooks in the form of a plan, before and after the removal.
func (a *apply) deletionHookChanges(ctx context.Context) (before, after []runtimes.Change) {
	for _, t := range a.tryHooks(ctx, nil) {
		if strings.HasPrefix(t.hook, phasePre) {
			before = append(before, t.hookChange())
		} else {
			after = append(after, t.hookChange())
		}
	}
	return before, after
}
