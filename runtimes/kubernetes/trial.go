package kubernetes

import (
	"context"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/runtimes"
)

// outcome is the result of a trial: the action that is necessary.
type outcome int

const (
	prerequisiteMissing outcome = iota // its kind or its namespace does not exist yet, and is among the objects
	created                            // it does not exist
	changed                            // it exists and differs
	unchanged                          // it exists as declared
	recreated                          // it cannot be changed in place, and may be recreated
	dryRunUnsupported                  // the server cannot do the dry run: a webhook does not support it
	webhookBlocked                     // a webhook of the instance refuses it; this apply may repair that webhook first
	dependent                          // admission looks up an object that this apply changes before it; needed are those
	refused                            // err is the reason
)

// trial is an object and the result of the dry run of its apply.
type trial struct {
	declared
	resource  resource
	live      *unstructured.Unstructured // the live object, nil if there is none; not to be changed
	force     bool                       // all conflicts were examined and may be overwritten
	outcome   outcome
	fields    []runtimes.FieldChange // of outcome changed
	takenOver []conflict             // fields that are reverted or taken over
	conflicts []string               // fields that stay with other owners: the object is refused
	adoption  *adoption              // nil: none
	rerun     bool                   // it is a failed Job that is to run again
	hook      string                 // the moment and name of a hook that is to run
	runs      int                    // of a Job that is created
	foreign   []foreign              // fields that others added
	takenOut  []takenField           // undeclared fields with which the server refuses the declaration
	applied   *unstructured.Unstructured
	err       error

	origin          declared // as it was declared, for another trial
	needed          []*trial // of outcome dependent
	movedFrom       string   // the service to which the live object belongs
	webhook         string   // of outcome webhookBlocked: the webhook, whether it answered, and its message
	webhookAnswered bool
	refusal         error
}

func (t *trial) refuse(err error) *trial {
	t.outcome, t.err = refused, err
	return t
}

// trialsAtOnce limits the concurrent dry runs of one apply.
const trialsAtOnce = 4

func (a *apply) tryAll(ctx context.Context, objects []declared) []*trial {
	trials := make([]*trial, len(objects))
	var all sync.WaitGroup
	free := make(chan struct{}, trialsAtOnce)
	for i, d := range objects {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			trials[i] = a.try(ctx, d)
		})
	}
	all.Wait()
	a.refuseUnrepairable(ctx, trials)
	deferDependents(trials, nil)
	return trials
}

// try checks whether an object may be applied, and what that would change. It changes nothing.
func (a *apply) try(ctx context.Context, d declared) *trial {
	t := &trial{declared: d, origin: d}
	var err error
	t.resource, err = a.cluster.resource(ctx, d.GroupVersionKind())
	if meta.IsNoMatchError(err) && defines(a.objects, d) {
		return t
	}
	if err != nil {
		return t.refuse(explain(ctx, "apply "+idOf(d.Unstructured).String(), err))
	}
	if err := a.checkAllowed(t); err != nil {
		return t.refuse(err)
	}
	if t.live, err = a.findLive(ctx, t); err != nil {
		return t.refuse(err)
	}
	if t.live == nil {
		t.outcome = created
	}
	if adopted := a.tryUnmarked(ctx, t, d); adopted != nil {
		return adopted
	}
	dry, err := a.dryRunOver(ctx, t, d)
	if err != nil && t.live == nil && a.createsNamespaceOf(d, err) {
		t.outcome = prerequisiteMissing
		return t
	}
	return a.markWebhookBlocked(ctx, a.judge(ctx, t, d, dry, err))
}

// judge evaluates the first dry run of a declaration. It tries again if the dry run used an outdated live object, or if the object
// needs another kind of apply.
func (a *apply) judge(ctx context.Context, t *trial, d declared, dry *unstructured.Unstructured, err error) *trial {
	a.classify(t, dry, err)
	workload := isWorkload(d.Unstructured)
	if dry != nil && t.live != nil && t.live.GetResourceVersion() != dry.GetResourceVersion() {
		// The server compared with a newer object than the watch showed: another writer changed it a moment ago.
		if t.live, err = a.read(ctx, t); err != nil {
			return t.refuse(err)
		}
		if workload {
			dry, err = a.dryRunOver(ctx, t, d)
		}
		a.classify(t, dry, err)
	}
	if a.overridesScaler(ctx, t) {
		dry, err = a.dryRunOver(ctx, t, d)
		a.classify(t, dry, err)
	}
	if t.outcome == refused {
		dry = a.resolveRefusal(ctx, t, err)
	}
	if t.rerun = a.mustRerun(t); t.rerun {
		t.outcome, t.fields = recreated, nil
	}
	if t.outcome == recreated || t.outcome == created {
		t.declared = d // as an object that does not exist
		if err := a.recordRun(t); err != nil {
			return t.refuse(runtimes.Permanent(err))
		}
	}
	return a.planAdoption(ctx, t, dry)
}

