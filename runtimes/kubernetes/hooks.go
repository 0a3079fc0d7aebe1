package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Hooks are objects that run once for each delivery of a version, before its other objects or after them, as Helm's do:
// those of an installation at the first, those of an upgrade at later ones, those of a rollback when a version comes back that had
// been delivered before another one. They run one after the other by weight, each to its end. Whatever becomes of them then
// (their policy deletes them, or somebody does) is no drift.

// Phases of a delivery.
const (
	before = "pre-"
	after  = "post-"
)

// Policies by which a hook is deleted.
const (
	deleteBefore    = "before-hook-creation"
	deleteSucceeded = "hook-succeeded"
	deleteFailed    = "hook-failed"
)

// isHook reports whether an object is one.
func isHook(o *unstructured.Unstructured) bool { return o.GetAnnotations()[AnnotationHook] != "" }

// split parts hooks from the objects that are there all the time.
func split(all []declared) (objects, hooks []declared) {
	for _, d := range all {
		if isHook(d.Unstructured) {
			hooks = append(hooks, d)
		} else {
			objects = append(objects, d)
		}
	}
	return objects, hooks
}

// all are the objects of the payload, hooks among them.
func (a *apply) all() []declared { return append(slices.Clone(a.objects), a.hooks...) }

// runsAt reports whether a hook is for a moment: pre-install.
func runsAt(o *unstructured.Unstructured, moment string) bool {
	return slices.Contains(listed(o, AnnotationHook), moment)
}

// policyOf is when a hook is deleted. Without a policy it is before it is made again.
func policyOf(o *unstructured.Unstructured) []string {
	if policy := listed(o, AnnotationHookDelete); len(policy) > 0 {
		return policy
	}
	return []string{deleteBefore}
}

func weightOf(o *unstructured.Unstructured) int {
	weight, _ := strconv.Atoi(o.GetAnnotations()[AnnotationHookWeight]) // none is 0
	return weight
}

// due are the hooks of a phase of the delivery, in their order.
func (d *delivery) due(hooks []declared, phase string) (due []declared) {
	if d == nil || d.Ended {
		return nil
	}
	for _, h := range hooks {
		if runsAt(h.Unstructured, phase+string(d.Event)) {
			due = append(due, h)
		}
	}
	slices.SortStableFunc(due, func(x, y declared) int {
		return cmp.Or(cmp.Compare(weightOf(x.Unstructured), weightOf(y.Unstructured)), inOrder(x, y))
	})
	return due
}

// keyOf names a hook in a phase: "pre-upgrade Job shop/migrate".
func (d *delivery) keyOf(h *unstructured.Unstructured, phase string) string {
	return phase + string(d.Event) + " " + idOf(h).String()
}

// left are the hooks of the delivery that have not ended well.
func (d *delivery) left(hooks []declared) (left []hookRun) {
	for _, phase := range []string{before, after} {
		for _, h := range d.due(hooks, phase) {
			if key := d.keyOf(h.Unstructured, phase); !slices.Contains(d.Done, key) {
				left = append(left, hookRun{declared: h, key: key})
			}
		}
	}
	return left
}

// hookRun is a hook in a phase.
type hookRun struct {
	declared
	key string
}

// stamp is what a hook says of the run that it was made for.
func (d *delivery) stamp(key, try string) string {
	moment, _, _ := strings.Cut(key, " ")
	return strings.TrimSpace(moment + " " + d.Version + " " + try)
}

// madeFor reports whether a hook was made for a moment of this delivery, in whatever attempt.
func (d *delivery) madeFor(live *unstructured.Unstructured, key string) bool {
	stamp := d.stamp(key, "")
	has := live.GetAnnotations()[AnnotationHookRun]
	return has == stamp || strings.HasPrefix(has, stamp+" ")
}

// runHooks runs the hooks of a phase that have not ended yet.
func (a *apply) runHooks(ctx context.Context, phase string) error {
	due := a.delivery.due(a.hooks, phase)
	if len(due) == 0 {
		return nil
	}
	if a.noted == nil {
		if err := a.remember(ctx); err != nil {
			return err
		}
	}
	for i, h := range due {
		run := hookRun{declared: h, key: a.delivery.keyOf(h.Unstructured, phase)}
		if slices.Contains(a.delivery.Done, run.key) {
			continue
		}
		if err := a.runHook(ctx, run); err != nil {
			if runtimes.IsPermanent(err) { // those before it have served, as far as Helm is concerned
				err = errors.Join(err, a.clear(ctx, due[:i], deleteSucceeded))
			}
			return err
		}
	}
	return a.clear(ctx, due, deleteSucceeded)
}

