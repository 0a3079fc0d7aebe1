package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// defaultApplyTimeout is the timeout of an apply if the runtime does not set one.
const defaultApplyTimeout = 10 * time.Minute

// apply is one Apply, or one Plan, of an instance.
type apply struct {
	*Runtime
	clients            *clients
	owner              runtimes.Owner
	namespace          string // namespace of the instance
	adopt              bool
	prune              bool
	createNS           bool              // the namespace of the instance is created if it is missing
	removeClaims       bool              // PersistentVolumeClaims are removed
	clearForeign       bool              // additions of others to pod templates are removed
	excluded           exclusions        // neither applied nor removed
	version            string            // the full version
	namespaceMeta      metav1.ObjectMeta // labels and annotations for the new namespace
	objects            []declared
	hooks              []declared                   // declared among the payload's objects, but kept apart from them
	attempt            int                          // of runtimes.Request
	attemptID          string                       // its AttemptID
	lastAttempt        bool                         // its LastAttempt
	fence              *runtimes.Fence              // nil: no fence
	allow              *entities.RuntimeAllow       // nil: everything is allowed
	inventory          *unstructured.Unstructured   // the inventory as this apply wrote it
	earlierInventories []*unstructured.Unstructured // inventories in namespaces in which the instance was before
	// delivery is the progress of the version; nil: there are no hooks, and never were
	delivery       *delivery
	hookTrials     []*trial
	prunedWebhooks []string // webhooks whose configuration was pruned: the server may still call them for a moment
	others         *otherInstallations
	siblings       func() *siblings // never nil
	planned        bool             // this is a Plan
	log            *applyLog
}

// Apply implements runtimes.Runtime by server-side apply. It first does a dry run of all objects, so that an invalid object, or one
// of another owner, stops the apply before anything changes. It then applies the objects in waves. A wave waits until the one before
// it is ready; the apply does not wait for the last wave. Objects that are already as declared are not written. An interrupted apply
// can run again. One that the server does not answer is no attempt.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	started := r.now()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.def.Timing.ApplyTimeout, defaultApplyTimeout))
	defer cancel()
	ctx, warnings := collectWarnings(ctx)
	log := &applyLog{}
	err := r.unanswered(ctx, r.apply(ctx, in, log))
	for _, warning := range warnings.list() {
		log.add("warning: %s", warning)
	}
	out := log.output()
	out.Started, out.Duration = started, r.now().Sub(started)
	if err != nil {
		out.ExitCode = 1
	}
	return out, err
}

func (r *Runtime) apply(ctx context.Context, in runtimes.Request, log *applyLog) error {
	a, err := r.newApply(ctx, in)
	if err != nil {
		return err
	}
	a.log = log
	trials := a.tryAll(ctx, a.objects)
	if err := joinErrors(trials); err != nil {
		if apierrors.IsTooManyRequests(err) && !runtimes.IsPermanent(err) {
			return runtimes.Unready(err) // nothing was changed yet, and no component has failed
		}
		return err
	}
	if err := a.loadDelivery(ctx); err != nil {
		return err
	}
	if err := joinErrors(a.tryHooks(ctx, trials)); err != nil {
		return err
	}
	if err := a.run(ctx, trials); err != nil {
		return a.runFailureHooks(ctx, err)
	}
	a.waitForWatch(ctx, trials)
	return nil
}