// resolveRefusal evaluates the refusal of an existing object. The server may accept its declaration without fields that nobody declares;
// dry is then the object after that. Or it may accept it as a new object.
func (a *apply) resolveRefusal(ctx context.Context, t *trial, refusal error) (dry *unstructured.Unstructured) {
	switch {
	case t.live == nil:
		return nil
	case a.isRefusedGrowth(t, refusal):
		a.resolveGrowth(ctx, t)
		return nil
	case len(causesOf(refusal)) == 0:
		return nil
	}
	dry, others, err := a.takeOutRefused(ctx, t, refusal)
	switch {
	case err != nil:
		t.refuse(err)
	case dry != nil:
		a.compareDry(t, dry)
	default:
		a.resolveChange(ctx, t, others)
	}
	return dry
}

// dryRunOver tries an object over the live one.
func (a *apply) dryRunOver(ctx context.Context, t *trial, d declared) (dry *unstructured.Unstructured, err error) {
	d.scaler, d.scalerGone = t.scaler, t.scalerGone
	t.force, t.takenOver, t.conflicts, t.takenOut = false, nil, nil, nil
	if t.declared, err = d.appliedOver(t.live); err != nil {
		return nil, runtimes.Permanent(err)
	}
	if err := a.recordTakenFrom(t); err != nil {
		return nil, runtimes.Permanent(err)
	}
	if a.findClusterScaler(ctx, t); t.live != nil {
		if err := a.omitOthersFields(ctx, t); err != nil {
			return nil, err
		}
	}
	return a.send(ctx, t, true)
}

func (a *apply) classify(t *trial, dry *unstructured.Unstructured, err error) {
	t.adoption = nil
	switch {
	case noDryRun(err):
		t.outcome = dryRunUnsupported
	case err != nil:
		t.refuse(err)
	case t.live == nil:
		t.outcome = created
	default:
		a.compareDry(t, dry)
	}
}

// compareDry compares the live object with the result of a dry run that the server accepted.
func (a *apply) compareDry(t *trial, dry *unstructured.Unstructured) {
	t.outcome, t.err, t.fields = changed, nil, compare(t.live, dry, t.omittedPaths(t.live)...)
	if t.foreign = foreignIn(dry, t.declared); a.clearForeign {
		for _, f := range t.foreign {
			t.fields = append(t.fields, runtimes.FieldChange{Path: f.path.String(), Old: jsonText(f.path.get(dry.Object))})
		}
	}
	if len(t.fields) == 0 && len(t.takenOut) == 0 {
		t.outcome = unchanged
	}
}

// createsNamespaceOf reports whether an object was refused because its namespace is missing, and that namespace is among the objects or
// this apply creates it.
func (a *apply) createsNamespaceOf(d declared, err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	if a.createNS && d.GetNamespace() == a.namespace {
		return true
	}
	return slices.ContainsFunc(a.objects, func(o declared) bool { // a namespace that is a hook comes too late
		return idOf(o.Unstructured).kind == kindNamespace && o.GetName() == d.GetNamespace()
	})
}

// noDryRun reports whether a webhook has side effects, so that the server refuses every dry run that would call it.
func noDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && containsAny("does not support dry run")(err)
}

// send applies an object, or does a dry run. It overwrites fields of others only if it may overwrite all of them: see ownership.go.
func (a *apply) send(ctx context.Context, t *trial, dry bool) (*unstructured.Unstructured, error) {
	applied, err := a.patch(ctx, t, dry)
	if !t.force && isFieldConflict(err) {
		if err = a.resolveConflicts(ctx, t, err); err != nil {
			return nil, err
		}
		t.force = true
		applied, err = a.patch(ctx, t, dry)
	}
	if err != nil {
		return nil, explain(ctx, "apply "+idOf(t.Unstructured).String(), err)
	}
	return applied, nil
}

func (a *apply) patch(ctx context.Context, t *trial, dry bool) (*unstructured.Unstructured, error) {
	options := metav1.PatchOptions{FieldManager: FieldManager, Force: &t.force}
	text := t.text
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	} else {
		text = t.guardedText()
	}
	return a.clients.resourceClient(t.resource, t.GetNamespace()).Patch(ctx, t.GetName(), types.ApplyPatchType, text, options)
}

// isFieldConflict reports whether an apply was refused because others own some fields.
func isFieldConflict(err error) bool {
	return apierrors.IsConflict(err) && apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
}