// runHook runs one to its end, and notes how that was.
func (a *apply) runHook(ctx context.Context, run hookRun) error {
	failed, again := a.delivery.Failed[run.key]
	if again && (a.attempt != 1 || failed.Try == a.tryName) {
		return runtimes.Permanent(failedHook(run.key, failed.Why))
	}
	t, err := a.startHook(ctx, run, again)
	if err != nil {
		return err
	}
	err = a.ready(ctx, []*trial{t})
	ended := new(problem)
	if errors.As(err, &ended) && ended.failed {
		if a.delivery.Failed == nil {
			a.delivery.Failed = map[string]hookFailure{}
		}
		a.delivery.Failed[run.key] = hookFailure{a.tryName, ended.why}
		err = failedHook(run.key, ended.why)
		return runtimes.Permanent(errors.Join(err, a.noteRun(ctx), a.clear(ctx, []declared{run.declared}, deleteFailed)))
	}
	if err != nil {
		return err
	}
	delete(a.delivery.Failed, run.key)
	a.delivery.Done = append(a.delivery.Done, run.key)
	a.account.say("ran the hook %s", run.key)
	return a.noteRun(ctx)
}

func failedHook(key, why string) error {
	return &problem{doing: "run the hook " + key, why: why, hint: "retry runs it again"}
}

// noteRun tells the inventory.
func (a *apply) noteRun(ctx context.Context) error {
	r, err := a.cluster.resource(ctx, kindParent)
	if err != nil {
		return explain(ctx, "read the inventory "+parentName(a.owner), err)
	}
	return a.note(ctx, r, a.noted, a.known)
}

// startHook makes a hook, after it has deleted the one that is there from before. One that was made for the same run is left
// to end: a worker was lost meanwhile.
func (a *apply) startHook(ctx context.Context, run hookRun, again bool) (*trial, error) {
	t := a.tryServed(ctx, run.declared)
	if t.outcome == refused {
		return nil, t.err
	}
	if t.outcome == tooEarly { // neither its kind nor its namespace came with what goes before hooks
		_, err := a.cluster.resource(ctx, run.GroupVersionKind())
		return nil, explain(ctx, "run the hook "+run.key, cmp.Or(err, errors.New("its namespace is not there yet")))
	}
	if t.live != nil {
		stamp := t.live.GetAnnotations()[AnnotationHookRun]
		if a.delivery.madeFor(t.live, run.key) && (!again || stamp == a.delivery.stamp(run.key, a.tryName)) {
			t.applied = t.live
			return t, nil
		}
		if err := a.unfenced(ctx); err != nil {
			return nil, err
		}
		if err := a.remove(ctx, t); err != nil {
			return nil, err
		}
	}
	if err := a.unfenced(ctx); err != nil {
		return nil, err
	}
	t.declared, t.live = run.declared, nil // over nothing
	t.Unstructured = t.DeepCopy()
	err := merge(t.Object, map[string]string{AnnotationHookRun: a.delivery.stamp(run.key, a.tryName)}, []string{"metadata", "annotations"})
	if err := errors.Join(err, t.encode()); err != nil {
		return nil, runtimes.Permanent(err)
	}
	if t.applied, err = a.send(ctx, t, false); err != nil {
		return nil, err
	}
	return t, a.untilSeen(ctx, t)
}

// clear deletes hooks whose policy says so, the last first.
func (a *apply) clear(ctx context.Context, hooks []declared, policy string) error {
	for _, h := range slices.Backward(hooks) {
		if !slices.Contains(policyOf(h.Unstructured), policy) {
			continue
		}
		at, err := a.cluster.resource(ctx, h.GroupVersionKind())
		if err != nil {
			return explain(ctx, "delete the hook "+idOf(h.Unstructured).String(), err)
		}
		live, err := a.clients.at(at, h.GetNamespace()).Get(ctx, h.GetName(), metav1.GetOptions{})
		if err := unless(apierrors.IsNotFound, err); err != nil {
			return explain(ctx, "delete the hook "+idOf(h.Unstructured).String(), err)
		}
		if err != nil || live.GetAnnotations()[AnnotationHookRun] == "" {
			continue // it is gone, or was never run here
		}
		if err := a.unfenced(ctx); err != nil {
			return err
		}
		deleted, err := a.delete(ctx, leftover{live, at}, metav1.DeletePropagationBackground, false)
		if err != nil {
			return explain(ctx, "delete the hook "+idOf(h.Unstructured).String(), err)
		}
		if deleted {
			a.account.say("deleted the hook %s (%s)", called(h.Unstructured), policy)
		}
	}
	return nil
}