// newApply parses the payload and connects to the cluster.
func (r *Runtime) newApply(ctx context.Context, in runtimes.Request) (*apply, error) {
	if in.Payload == nil || in.Payload.Kubernetes == nil {
		return nil, runtimes.Permanent(errors.New("the payload has no Kubernetes objects"))
	}
	clients, err := r.clientsFor(ctx, in)
	if err != nil {
		return nil, err
	}
	objects, err := r.declare(ctx, in)
	if runtimes.IsPermanent(err) {
		return nil, err // the error is complete, and no request was sent
	}
	if err != nil {
		return nil, explain(ctx, "read the payload", err)
	}
	objects, hooks := splitHooks(objects)
	a := &apply{
		Runtime: r, clients: clients, owner: in.Owner, namespace: namespaceOf(in), version: in.FullVersion, objects: objects, hooks: hooks, log: &applyLog{}, fence: in.Fence, allow: in.Allow, others: newOtherInstallations(in), siblings: readSiblings(ctx, in),
		attempt: in.Attempt, attemptID: in.AttemptID, lastAttempt: in.LastAttempt,
		adopt: in.Payload.Kubernetes.Adopt, prune: in.Payload.Kubernetes.Prune, createNS: in.Payload.Kubernetes.CreateNamespace,
		excluded: exclusionsOf(in), removeClaims: in.Payload.Kubernetes.RemoveClaims, clearForeign: in.Payload.Kubernetes.RemoveForeign,
		namespaceMeta: metav1.ObjectMeta{Name: namespaceOf(in), Labels: in.Payload.Kubernetes.NamespaceLabels, Annotations: in.Payload.Kubernetes.NamespaceAnnotations},
	}
	return a, a.dropGiven(ctx)
}

// run applies the objects after their trials.
func (a *apply) run(ctx context.Context, trials []*trial) error {
	if a.needsNamespace(slices.Concat(trials, a.hookTrials)) {
		if err := a.createNamespace(ctx); err != nil {
			return err
		}
	}
	hooked, err := a.applyWaves(ctx, trials)
	if err != nil {
		return err
	}
	if a.inventory == nil {
		if err := a.recordInventory(ctx); err != nil {
			return err
		}
	}
	if !hooked {
		if err := a.runHooks(ctx, phasePre); err != nil {
			return err
		}
	}
	if err := a.runHooks(ctx, phasePost); err != nil {
		return err
	}
	a.markDelivered()
	return a.finish(ctx, trials)
}

// applyWaves applies wave after wave. The hooks run before the first wave that has more than namespaces and definitions; hooked reports
// whether the apply reached the hooks.
func (a *apply) applyWaves(ctx context.Context, trials []*trial) (hooked bool, err error) {
	groups := groupByWave(trials, func(t *trial) int { return t.wave })
	for i, wave := range groups {
		fresh := i == 0
		if wave[0].wave > firstWave && !hooked {
			hooked, fresh = true, true
			if err := a.tryMissing(ctx, trials, slices.Concat(groups[i:]...)); err != nil {
				return hooked, err
			}
			if err := a.runHooks(ctx, phasePre); err != nil {
				return hooked, err
			}
		}
		if a.inventory == nil && !slices.ContainsFunc(wave, a.isNewNamespace) {
			err := a.recordInventory(ctx)
			if name, _ := webhookOf(err); err != nil && !a.ownWebhook(ctx, name) {
				return hooked, err
			}
		}
		if err := a.applyWave(ctx, wave, fresh); err != nil {
			return hooked, err
		}
		if i < len(groups)-1 || a.hooksFollow() {
			if err := a.waitReady(ctx, wave); err != nil {
				return hooked, err
			}
		}
	}
	return hooked, nil
}

// isNewNamespace reports whether an object is the namespace of the instance and does not exist yet; then there is no inventory either.
func (a *apply) isNewNamespace(t *trial) bool {
	return t.live == nil && idOf(t.Unstructured).kind == kindNamespace && t.GetName() == a.namespace
}

