package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// observation is one call of Observe.
type observation struct {
	*Runtime
	in        runtimes.Request
	owner     runtimes.Owner
	namespace string // namespace of the instance
	others    *otherInstallations
}

// Observe implements runtimes.Runtime from the watches: without changes it makes no requests. A missing declared object is an object
// without versions, also if the server does not know its kind (the CustomResourceDefinition may be part of the same payload).
// Objects of the instance that are no longer declared are reported as orphaned (D10).
func (r *Runtime) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	if in.Payload == nil {
		return nil, ctx.Err()
	}
	ob := &observation{Runtime: r, in: in, owner: in.Owner, namespace: namespaceOf(in), others: newOtherInstallations(in)}
	objects, err := ob.objects(ctx)
	if err == nil {
		err = r.cluster.checkAnswers(ctx) // otherwise the watches may show old objects
		if err != nil {
			err = readingError("check that the API server answers", err)
		}
	}
	if err != nil {
		return nil, r.cluster.withSilence(readingError("observe "+in.Owner.String(), err))
	}
	return objects, nil
}

func (ob *observation) objects(ctx context.Context) ([]entities.Object, error) {
	wanted, err := ob.declare(ctx, ob.in)
	if err != nil {
		return nil, err
	}
	if wanted, err = ob.withoutGiven(ctx, wanted); err != nil {
		return nil, err
	}
	permanent, hooks := splitHooks(wanted)
	objects := make([]entities.Object, 0, len(wanted))
	for _, d := range permanent {
		object, err := ob.object(ctx, d)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	running, err := ob.hooks(ctx, hooks)
	if err != nil {
		return nil, err
	}
	orphans, err := ob.orphans(ctx, wanted)
	return append(append(objects, running...), orphans...), err
}

// viewOf returns the view with the objects of a kind. It is nil if the server does not have that kind.
func (ob *observation) viewOf(ctx context.Context, kind schema.GroupVersionKind, namespace string) (*view, error) {
	r, err := ob.served(ctx, kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := ob.cluster.view(ctx, r, namespace)
	if hasCode(err, runtimes.CodeUnknownKind) {
		return nil, nil // the kind was removed a moment ago
	}
	return v, err
}

func (ob *observation) served(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	if kind.Version == "" {
		return ob.cluster.preferred(ctx, kind.GroupKind())
	}
	return ob.cluster.resource(ctx, kind)
}

// object reports a declared object.
func (ob *observation) object(ctx context.Context, d declared) (entities.Object, error) {
	object := ob.newObject(d.Unstructured)
	v, err := ob.viewOf(ctx, d.GroupVersionKind(), d.GetNamespace())
	if err != nil {
		return object, err
	}
	if v == nil {
		object.Message = fmt.Sprintf("does not exist: the server does not know the kind %s of %s", d.GetKind(), d.GetAPIVersion())
		return object, nil
	}
	live := v.get(d.GetNamespace(), d.GetName())
	if live == nil && ob.in.ReportOnly {
		return ob.deployedByOthers(ctx, d)
	}
	if live == nil {
		object.Message = "does not exist"
		return object, nil
	}
	if owner, ours := ownerOf(live.GetLabels()); owner != ob.owner {
		object.Message = "it exists, but the labels that name its owner are missing"
		if ours {
			object.Message = "it exists, and belongs to " + owner.String()
		}
		return object, nil
	}
	ob.others.load(ctx, ob.cluster, ob.owner, ob.namespace)
	if f := ob.others.fenceOf(ob.others.inventoryOf(live)); f != nil {
		object.Message = "it exists, and belongs to " + installationOf(ob.owner, f)
		return object, nil
	}
	return object, ob.report(ctx, &object, live, d)
}

// newObject starts the report of an object. It shows the namespace if that is not the instance's own.
func (ob *observation) newObject(o *unstructured.Unstructured) entities.Object {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" && namespace != ob.namespace {
		name = namespace + "/" + name
	}
	return entities.Object{Name: name, Type: o.GetKind(), Status: entities.ObjectPending}
}

// report adds the versions, the health and the drift of an existing declared object.
func (ob *observation) report(ctx context.Context, object *entities.Object, live *unstructured.Unstructured, d declared) error {
	d, err := d.appliedOver(live)
	if err != nil {
		return err
	}
	if err := ob.describe(ctx, object, live, versionsByStampOf(live, d, ob.in.FullVersion)); err != nil {
		return err
	}
	return ob.markDrift(ctx, object, live, d)
}

// describe adds the versions and the health of an existing object.
func (ob *observation) describe(ctx context.Context, object *entities.Object, live *unstructured.Unstructured, names versionsByStamp) error {
	if err := ob.setHealth(ctx, object, live); err != nil {
		return err
	}
	object.Links = linksOf(live)
	p, err := ob.parts(ctx, live, names, object.Status)
	if err != nil {
		return err
	}
	object.Versions = p.versions
	if object.Status == entities.ObjectSucceeded && ob.statusLags(live, p.versions) {
		object.Status, object.Message = entities.ObjectPending, "its status and its pods do not agree yet"
	}
	if object.Status != entities.ObjectSucceeded {
		found := ob.explainUnready(ctx, live, p, worstPodFailure(p.targets, appliedAt(live), ob.now(), ob.def.Kubernetes.FailAfter))
		if found.message != "" {
			object.Message = ob.redacted(found.message)
		} else if p.unreadReason != "" {
			object.Message += "; " + p.unreadReason
		}
		failedBefore := object.Status == entities.ObjectFailed && deadlineExceededBefore(live, ob.now().Add(-ob.def.Kubernetes.FailAfter))
		if found.failed {
			object.Status = entities.ObjectFailed
		}
		if object.Status == entities.ObjectFailed && (ob.showsEarlierVersion(live) || failedBefore && !found.failed) {
			object.Status, object.Message = entities.ObjectPending, "reported status is from before the apply: "+object.Message
		}
		object.Events = ob.events(ctx, *object, live, p, found)
	}
	return nil
}

// setHealth adds the health of an object. If a person can continue it, it adds how.
func (ob *observation) setHealth(ctx context.Context, object *entities.Object, live *unstructured.Unstructured) error {
	v, err := ob.health(ctx, live)
	object.Status, object.Message = v.status, v.message
	object.Suspended, object.Until, object.Steerable = v.suspended, v.until, v.steerable
	if v.suspended != "" && v.steerable {
		object.Message += fmt.Sprintf("; converge promote %s/%s %s", ob.owner.Application, ob.owner.Service, ob.owner.ID.Channel)
	}
	return err
}

// statusLags reports whether the status of a workload is out of step with its pods, because each kind has its own watch: pods of the
// target version exist and the workload does not report them yet, or a Deployment has all its replicas and the watch has not shown
// them.
func (ob *observation) statusLags(o *unstructured.Unstructured, runs []entities.ObjectVersion) bool {
	kind := workloadOf[o.GroupVersionKind().GroupKind()]
	switch {
	case kind == plain || len(runs) == 0:
		return false
	case kind == deployment && runs[0].Replicas < runs[0].TargetReplicas:
		return true
	}
	return versionIn(o) != ob.in.FullVersion &&
		slices.ContainsFunc(runs, func(v entities.ObjectVersion) bool { return v.Active && v.Version == ob.in.FullVersion })
}

// showsEarlierVersion reports whether the watch still shows a workload as it was before the observed version was applied. A failure
// is then of another version, such as the one that a rollback replaces, even if pods of the observed version already run.
func (ob *observation) showsEarlierVersion(o *unstructured.Unstructured) bool {
	return ob.in.FullVersion != "" && isWorkload(o) && versionIn(o) != ob.in.FullVersion
}

// deadlineExceededBefore reports whether a rollout exceeded its deadline before the last apply, and that apply was after the given
// time: the missing dependency may exist now.
func deadlineExceededBefore(o *unstructured.Unstructured, after time.Time) bool {
	applied, c := appliedAt(o), conditionOf(o, "Progressing")
	since, err := time.Parse(time.RFC3339, c.change)
	return err == nil && c.is("False") && since.Before(applied) && applied.After(after)
}

// parts are the objects that controllers created for a workload.
type parts struct {
	versions     []entities.ObjectVersion
	targets      []*unstructured.Unstructured // pods of the target version
	terminating  []*unstructured.Unstructured // deleted pods of any version that still exist
	newest       *unstructured.Unstructured   // ReplicaSet
	unreadReason string                       // why the pods are unknown
}

// parts reads the running objects of a workload. If versions do not depend on pods, it reads pods only while the object is not
// healthy. A worker that may not read pods reports that and continues.
func (ob *observation) parts(ctx context.Context, o *unstructured.Unstructured, names versionsByStamp, status entities.ObjectStatus) (parts, error) {
	p := parts{versions: ownVersion(o)}
	creator := o // the object that creates the pods
	if isUnmarked(o) {
		p.versions = unmarkedVersions(o, names)
		if status != entities.ObjectSucceeded {
			pods := ob.unwatchedPods(ctx, o)
			p.targets, p.terminating = pods, terminatingPods(pods)
		}
		return p, nil
	}
	switch kind := o.GroupVersionKind().GroupKind(); workloadOf[kind] {
	case podSet:
		pods, err := ob.controlledBy(ctx, podKind(), o)
		p.versions, p.targets, p.terminating = podVersions(o, pods, names), ofCurrentTemplate(pods, o), terminatingPods(pods)
		return p, err
	case deployment:
		sets, err := ob.controlledBy(ctx, setKind(), o)
		if err != nil {
			return p, err
		}
		p.newest, p.versions = newestOf(sets), deploymentVersions(o, sets, names)
		creator = p.newest
	case plain:
		switch kind {
		case podKind().GroupKind():
			p.targets = []*unstructured.Unstructured{o}
			return p, nil
		case kindJob:
		default:
			return p, nil
		}
	}
	if creator == nil || status == entities.ObjectSucceeded {
		return p, nil
	}
	if creator == o && hasNoMarks(o) { // an adopted Job
		p.targets = ob.unwatchedPods(ctx, o)
		return p, nil
	}
	pods, err := ob.controlledBy(ctx, podKind(), creator)
	if hasCode(err, runtimes.CodeForbidden) {
		p.unreadReason = "its pods cannot be read: " + err.Error()
		return p, nil
	}
	p.targets, p.terminating = ofCurrentTemplate(pods, o), terminatingPods(pods)
	return p, err
}

// terminatingPods are the deleted pods.
func terminatingPods(pods []*unstructured.Unstructured) (some []*unstructured.Unstructured) {
	for _, pod := range pods {
		if pod.GetDeletionTimestamp() != nil {
			some = append(some, pod)
		}
	}
	return some
}

func setKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
}

