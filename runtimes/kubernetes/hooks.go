package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Hooks are objects that run once for each delivery of a version, before its other objects or after them, as in Helm. Install hooks
// run in the first delivery, upgrade hooks in later ones, and rollback hooks when an earlier version is deployed again after another
// one. Deletion hooks run around the removal of the instance (hooks_removal.go), failure hooks after an apply that failed
// (hooks_failure.go). They run one after the other by weight, each until it ends. Their later removal (by their policy, or by hand) is no
// drift.

// The phases of a delivery.
const (
	phasePre     = "pre-"
	phasePost    = "post-"
	phaseFailure = "on-failure"
)

// The policies that delete a hook.
const (
	deleteBefore    = "before-hook-creation"
	deleteSucceeded = "hook-succeeded"
	deleteFailed    = "hook-failed"
)

// timedOutDeletion is the time to delete a hook after the timeout of its apply.
const timedOutDeletion = 10 * time.Second

// isHook reports whether an object is a hook.
func isHook(o *unstructured.Unstructured) bool { return o.GetAnnotations()[AnnotationHook] != "" }

// splitHooks separates the permanent objects from the hooks.
func splitHooks(all []declared) (objects, hooks []declared) {
	for _, d := range all {
		if isHook(d.Unstructured) {
			hooks = append(hooks, d)
		} else {
			objects = append(objects, d)
		}
	}
	return objects, hooks
}

// allObjects are the objects of the payload, including hooks.
func (a *apply) allObjects() []declared { return append(slices.Clone(a.objects), a.hooks...) }

// runsAt reports whether a hook runs at a moment: pre-install.
func runsAt(o metav1.Object, moment string) bool {
	return slices.Contains(annotationList(o, AnnotationHook), moment)
}

// policyOf are the deletion policies of a hook. The default is deletion before it is created again.
func policyOf(o *unstructured.Unstructured) []string {
	if policy := annotationList(o, AnnotationHookDelete); len(policy) > 0 {
		return policy
	}
	return []string{deleteBefore}
}

func weightOf(o *unstructured.Unstructured) int {
	weight, _ := strconv.Atoi(o.GetAnnotations()[AnnotationHookWeight]) // the default is 0
	return weight
}

// moment is a phase of the delivery as hooks name it: pre-install.
func (d *delivery) moment(phase string) string {
	if phase == phaseFailure {
		return phase
	}
	return phase + string(d.Event)
}

// due are the hooks of a phase of the delivery, in order.
func (d *delivery) due(hooks []declared, phase string) (due []declared) {
	if d == nil || d.Ended {
		return nil
	}
	for _, h := range hooks {
		if runsAt(h.Unstructured, d.moment(phase)) {
			due = append(due, h)
		}
	}
	slices.SortStableFunc(due, func(x, y declared) int {
		return cmp.Or(cmp.Compare(weightOf(x.Unstructured), weightOf(y.Unstructured)), compareOrder(x, y))
	})
	return due
}

// keyOf names a hook in a phase: "pre-upgrade Job shop/migrate".
func (d *delivery) keyOf(h *unstructured.Unstructured, phase string) string {
	return d.moment(phase) + " " + idOf(h).String()
}

// pendingHooks are the hooks of the delivery that have not succeeded.
func (d *delivery) pendingHooks(hooks []declared) (remaining []hookRun) {
	for _, phase := range []string{phasePre, phasePost} {
		for _, h := range d.due(hooks, phase) {
			if key := d.keyOf(h.Unstructured, phase); !slices.Contains(d.Done, key) {
				remaining = append(remaining, hookRun{declared: h, key: key})
			}
		}
	}
	return remaining
}

// hookRun is a hook in a phase.
type hookRun struct {
	declared
	key string
	// attemptID is the attempt that the hook is created for. With rerun, one of an earlier attempt does not count.
	attemptID string
	rerun     bool
}

// stamp is the annotation of a hook that identifies its run.
func (d *delivery) stamp(key, attemptID string) string {
	moment, _, _ := strings.Cut(key, " ")
	return strings.TrimSpace(fmt.Sprintf("%s %s #%d %s", moment, d.Version, d.Number, attemptID))
}

// createdFor reports whether a hook was created for a moment of this delivery, in any attempt.
func (d *delivery) createdFor(live *unstructured.Unstructured, key string) bool {
	stamp := d.stamp(key, "")
	actual := live.GetAnnotations()[AnnotationHookRun]
	return actual == stamp || strings.HasPrefix(actual, stamp+" ")
}

