package kubernetes

import (
	"context"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// A broken webhook that is part of the instance refuses the dry run of the objects that it validates, and so also the version that
// repairs it. Therefore the refused objects wait: the rest of their wave is applied first, and they follow once the webhook admits
// them. If the webhook blocks its own repair, its configuration may allow its temporary deletion (AnnotationRecreate).

// webhookKinds are the kinds that configure webhooks.
var webhookKinds = []schema.GroupVersionKind{
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
}

var (
	webhookUnreachableRE = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	webhookDeniedRE      = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
)

// webhookOf is the name of the webhook that refused an object, and whether it answered.
func webhookOf(err error) (name string, answered bool) {
	if err == nil {
		return "", false
	}
	if found := webhookUnreachableRE.FindStringSubmatch(err.Error()); found != nil {
		return found[1], false
	}
	if found := webhookDeniedRE.FindStringSubmatch(err.Error()); found != nil {
		return found[1], true
	}
	return "", false
}

// isWebhookConfig reports whether an object configures webhooks.
func isWebhookConfig(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(webhookKinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == o.GroupVersionKind().GroupKind() })
}

// configures reports whether an object configures a webhook of that name.
func configures(o *unstructured.Unstructured, webhook string) bool {
	all, _ := o.Object["webhooks"].([]any)
	return isWebhookConfig(o) && slices.ContainsFunc(all, func(each any) bool {
		hook, _ := each.(map[string]any)
		return hook["name"] == webhook
	})
}

// ownWebhook reports whether a webhook is part of the instance, so that the apply may handle it: its configuration is declared, will
// be pruned, or was just pruned.
func (a *apply) ownWebhook(ctx context.Context, name string) bool {
	if name == "" {
		return false
	}
	declares := slices.ContainsFunc(a.objects, func(d declared) bool { return configures(d.Unstructured, name) })
	return declares || slices.Contains(a.prunedWebhooks, name) || a.prunedWebhookConfig(ctx, name) != nil
}

// prunedWebhookConfig is our own configuration of a webhook that is no longer declared and will be removed; nil if there is none.
func (a *apply) prunedWebhookConfig(ctx context.Context, webhook string) *leftover {
	if !a.prune || slices.ContainsFunc(a.objects, func(d declared) bool { return configures(d.Unstructured, webhook) }) {
		return nil
	}
	inventory, err := a.cluster.resource(ctx, kindInventory)
	if err != nil {
		return nil
	}
	parent, err := a.getInventory(ctx, inventory) // the watch may not show yet that it lists the kind
	if err != nil || parent == nil {
		return nil
	}
	for _, kind := range webhookKinds {
		if !slices.Contains(annotationList(parent, annotationKinds), kind.GroupKind().String()) {
			continue
		}
		found, _ := a.undeclared(ctx, kind.GroupKind(), []string{a.namespace}, map[id]bool{}) // an unreadable object is not ours to remove
		for _, l := range found {
			if configures(l.Unstructured, webhook) && l.GetDeletionTimestamp() == nil {
				return &l
			}
		}
	}
	return nil
}

// markWebhookBlocked makes an object wait if a webhook of the instance refuses it.
func (a *apply) markWebhookBlocked(ctx context.Context, t *trial) *trial {
	name, answered := webhookOf(t.err)
	if t.outcome == refused && a.ownWebhook(ctx, name) {
		t.outcome, t.webhook, t.webhookAnswered, t.refusal, t.err = webhookBlocked, name, answered, t.err, nil
	}
	return t
}

// refuseUnrepairable refuses the objects that wait for a webhook that this apply cannot repair: no object that changes before them could. A
// webhook that answers is repaired only by its own components.
func (a *apply) refuseUnrepairable(ctx context.Context, trials []*trial) {
	for _, t := range trials {
		if t.outcome != webhookBlocked || a.removableWebhookConfig(t.webhook) != nil || a.prunedWebhookConfig(ctx, t.webhook) != nil {
			continue
		}
		repairs := func(other *trial) bool {
			return other.wave <= t.wave && other.differs() && (!t.webhookAnswered || isWorkload(other.Unstructured) || isWebhookConfig(other.Unstructured))
		}
		if !slices.ContainsFunc(trials, repairs) {
			t.refuse(webhookBlockedError(t))
		}
	}
}

// differs reports whether an apply changes, or changed, more of an object than its version annotation.
func (t *trial) differs() bool {
	switch t.outcome {
	case webhookBlocked, unchanged, refused:
		return false
	case changed:
		return slices.ContainsFunc(t.fields, func(f runtimes.FieldChange) bool { return f.Path != versionField })
	}
	return true
}

// versionField is the path of the field that changes with each version.
const versionField = "metadata.annotations[" + AnnotationVersion + "]"

// webhookBlockedError is the error of an object that a webhook of its own instance still refuses.
func webhookBlockedError(t *trial) error {
	p := &problem{
		action: "apply " + idOf(t.Unstructured).String(), reason: shortMessage(t.refusal), err: t.refusal,
		hint: "the webhook " + t.webhook + " is part of this service: repair it in the same wave or an earlier one (" + AnnotationWave + "), or set " +
			AnnotationRecreate + `: "true" on its configuration to have it removed while the refused objects are applied`,
	}
	if t.webhookAnswered {
		return runtimes.Permanent(p)
	}
	return p
}