func podKind() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Pod"} }

// ofCurrentTemplate drops the pods of other templates than the current one of their controller: a failing old pod is the reason for its
// replacement.
func ofCurrentTemplate(pods []*unstructured.Unstructured, by *unstructured.Unstructured) (matching []*unstructured.Unstructured) {
	stamp := templateStamp(by)
	for _, pod := range pods {
		if podStamp(pod) == stamp {
			matching = append(matching, pod)
		}
	}
	return matching
}

// controlledBy lists the objects of a kind that a controller created for an object.
func (ob *observation) controlledBy(ctx context.Context, kind schema.GroupVersionKind, by *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	v, err := ob.viewOf(ctx, kind, by.GetNamespace())
	if err != nil || v == nil {
		return nil, err
	}
	return v.controlledBy(by), nil
}

// linksOf are the links in the annotations of an object: converge/link-dashboard, or converge/log-search for logs, with an address.
func linksOf(o *unstructured.Unstructured) (links []entities.Link) {
	for key, url := range o.GetAnnotations() {
		for prefix, kind := range map[string]string{"converge/link-": "DETAIL", "converge/log-": "LOG"} {
			if name, ok := strings.CutPrefix(key, prefix); ok && name != "" {
				links = append(links, entities.Link{Type: kind, Name: name, URL: url})
			}
		}
	}
	sort.Slice(links, func(a, b int) bool { return links[a].Type+links[a].Name < links[b].Type+links[b].Name })
	return links
}