// runHooks runs the hooks of a phase that have not ended yet.
func (a *apply) runHooks(ctx context.Context, phase string) error {
	due := a.delivery.due(a.hooks, phase)
	if len(due) == 0 {
		return nil
	}
	if a.inventory == nil {
		if err := a.recordInventory(ctx); err != nil {
			return err
		}
	}
	for i, h := range due {
		run := hookRun{declared: h, key: a.delivery.keyOf(h.Unstructured, phase)}
		if slices.Contains(a.delivery.Done, run.key) {
			continue
		}
		if err := a.runHook(ctx, run); err != nil {
			if runtimes.IsPermanent(err) { // the hooks before it are finished, as in Helm
				err = errors.Join(err, a.deleteHooks(ctx, due[:i], deleteSucceeded))
			}
			return err
		}
	}
	return a.deleteHooks(ctx, due, deleteSucceeded)
}

// runHook runs one hook until it ends, and records the result.
func (a *apply) runHook(ctx context.Context, run hookRun) error {
	failed, failedBefore := a.delivery.Failed[run.key]
	if failedBefore && (a.attempt != 1 || failed.AttemptID == a.attemptID) {
		return runtimes.Permanent(a.delivery.hookError(run.key, failed.Reason))
	}
	run.rerun, run.attemptID = failedBefore, a.attemptID
	if strings.HasPrefix(run.key, phaseFailure) {
		run.rerun, run.attemptID = true, a.delivery.FailedAttempt
	}
	t, err := a.startHook(ctx, run)
	if err != nil {
		return err
	}
	err = a.waitReady(ctx, []*trial{t})
	ended := new(problem)
	if errors.As(err, &ended) && ended.objectFailed {
		if a.delivery.Failed == nil {
			a.delivery.Failed = map[string]hookFailure{}
		}
		a.delivery.Failed[run.key] = hookFailure{a.attemptID, ended.reason}
		err = a.delivery.hookError(run.key, ended.reason)
		return runtimes.Permanent(errors.Join(err, a.recordDelivery(ctx), a.deleteHooks(ctx, []declared{run.declared}, deleteFailed)))
	}
	if err != nil {
		return a.deleteTimedOut(ctx, run, err)
	}
	delete(a.delivery.Failed, run.key)
	a.delivery.Done = append(a.delivery.Done, run.key)
	a.log.add("ran the hook %s", run.key)
	return a.recordDelivery(ctx)
}

// deleteTimedOut deletes a hook whose policy is hook-failed after the last attempt has timed out: the release fails. Before that, the next
// attempt continues to wait for it.
func (a *apply) deleteTimedOut(ctx context.Context, run hookRun, cause error) error {
	if !a.lastAttempt || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timedOutDeletion)
	defer cancel()
	if err := a.deleteHooks(ctx, []declared{run.declared}, deleteFailed); err != nil {
		return fmt.Errorf("%w\n%s", cause, err.Error())
	}
	return cause
}

func (d *delivery) hookError(key, reason string) error {
	hint := "retry runs it again"
	if d.Event == deletion {
		hint = "the next attempt at the removal runs it again"
	}
	return &problem{action: "run the hook " + key, reason: reason, hint: hint}
}

// recordDelivery records the delivery in the inventory.
func (a *apply) recordDelivery(ctx context.Context) error {
	r, err := a.cluster.resource(ctx, kindInventory)
	if err != nil {
		return explain(ctx, "read the inventory "+inventoryName(a.owner), err)
	}
	return a.writeInventory(ctx, r, a.inventory, a.recordedExtent)
}