// applyWave applies the objects of one wave. It now tries the objects whose kind, namespace or webhook did not exist before, and those that
// need objects of earlier waves. Unless the trials are fresh it also reads missing objects again, since another writer may have created
// them in the meantime (D11).
func (a *apply) applyWave(ctx context.Context, wave []*trial, fresh bool) error {
	for _, t := range wave {
		switch {
		case t.outcome == dependent && !slices.ContainsFunc(t.needed, func(n *trial) bool { return n.wave == t.wave }):
			a.tryDependent(ctx, t)
		case t.outcome == prerequisiteMissing, t.outcome == webhookBlocked, t.outcome == created && !fresh:
			*t = *a.tryServed(ctx, t.origin)
		}
	}
	if err := joinErrors(wave); err != nil {
		return a.refusedLate(err)
	}
	var rest, waiting []*trial
	for _, t := range wave {
		if t.outcome == webhookBlocked {
			waiting = append(waiting, t)
			continue
		}
		rest = append(rest, t)
		if t.outcome == dependent {
			if a.tryDependent(ctx, t); t.err != nil {
				return a.refusedLate(t.err)
			}
		}
		if err := a.execute(ctx, t); err != nil {
			return err
		}
		if idOf(t.Unstructured).kind == kindDefinition && t.outcome != unchanged {
			a.cluster.kinds.reset()
		}
	}
	return a.applyBlocked(ctx, rest, waiting)
}

// serveTimeout is how long the server may take to serve a kind after its definition is ready.
const serveTimeout = 5 * time.Second

// tryServed tries an object whose kind may have been defined a moment ago.
func (a *apply) tryServed(ctx context.Context, d declared) *trial {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(serveTimeout); ; {
		t := a.try(ctx, d)
		if !defines(a.objects, d) || !apierrors.IsNotFound(t.err) || isMissingNamespace(t.err) || time.Now().After(deadline) {
			return t
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return t
		}
	}
}

// execute performs the action that a trial found necessary.
func (a *apply) execute(ctx context.Context, t *trial) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.outcome == unchanged {
		a.log.unchanged++
		return nil
	}
	if err := a.recheckFence(ctx); err != nil {
		return err
	}
	if t.outcome == recreated {
		if err := a.remove(ctx, t); err != nil {
			return err
		}
	}
	if t.adoption != nil {
		if err := a.migrate(ctx, t); err != nil {
			return err
		}
	}
	if len(t.takenOut) > 0 {
		if err := a.takeOver(ctx, t); err != nil {
			return err
		}
	}
	applied, err := a.send(ctx, t, false)
	if err != nil {
		return err
	}
	a.log.report(t, applied)
	t.applied = applied
	if err := a.removeForeign(ctx, t); err != nil {
		return err
	}
	a.cacheAsDeclared(t.applied, t.declared)
	if t.outcome == recreated {
		return a.waitWatched(ctx, t)
	}
	return nil
}

// joinErrors joins the errors of trials. The result is permanent if one of them is, and unready if all are.
func joinErrors(trials []*trial) error {
	var all []error
	permanent, unready := false, true
	for _, t := range trials {
		if t.err != nil {
			all = append(all, t.err)
			permanent = permanent || runtimes.IsPermanent(t.err)
			unready = unready && runtimes.IsUnready(t.err)
		}
	}
	err := errors.Join(mergeProblems(all)...)
	switch {
	case permanent:
		return runtimes.Permanent(err)
	case err != nil && unready:
		return runtimes.Unready(err)
	}
	return err
}

// groupByWave groups a sorted slice by wave.
func groupByWave[T any](all []T, wave func(T) int) (groups [][]T) {
	for i, each := range all {
		if i == 0 || wave(each) != wave(all[i-1]) {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], each)
	}
	return groups
}

// remove deletes an object that is to be recreated, and waits until it and its dependents are gone.
func (a *apply) remove(ctx context.Context, t *trial) error {
	action := "delete " + idOf(t.Unstructured).String() + " to recreate it"
	at := a.clients.resourceClient(t.resource, t.GetNamespace())
	policy, uid := dependents(t.Unstructured), t.live.GetUID()
	err := at.Delete(ctx, t.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return explain(ctx, action, err)
	}
	return pollUntilGone(ctx, at, action, t.GetName(), func(live *unstructured.Unstructured) bool { return live.GetUID() != uid })
}