// namespaceOf is the namespace of an instance.
func namespaceOf(in runtimes.Request) string {
	return cmp.Or(in.Payload.Address["namespace"], metav1.NamespaceDefault)
}

// orphans reports the undeclared objects with our labels (D10), in any namespace: an instance may have moved. It covers the kinds of
// the payload and the recorded kinds of the ApplySet's parent. A kind that may no longer be read delays nothing: orphans are only
// information for people.
func (ob *observation) orphans(ctx context.Context, wanted []declared) ([]entities.Object, error) {
	known := map[id]bool{}
	for excluded := range exclusionsOf(ob.in) {
		known[excluded] = true
	}
	kinds := map[schema.GroupKind]string{} // with a version, if known
	namespaces := []string{ob.namespace}
	for _, d := range wanted {
		gvk := d.GroupVersionKind()
		known[idOf(d.Unstructured)] = true
		kinds[gvk.GroupKind()] = gvk.Version
		namespaces = append(namespaces, d.GetNamespace())
	}
	parents, err := ob.inventories(ctx)
	if err != nil {
		return nil, err
	}
	for _, parent := range parents {
		for _, kind := range annotationList(parent, annotationKinds) {
			if _, ok := kinds[schema.ParseGroupKind(kind)]; !ok {
				kinds[schema.ParseGroupKind(kind)] = ""
			}
		}
		namespaces = append(append(namespaces, parent.GetNamespace()), annotationList(parent, annotationMoreNS)...)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(slices.DeleteFunc(namespaces, func(n string) bool { return n == "" }))
	var orphans []entities.Object
	byName := func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), byName) {
		found, err := ob.undeclared(ctx, kind.WithVersion(kinds[kind]), namespaces, known)
		if err != nil && !hasCode(err, runtimes.CodeForbidden) {
			return nil, err
		}
		orphans = append(orphans, found...)
	}
	return orphans, nil
}