// startHook creates a hook after it has deleted the earlier one. A hook of the same run continues: the worker that created it was
// lost.
func (a *apply) startHook(ctx context.Context, run hookRun) (*trial, error) {
	t := a.tryHook(ctx, run)
	if t.outcome == refused {
		return nil, a.refusedLate(t.err)
	}
	if t.outcome == prerequisiteMissing { // the objects before the hooks did not bring its kind or namespace
		_, err := a.cluster.resource(ctx, run.GroupVersionKind())
		return nil, explain(ctx, "run the hook "+run.key, cmp.Or(err, errors.New("its namespace does not exist yet")))
	}
	if t.live != nil {
		stamp := t.live.GetAnnotations()[AnnotationHookRun]
		if a.delivery.createdFor(t.live, run.key) && (!run.rerun || stamp == a.delivery.stamp(run.key, run.attemptID)) {
			t.applied = t.live
			return t, nil
		}
		if err := a.recheckFence(ctx); err != nil {
			return nil, err
		}
		if err := a.remove(ctx, t); err != nil {
			return nil, err
		}
		if !slices.Contains(policyOf(run.Unstructured), deleteBefore) {
			a.log.add("deleted the hook %s of an earlier delivery: it had not succeeded", displayName(t.live))
		}
	}
	if err := a.recheckFence(ctx); err != nil {
		return nil, err
	}
	t.declared, t.live = run.declared, nil // as an object that does not exist
	t.Unstructured = t.DeepCopy()
	err := merge(t.Object, map[string]string{AnnotationHookRun: a.delivery.stamp(run.key, run.attemptID)}, []string{"metadata", "annotations"})
	if err := errors.Join(err, t.encode()); err != nil {
		return nil, runtimes.Permanent(err)
	}
	if t.applied, err = a.send(ctx, t, false); err != nil {
		return nil, err
	}
	return t, a.waitWatched(ctx, t)
}

// deleteHooks deletes the hooks that have the given policy, in reverse order.
func (a *apply) deleteHooks(ctx context.Context, hooks []declared, policy string) error {
	for _, h := range slices.Backward(hooks) {
		if !slices.Contains(policyOf(h.Unstructured), policy) {
			continue
		}
		at, err := a.cluster.resource(ctx, h.GroupVersionKind())
		if err != nil {
			return explain(ctx, "delete the hook "+idOf(h.Unstructured).String(), err)
		}
		live, err := a.clients.resourceClient(at, h.GetNamespace()).Get(ctx, h.GetName(), metav1.GetOptions{})
		if err := ignoreIf(apierrors.IsNotFound, err); err != nil {
			return explain(ctx, "delete the hook "+idOf(h.Unstructured).String(), err)
		}
		if err != nil || live.GetAnnotations()[AnnotationHookRun] == "" {
			continue // it is gone, or never ran here
		}
		if err := a.recheckFence(ctx); err != nil {
			return err
		}
		deleted, err := a.delete(ctx, leftover{Unstructured: live, resource: at}, metav1.DeletePropagationBackground, false)
		if err != nil {
			return explain(ctx, "delete the hook "+idOf(h.Unstructured).String(), err)
		}
		if deleted {
			a.log.add("deleted the hook %s (%s)", displayName(h.Unstructured), policy)
		}
	}
	return nil
}

// tryHooks tries the hooks that will run, so that a refused hook stops the apply before anything changes. objects are the trials of the
// other objects: a hook may need one that is applied before it.
func (a *apply) tryHooks(ctx context.Context, objects []*trial) (trials []*trial) {
	for _, run := range a.delivery.pendingHooks(a.hooks) {
		t := a.try(ctx, run.declared)
		if t.live != nil && t.outcome != refused && !a.delivery.createdFor(t.live, run.key) && !a.mayReplaceHook(ctx, t) {
			t.refuse(runtimes.Permanent(&problem{
				action: "run the hook " + run.key, reason: "it already exists, and its policy is " + strings.Join(policyOf(t.Unstructured), ","),
				hint: "add before-hook-creation to it, or delete the object",
			}))
		}
		t.hook = run.key
		deferDependents([]*trial{t}, append(objectsBefore(t, objects), trials...))
		trials = append(trials, t)
	}
	a.hookTrials = trials
	return trials
}

// mayReplaceHook reports whether an existing object is deleted before the hook is created: by its policy, or because it is a hook that
// has not succeeded. Otherwise no later release could correct a failed one whose only policy is hook-succeeded.
func (a *apply) mayReplaceHook(ctx context.Context, t *trial) bool {
	if slices.Contains(policyOf(t.Unstructured), deleteBefore) {
		return true
	}
	if t.live.GetAnnotations()[AnnotationHookRun] == "" {
		return false // it was not created as a hook
	}
	judged, err := a.health(ctx, t.live)
	return err == nil && hookJudgement(t.live, judged).status != entities.ObjectSucceeded
}

// objectsBefore are the objects that are applied before a hook.
func objectsBefore(hook *trial, objects []*trial) (before []*trial) {
	for _, t := range objects {
		if t.wave == firstWave || strings.HasPrefix(hook.hook, phasePost) {
			before = append(before, t)
		}
	}
	return before
}

