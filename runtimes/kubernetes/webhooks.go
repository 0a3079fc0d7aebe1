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
	webhookSilent = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	webhookDenied = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
)

// webhookOf is the name of the webhook that refused an object, and whether it answered.
func webhookOf(err error) (name string, answered bool) {
	if err == nil {
		return "", false
	}
	if found := webhookSilent.FindStringSubmatch(err.Error()); found != nil {
		return found[1], false
	}
	if found := webhookDenied.FindStringSubmatch(err.Error()); found != nil {
		return found[1], true
	}
	return "", false
}

// isWebhooks reports whether an object configures webhooks.
func isWebhooks(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(webhookKinds, func(k schema.GroupVersionKind) bool { return k.GroupKind() == o.GroupVersionKind().GroupKind() })
}

// configures reports whether an object configures a webhook of that name.
func configures(o *unstructured.Unstructured, webhook string) bool {
	all, _ := o.Object["webhooks"].([]any)
	return isWebhooks(o) && slices.ContainsFunc(all, func(each any) bool {
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
	return declares || slices.Contains(a.unhooked, name) || a.pruned(ctx, name) != nil
}

// pruned is our own configuration of a webhook that is no longer declared and will be removed; nil if there is none.
func (a *apply) pruned(ctx context.Context, webhook string) *leftover {
	if !a.prune || slices.ContainsFunc(a.objects, func(d declared) bool { return configures(d.Unstructured, webhook) }) {
		return nil
	}
	inventory, err := a.cluster.resource(ctx, kindParent)
	if err != nil {
		return nil
	}
	parent, err := a.liveParent(ctx, inventory) // the watch may not show yet that it lists the kind
	if err != nil || parent == nil {
		return nil
	}
	for _, kind := range webhookKinds {
		if !slices.Contains(listed(parent, annotationKinds), kind.GroupKind().String()) {
			continue
		}
		found, _ := a.undeclared(ctx, kind.GroupKind(), []string{a.home}, map[id]bool{}) // an unreadable object is not ours to remove
		for _, l := range found {
			if configures(l.Unstructured, webhook) {
				return &l
			}
		}
	}
	return nil
}

// guarded makes an object wait if a webhook of the instance refuses it.
func (a *apply) guarded(ctx context.Context, t *trial) *trial {
	name, answered := webhookOf(t.err)
	if t.outcome == refused && a.ownWebhook(ctx, name) {
		t.outcome, t.guard, t.denied, t.refusal, t.err = guarded, name, answered, t.err, nil
	}
	return t
}

// unmendable refuses the objects that wait for a webhook that this apply cannot repair: no object that changes before them could. A
// webhook that answers is repaired only by its own components.
func (a *apply) unmendable(ctx context.Context, trials []*trial) {
	for _, t := range trials {
		if t.outcome != guarded || a.opener(t.guard) != nil || a.pruned(ctx, t.guard) != nil {
			continue
		}
		mends := func(other *trial) bool {
			return other.wave <= t.wave && other.differs() && (!t.denied || isWorkload(other.Unstructured) || isWebhooks(other.Unstructured))
		}
		if !slices.ContainsFunc(trials, mends) {
			t.refuse(guardedFor(t))
		}
	}
}

// differs reports whether an apply changes, or changed, more of an object than its version annotation.
func (t *trial) differs() bool {
	switch t.outcome {
	case guarded, unchanged, refused:
		return false
	case changed:
		return slices.ContainsFunc(t.fields, func(f runtimes.FieldChange) bool { return f.Path != versionField })
	}
	return true
}

// versionField is the path of the field that changes with each version.
const versionField = "metadata.annotations[" + AnnotationVersion + "]"

// guardedFor is the error of an object that a webhook of its own instance still refuses.
func guardedFor(t *trial) error {
	p := &problem{
		doing: "apply " + idOf(t.Unstructured).String(), why: plainly(t.refusal), err: t.refusal,
		hint: "the webhook " + t.guard + " is part of this service: repair it in the same wave or an earlier one (" + AnnotationWave + "), or set " +
			AnnotationRecreate + `: "true" on its configuration to have it removed while the refused objects are applied`,
	}
	if t.denied {
		return runtimes.Permanent(p)
	}
	return p
}

// opener is the declared configuration of a webhook that may be deleted temporarily; nil if there is none.
func (a *apply) opener(webhook string) *declared {
	for i, d := range a.objects {
		if configures(d.Unstructured, webhook) && recreates(d.Unstructured) {
			return &a.objects[i]
		}
	}
	return nil
}

// mendedWithin is how long a webhook may take to answer after all objects that could repair it are ready.
const mendedWithin = 20 * time.Second

// afterMending applies the objects of a wave that waited for a webhook of the instance, after the rest of the wave is ready.
func (a *apply) afterMending(ctx context.Context, rest, waiting []*trial) error {
	if len(waiting) == 0 {
		return nil
	}
	changes := slices.ContainsFunc(rest, (*trial).differs)
	if changes {
		if err := a.ready(ctx, rest); err != nil {
			return err
		}
	}
	patience := time.Duration(0)
	if changes {
		patience = mendedWithin
	}
	if a.letIn(ctx, waiting, patience) {
		return a.carryOutGuarded(ctx, waiting)
	}
	opened, away, err := a.open(ctx, waiting)
	if err == nil && away && a.letIn(ctx, waiting, mendedWithin) {
		err = a.carryOutGuarded(ctx, waiting)
	}
	if err == nil {
		a.unmended(waiting)
		err = problems(waiting)
	}
	if closing := a.close(ctx, opened); closing != nil && err == nil {
		err = closing
	}
	return err
}

// unmended refuses the objects that still wait.
func (a *apply) unmended(waiting []*trial) {
	for _, t := range waiting {
		if t.outcome == guarded {
			t.refuse(guardedFor(t))
		}
	}
}

// letIn tries the waiting objects again, until no webhook of the instance refuses them, or patience ends.
func (a *apply) letIn(ctx context.Context, waiting []*trial, patience time.Duration) bool {
	again := time.NewTicker(250 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(patience); ; {
		in := true
		for _, t := range waiting {
			if t.outcome == guarded {
				*t = *a.try(ctx, t.origin)
				in = in && t.outcome != guarded
			}
		}
		if in || time.Now().After(until) {
			return in
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return false
		}
	}
}

// carryOutGuarded applies the objects that waited. The inventory may have waited with them.
func (a *apply) carryOutGuarded(ctx context.Context, waiting []*trial) error {
	if err := problems(waiting); err != nil {
		return err
	}
	if a.noted == nil {
		if err := a.remember(ctx); err != nil {
			return err
		}
	}
	for _, t := range waiting {
		if err := a.carryOut(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// open deletes the webhook configurations that may be deleted temporarily, and returns those to restore.
func (a *apply) open(ctx context.Context, waiting []*trial) (opened []declared, away bool, err error) {
	for _, t := range waiting {
		if t.outcome == guarded && slices.Contains(a.unhooked, t.guard) {
			continue
		}
		if l := a.pruned(ctx, t.guard); t.outcome == guarded && l != nil {
			if _, err := a.pruneAll(ctx, []leftover{*l}); err != nil {
				return opened, away, err
			}
			a.unhooked, away = append(a.unhooked, t.guard), true
		}
		d := a.opener(t.guard)
		if t.outcome != guarded || d == nil || slices.ContainsFunc(opened, func(o declared) bool { return idOf(o.Unstructured) == idOf(d.Unstructured) }) {
			continue
		}
		if err := a.takeAway(ctx, *d, t.guard); err != nil {
			return opened, away, err
		}
		opened, away = append(opened, *d), true
	}
	return opened, away, nil
}

// takeAway deletes the configuration of a webhook that blocks its own repair.
func (a *apply) takeAway(ctx context.Context, d declared, webhook string) error {
	doing := "temporarily remove " + idOf(d.Unstructured).String()
	config := &trial{declared: d}
	var err error
	if config.at, err = a.cluster.resource(ctx, d.GroupVersionKind()); err != nil {
		return explain(ctx, doing, err)
	}
	if config.live, err = a.read(ctx, config); err != nil || config.live == nil {
		return err
	}
	if err := a.unfenced(ctx); err != nil {
		return err
	}
	uid := config.live.GetUID()
	err = a.clients.at(config.at, d.GetNamespace()).Delete(ctx, d.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return explain(ctx, doing, err)
	}
	a.account.say("temporarily removed %s, whose webhook %s refuses its own repair", called(d.Unstructured), webhook)
	return nil
}

// close restores the deleted configurations.
func (a *apply) close(ctx context.Context, opened []declared) error {
	for _, d := range opened {
		t := a.try(ctx, d)
		if t.err == nil {
			t.err = a.carryOut(ctx, t)
		}
		if t.err != nil {
			return t.err
		}
	}
	return nil
}