// inventories are the ConfigMaps that record the set of objects: the instance's own, and those in its earlier namespaces. There are none
// before the first apply.
func (ob *observation) inventories(ctx context.Context) (found []*unstructured.Unstructured, err error) {
	ob.others.load(ctx, ob.cluster, ob.owner, ob.namespace)
	v, err := ob.viewOf(ctx, kindInventory, ob.namespace)
	if err != nil || v == nil {
		return nil, err
	}
	return slices.DeleteFunc(v.byOwner(ob.owner), func(o *unstructured.Unstructured) bool {
		return o.GetNamespace() != ob.namespace && !isOriginalInventory(o, ob.owner) || !isInventory(o, ob.owner) || ob.others.fenceOf(o) != nil
	}), nil
}

// undeclared reports the objects of a kind that are ours and not in known.
func (ob *observation) undeclared(ctx context.Context, kind schema.GroupVersionKind, namespaces []string, known map[id]bool) ([]entities.Object, error) {
	var found []entities.Object
	for _, namespace := range namespaces {
		v, err := ob.viewOf(ctx, kind, namespace)
		if err != nil || v == nil {
			return found, err
		}
		for _, o := range v.byOwner(ob.owner) {
			if !isInNamespaces(namespaces, o) || known[idOf(o)] || createdByOthers(o) || isInventory(o, ob.owner) || ob.others.inventoryOf(o) != nil {
				continue
			}
			known[idOf(o)] = true // the same view may serve all namespaces
			object := ob.newObject(o)
			object.Orphaned, object.Versions = true, ownVersion(o)
			object.Status, _ = health(o) // an orphan does not affect health: no expression is evaluated
			object.Message = orphanMessage(o)
			found = append(found, object)
		}
	}
	return found, nil
}

// orphanMessage is what happens to an object that is no longer declared.
func orphanMessage(o *unstructured.Unstructured) string {
	if o.GetDeletionTimestamp() != nil {
		return "no longer declared, " + deletionMessage(o)
	}
	if mark := keepMark(o); mark != "" {
		return "no longer declared, kept: " + mark
	}
	return "no longer declared, left in place"
}

func idOf(o *unstructured.Unstructured) id {
	return id{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
}

// annotationList reads an annotation with a list separated by commas.
func annotationList(o metav1.Object, annotation string) []string {
	return strings.FieldsFunc(o.GetAnnotations()[annotation], func(r rune) bool { return r == ',' || r == ' ' })
}