// tryHook tries a hook again before it runs.
func (a *apply) tryHook(ctx context.Context, run hookRun) *trial {
	for _, t := range a.hookTrials {
		if t.hook == run.key && t.outcome == dependent {
			a.tryDependent(ctx, t)
			return t
		}
	}
	return a.tryServed(ctx, run.declared)
}

// hookChange is the change of a hook in the form of a plan.
func (t *trial) hookChange() runtimes.Change {
	c := t.change()
	if t.outcome != refused {
		c.Fields, c.Action = nil, runtimes.ActionCreate
		if t.live != nil {
			c.Action = runtimes.ActionRecreate
		}
		moment, _, _ := strings.Cut(t.hook, " ")
		c.Message = "runs as hook " + moment
	}
	return c
}

// deletedHookError is the error for a hook that was deleted before its end was seen: its result is unknown.
func (a *apply) deletedHookError(ctx context.Context, t *trial) error {
	if !isHook(t.Unstructured) {
		return nil
	}
	_, err := a.clients.resourceClient(t.resource, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	if err == nil || !apierrors.IsNotFound(err) {
		return explain(ctx, "read "+idOf(t.Unstructured).String(), err)
	}
	return &problem{action: "wait for " + idOf(t.Unstructured).String(), reason: "it was deleted before its end was observed (ttlSecondsAfterFinished?)", objectFailed: true}
}

// hookJudgement is the health of a hook. It is that of its object, except that a Pod has to end.
func hookJudgement(o *unstructured.Unstructured, v judgement) judgement {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	if v.status == entities.ObjectSucceeded && idOf(o).kind == (schema.GroupKind{Kind: "Pod"}) && phase != "Succeeded" {
		return pending("Pod has not completed")
	}
	return v
}

// hooks reports the hooks for which the delivery of the observed version still waits. Other hooks are not part of the running
// objects.
func (ob *observation) hooks(ctx context.Context, hooks []declared) ([]entities.Object, error) {
	if len(hooks) == 0 {
		return nil, nil
	}
	parents, err := ob.inventories(ctx)
	if err != nil {
		return nil, err
	}
	var found []entities.Object
	for _, parent := range parents {
		d, err := parseDelivery(parent)
		if err != nil {
			return nil, err
		}
		if parent.GetNamespace() != ob.namespace || d == nil || d.Version != ob.in.FullVersion {
			continue
		}
		for _, run := range d.pendingHooks(hooks) {
			object, err := ob.hook(ctx, d, run)
			if err != nil {
				return nil, err
			}
			found = append(found, object)
		}
	}
	return found, nil
}

func (ob *observation) hook(ctx context.Context, d *delivery, run hookRun) (entities.Object, error) {
	object := ob.newObject(run.Unstructured)
	moment, _, _ := strings.Cut(run.key, " ")
	if failed, hasFailed := d.Failed[run.key]; hasFailed {
		object.Status, object.Versions = entities.ObjectFailed, []entities.ObjectVersion{{Version: d.Version}}
		object.Message = fmt.Sprintf("hook %s failed: %s", moment, failed.Reason)
		return object, nil
	}
	object.Message = fmt.Sprintf("hook %s has not run yet", moment)
	v, err := ob.viewOf(ctx, run.GroupVersionKind(), run.GetNamespace())
	if err != nil || v == nil {
		return object, err
	}
	live := v.get(run.GetNamespace(), run.GetName())
	if live == nil || !d.createdFor(live, run.key) {
		return object, nil
	}
	p, err := ob.parts(ctx, live, versionsByStamp{}, entities.ObjectPending)
	if err != nil {
		return object, err
	}
	judged, err := ob.health(ctx, live)
	if err != nil {
		return object, err
	}
	object.Versions, object.Message = []entities.ObjectVersion{{Version: d.Version}}, fmt.Sprintf("hook %s: %s", moment, hookJudgement(live, judged).message)
	if cause := worstPodFailure(p.targets, appliedAt(live), ob.now(), ob.def.Kubernetes.FailAfter); cause.message != "" {
		object.Message = fmt.Sprintf("hook %s: %s", moment, ob.redacted(cause.message))
		object.Events = ob.events(ctx, object, live, p, cause)
	}
	return object, nil
}