// resolveConflicts decides whether the apply may take the fields that others own. The error lists those that it may not take.
func (a *apply) resolveConflicts(ctx context.Context, t *trial, err error) error {
	live, getErr := a.clients.resourceClient(t.resource, t.GetNamespace()).Get(ctx, t.GetName(), metav1.GetOptions{})
	if getErr != nil {
		return explain(ctx, "read the owners of the fields of "+idOf(t.Unstructured).String(), getErr)
	}
	if err := a.checkOwnership(ctx, t, live); err != nil {
		return err // another writer created it a moment ago
	}
	t.takenOver, t.conflicts = nil, nil
	var fields []string
	for _, c := range conflictsOf(err, live.GetManagedFields()) {
		switch {
		case a.mayYield(t, live, c):
		case c.isManualEdit() || a.hasNewConsent(t, live) || t.scalerGone && c.isByScaler():
			t.takenOver = append(t.takenOver, c)
		default:
			t.conflicts, fields = append(t.conflicts, c.String()), append(fields, c.at)
		}
	}
	if len(t.conflicts) == 0 {
		if t.declared, err = t.withoutOthersFields(live); err != nil {
			return runtimes.Permanent(err)
		}
		return nil
	}
	return runtimes.Permanent(&problem{
		action: "apply " + idOf(t.Unstructured).String(), reason: strings.Join(t.conflicts, ", "), err: err,
		hint: a.conflictHint(t, fields),
	})
}

// Plan implements runtimes.Planner by the server's dry run. The result lists refused objects too. An error means that no dry run was
// possible at all.
func (r *Runtime) Plan(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	a, err := r.newApply(ctx, in)
	if err != nil {
		return nil, err
	}
	a.planned = true
	trials := a.tryAll(ctx, a.objects)
	parent, _, err := a.findInventory(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.loadDelivery(ctx); err != nil {
		return nil, err
	}
	hooks := a.tryHooks(ctx, trials)
	changes := a.namespaceChange(ctx, slices.Concat(trials, hooks))
	for _, t := range slices.Concat(trials, hooks) {
		if err := ctx.Err(); err != nil {
			return nil, explain(ctx, "plan", err)
		}
		if t.hook != "" {
			changes = append(changes, t.hookChange())
		} else if t.outcome != unchanged {
			changes = append(changes, t.change())
		}
	}
	left, _, err := a.leftovers(ctx, a.recordedExtent(parent))
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		if a.excluded[idOf(l.Unstructured)] == "" {
			changes = append(changes, a.leftoverChange(l))
		}
	}
	return changes, nil
}

// leftoverChange is what happens to an object that is no longer declared.
func (a *apply) leftoverChange(l leftover) runtimes.Change {
	change := runtimes.Change{Action: runtimes.ActionOrphan, Type: l.GetKind(), Name: l.GetName(), Namespace: l.GetNamespace()}
	switch reason := a.pruneKeepReason(l); {
	case l.GetDeletionTimestamp() != nil:
		change.Action, change.Message = runtimes.ActionPrune, deletionMessage(l.Unstructured)
	case l.next != "":
		change.Message = "moves to service " + l.next
	case a.prune && reason == "":
		change.Action = runtimes.ActionPrune
	case a.prune:
		change.Message = "no longer declared, kept: " + reason
	}
	return change
}

// change is the trial in the form of a plan.
func (t *trial) change() runtimes.Change {
	c := runtimes.Change{Type: t.GetKind(), Name: t.GetName(), Namespace: t.GetNamespace(), Fields: t.fields, Conflicts: t.conflicts}
	c.Replaces = t.replacedPods()
	if t.adoption != nil {
		c.Message = t.adoption.String()
	}
	if text := t.moveMessage(); text != "" {
		c.Message = text
	}
	if len(t.takenOut) > 0 {
		c.Message = joinTexts(c.Message, t.takenOutText())
	}
	if t.rerun {
		c.Message = "it failed, and is run again"
	}
	switch t.outcome {
	case prerequisiteMissing, created:
		c.Action = runtimes.ActionCreate
	case dependent:
		c.Action, c.Message = t.createOrUpdate(), t.needsText()
	case recreated:
		c.Action = runtimes.ActionRecreate
	case refused:
		c.Action = runtimes.ActionRefuse
		if len(c.Conflicts) == 0 {
			c.Message = t.err.Error()
		}
	case webhookBlocked:
		c.Action, c.Message = t.createOrUpdate(), "the webhook "+t.webhook+" of this service refuses it; it is applied after the rest of its wave has repaired the webhook"
	case dryRunUnsupported:
		c.Action, c.Message = t.createOrUpdate(), "a webhook does not support dry runs, so the changes are unknown"
	default:
		c.Action = runtimes.ActionUpdate
	}
	return c
}

func (t *trial) createOrUpdate() runtimes.Action {
	if t.live == nil {
		return runtimes.ActionCreate
	}
	return runtimes.ActionUpdate
}