// removableWebhookConfig is the declared configuration of a webhook that may be deleted temporarily; nil if there is none.
func (a *apply) removableWebhookConfig(webhook string) *declared {
	for i, d := range a.objects {
		if configures(d.Unstructured, webhook) && mayRecreate(d.Unstructured) {
			return &a.objects[i]
		}
	}
	return nil
}

// webhookRecoveryTimeout is how long a webhook may take to answer after all objects that could repair it are ready.
const webhookRecoveryTimeout = 20 * time.Second

// applyBlocked applies the objects of a wave that waited for a webhook of the instance, after the rest of the wave is ready.
func (a *apply) applyBlocked(ctx context.Context, rest, waiting []*trial) error {
	if len(waiting) == 0 {
		return nil
	}
	changes := slices.ContainsFunc(rest, (*trial).differs)
	if changes {
		if err := a.waitReady(ctx, rest); err != nil {
			return err
		}
	}
	timeout := time.Duration(0)
	if changes {
		timeout = webhookRecoveryTimeout
	}
	if a.retryBlocked(ctx, waiting, timeout) {
		return a.executeBlocked(ctx, waiting)
	}
	removed, anyRemoved, err := a.removeWebhookConfigs(ctx, waiting)
	if err == nil && anyRemoved && a.retryBlocked(ctx, waiting, webhookRecoveryTimeout) {
		err = a.executeBlocked(ctx, waiting)
	}
	if err == nil {
		a.refuseStillBlocked(waiting)
		err = joinErrors(waiting)
	}
	if restoreErr := a.restoreWebhookConfigs(ctx, removed); restoreErr != nil && err == nil {
		err = restoreErr
	}
	return err
}

// refuseStillBlocked refuses the objects that still wait.
func (a *apply) refuseStillBlocked(waiting []*trial) {
	for _, t := range waiting {
		if t.outcome == webhookBlocked {
			t.refuse(webhookBlockedError(t))
		}
	}
}

// retryBlocked tries the waiting objects again, until no webhook of the instance refuses them, or the timeout has passed.
func (a *apply) retryBlocked(ctx context.Context, waiting []*trial, timeout time.Duration) bool {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(timeout); ; {
		admitted := true
		for _, t := range waiting {
			if t.outcome == webhookBlocked {
				*t = *a.try(ctx, t.origin)
				admitted = admitted && t.outcome != webhookBlocked
			}
		}
		if admitted || time.Now().After(deadline) {
			return admitted
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// executeBlocked applies the objects that waited. The inventory may have waited with them.
func (a *apply) executeBlocked(ctx context.Context, waiting []*trial) error {
	if err := joinErrors(waiting); err != nil {
		return err
	}
	if a.inventory == nil {
		if err := a.recordInventory(ctx); err != nil {
			return err
		}
	}
	for _, t := range waiting {
		if err := a.execute(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// removeWebhookConfigs deletes the webhook configurations that may be deleted temporarily, and returns those to restore.
func (a *apply) removeWebhookConfigs(ctx context.Context, waiting []*trial) (removed []declared, anyRemoved bool, err error) {
	for _, t := range waiting {
		if t.outcome == webhookBlocked && slices.Contains(a.prunedWebhooks, t.webhook) {
			continue
		}
		if l := a.prunedWebhookConfig(ctx, t.webhook); t.outcome == webhookBlocked && l != nil {
			if _, err := a.pruneAll(ctx, []leftover{*l}); err != nil {
				return removed, anyRemoved, err
			}
			a.prunedWebhooks, anyRemoved = append(a.prunedWebhooks, t.webhook), true
		}
		d := a.removableWebhookConfig(t.webhook)
		if t.outcome != webhookBlocked || d == nil || slices.ContainsFunc(removed, func(o declared) bool { return idOf(o.Unstructured) == idOf(d.Unstructured) }) {
			continue
		}
		if err := a.removeWebhookConfig(ctx, *d, t.webhook); err != nil {
			return removed, anyRemoved, err
		}
		removed, anyRemoved = append(removed, *d), true
	}
	return removed, anyRemoved, nil
}

// removeWebhookConfig deletes the configuration of a webhook that blocks its own repair.
func (a *apply) removeWebhookConfig(ctx context.Context, d declared, webhook string) error {
	action := "temporarily remove " + idOf(d.Unstructured).String()
	config := &trial{declared: d}
	var err error
	if config.resource, err = a.cluster.resource(ctx, d.GroupVersionKind()); err != nil {
		return explain(ctx, action, err)
	}
	if config.live, err = a.read(ctx, config); err != nil || config.live == nil {
		return err
	}
	if err := a.recheckFence(ctx); err != nil {
		return err
	}
	uid := config.live.GetUID()
	err = a.clients.resourceClient(config.resource, d.GetNamespace()).Delete(ctx, d.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return explain(ctx, action, err)
	}
	a.log.add("temporarily removed %s, whose webhook %s refuses its own repair", displayName(d.Unstructured), webhook)
	return nil
}

// restoreWebhookConfigs restores the deleted configurations.
func (a *apply) restoreWebhookConfigs(ctx context.Context, removed []declared) error {
	for _, d := range removed {
		t := a.try(ctx, d)
		if t.err == nil {
			t.err = a.execute(ctx, t)
		}
		if t.err != nil {
			return t.err
		}
	}
	return nil
}