// tryHooks tries those that are to run, so that one that is refused stops the apply before anything was changed.
func (a *apply) tryHooks(ctx context.Context) (trials []*trial) {
	for _, run := range a.delivery.left(a.hooks) {
		t := a.try(ctx, run.declared)
		if t.live != nil && t.outcome != refused && !a.delivery.madeFor(t.live, run.key) && !slices.Contains(policyOf(t.Unstructured), deleteBefore) {
			t.refuse(runtimes.Permanent(&problem{
				doing: "run the hook " + run.key, why: "it is there from before, and its policy is " + strings.Join(policyOf(t.Unstructured), ","),
				hint: "add before-hook-creation to it, or delete the object",
			}))
		}
		t.hook = run.key
		trials = append(trials, t)
	}
	return trials
}

// change of a hook, as a plan shows it.
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

// goneHook is the error that a hook was deleted before it was seen to end: nobody knows how it did.
func (a *apply) goneHook(ctx context.Context, t *trial) error {
	if !isHook(t.Unstructured) {
		return nil
	}
	_, err := a.clients.at(t.at, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	if err == nil || !apierrors.IsNotFound(err) {
		return explain(ctx, "read "+idOf(t.Unstructured).String(), err)
	}
	return &problem{doing: "wait for " + idOf(t.Unstructured).String(), why: "it was deleted before it was seen to end (ttlSecondsAfterFinished?)", failed: true}
}

// ofHook is how a hook is: as its object is, but for a Pod, which has to come to its end.
func ofHook(o *unstructured.Unstructured, v judgement) judgement {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	if v.status == entities.ObjectSucceeded && idOf(o).kind == (schema.GroupKind{Kind: "Pod"}) && phase != "Succeeded" {
		return pending("Pod has not completed")
	}
	return v
}

// hooks reports those that the delivery of the version asked about still waits for. All others are no part of what runs.
func (ob *observation) hooks(ctx context.Context, hooks []declared) ([]entities.Object, error) {
	if len(hooks) == 0 {
		return nil, nil
	}
	parents, err := ob.parents(ctx)
	if err != nil {
		return nil, err
	}
	var found []entities.Object
	for _, parent := range parents {
		d, err := deliveryIn(parent)
		if err != nil {
			return nil, err
		}
		if parent.GetNamespace() != ob.home || d == nil || d.Version != ob.in.FullVersion {
			continue
		}
		for _, run := range d.left(hooks) {
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
	object := ob.named(run.Unstructured)
	moment, _, _ := strings.Cut(run.key, " ")
	if failed, is := d.Failed[run.key]; is {
		object.Status, object.Versions = entities.ObjectFailed, []entities.ObjectVersion{{Version: d.Version}}
		object.Message = fmt.Sprintf("hook %s failed: %s", moment, failed.Why)
		return object, nil
	}
	object.Message = fmt.Sprintf("hook %s has not run yet", moment)
	v, err := ob.viewOf(ctx, run.GroupVersionKind(), run.GetNamespace())
	if err != nil || v == nil {
		return object, err
	}
	live := v.get(run.GetNamespace(), run.GetName())
	if live == nil || !d.madeFor(live, run.key) {
		return object, nil
	}
	p, err := ob.parts(ctx, live, naming{}, entities.ObjectPending)
	if err != nil {
		return object, err
	}
	how, err := ob.health(ctx, live)
	if err != nil {
		return object, err
	}
	object.Versions, object.Message = []entities.ObjectVersion{{Version: d.Version}}, fmt.Sprintf("hook %s: %s", moment, ofHook(live, how).message)
	if trouble := troubleOf(p.targets, appliedAt(live), ob.now(), ob.def.Kubernetes.FailAfter); trouble.message != "" {
		object.Message = fmt.Sprintf("hook %s: %s", moment, ob.redacted(trouble.message))
		object.Events = ob.events(ctx, object, live, p, trouble)
	}
	return object, nil
}
