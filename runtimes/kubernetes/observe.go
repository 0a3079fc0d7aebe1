package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// look is one Observe.
type look struct {
	*Runtime
	in    runtimes.Instance
	owner runtimes.Owner
	home  string // namespace of the instance
}

// Observe implements runtimes.Runtime from what is watched: while nothing changes it asks the server
// nothing. A declared object that is not there is an object without versions, also when the server
// does not know its kind (the CustomResourceDefinition may be part of the same payload). Objects of
// the instance that are no longer declared are reported as orphaned (D10).
func (r *Runtime) Observe(ctx context.Context, in runtimes.Instance) ([]entities.Object, error) {
	if in.Payload == nil {
		return nil, ctx.Err()
	}
	l := &look{
		Runtime: r, in: in, home: homeOf(in),
		owner: ownerIn(in),
	}
	objects, err := l.objects(ctx)
	if err != nil {
		return nil, readingError(fmt.Sprintf("look at %s/%s in %s", in.Application, in.Service, in.Channel), err)
	}
	return objects, nil
}

func (l *look) objects(ctx context.Context) ([]entities.Object, error) {
	wanted, err := l.declare(ctx, l.in)
	if err != nil {
		return nil, err
	}
	objects := make([]entities.Object, 0, len(wanted))
	for _, d := range wanted {
		object, err := l.object(ctx, d)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	orphans, err := l.orphans(ctx, wanted)
	return append(objects, orphans...), err
}

// viewOf finds the view where objects of a kind are. It is nil when the server has no such kind.
func (l *look) viewOf(ctx context.Context, kind schema.GroupVersionKind, namespace string) (*view, error) {
	r, err := l.served(ctx, kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := l.cluster.view(ctx, r, namespace)
	if hasCode(err, runtimes.CodeUnknownKind) {
		return nil, nil // it was removed a moment ago
	}
	return v, err
}

func (l *look) served(ctx context.Context, kind schema.GroupVersionKind) (resource, error) {
	if kind.Version == "" {
		return l.cluster.preferred(ctx, kind.GroupKind())
	}
	return l.cluster.resource(ctx, kind)
}

// object reports a declared object.
func (l *look) object(ctx context.Context, d declared) (entities.Object, error) {
	object := l.named(d.Unstructured)
	v, err := l.viewOf(ctx, d.GroupVersionKind(), d.GetNamespace())
	if err != nil {
		return object, err
	}
	if v == nil {
		object.Message = fmt.Sprintf("not there: the server does not know the kind %s of %s", d.GetKind(), d.GetAPIVersion())
		return object, nil
	}
	live := v.get(d.GetNamespace(), d.GetName())
	if live == nil {
		object.Message = "not there"
		return object, nil
	}
	if owner, _ := ownerOf(live.GetLabels()); owner != l.owner {
		object.Message = fmt.Sprintf("it is there, and belongs to %s/%s in %s", owner.Application, owner.Service, owner.Channel)
		return object, nil
	}
	return object, l.report(ctx, &object, live, d)
}

// named begins the report of an object. The namespace is told where it is not the instance's own.
func (l *look) named(o *unstructured.Unstructured) entities.Object {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" && namespace != l.home {
		name = namespace + "/" + name
	}
	return entities.Object{Name: name, Type: o.GetKind(), Status: entities.ObjectPending}
}

// report says of a declared object that is there what it runs, how it is, and whether it drifted.
func (l *look) report(ctx context.Context, object *entities.Object, live *unstructured.Unstructured, d declared) error {
	object.Status, object.Message = health(live)
	object.Links = linksOf(live)
	p, err := l.parts(ctx, live, object.Status)
	if err != nil {
		return err
	}
	object.Versions = p.versions
	if object.Status == entities.ObjectSucceeded && l.behind(live, p.versions) {
		object.Status, object.Message = entities.ObjectPending, "what it says of itself and what runs of it do not agree yet"
	}
	if object.Status != entities.ObjectSucceeded {
		found := troubleOf(p.targets, l.now(), l.def.Kubernetes.FailAfter)
		if found.message != "" {
			object.Message = found.message
		} else if p.unread != "" {
			object.Message += "; " + p.unread
		}
		if found.failed {
			object.Status = entities.ObjectFailed
		}
		if object.Status == entities.ObjectFailed && l.before(live) {
			object.Status, object.Message = entities.ObjectPending, "still told as it was before: "+object.Message
		}
		object.Events = l.events(ctx, *object, live, p, found)
	}
	return l.judge(ctx, object, live, d)
}

// behind tells that what a workload says of itself is about another moment than what runs of it, because
// kinds are watched apart: pods of the target are there and it does not know of them yet, or a
// Deployment has all its replicas and they have not been seen.
func (l *look) behind(o *unstructured.Unstructured, runs []entities.ObjectVersion) bool {
	kind := workloadOf(o.GroupVersionKind().GroupKind())
	switch {
	case kind == plain || len(runs) == 0:
		return false
	case kind == deployment && runs[0].Replicas < runs[0].TargetReplicas:
		return true
	}
	return templateVersion(o) != l.in.FullVersion &&
		slices.ContainsFunc(runs, func(v entities.ObjectVersion) bool { return v.Active && v.Version == l.in.FullVersion })
}

// before tells that a workload is told as it was before it was made what is asked about: a watch has not
// brought the change yet. Whatever fails there is another version, such as the one that a rollback takes
// back, while pods of the version asked about may run beside it.
func (l *look) before(o *unstructured.Unstructured) bool {
	return l.in.FullVersion != "" && workloadOf(o.GroupVersionKind().GroupKind()) != plain && templateVersion(o) != l.in.FullVersion
}

// parts are the objects that controllers made for a workload.
type parts struct {
	versions []entities.ObjectVersion
	targets  []*unstructured.Unstructured // pods of the version that it shall run
	newest   *unstructured.Unstructured   // ReplicaSet
	unread   string                       // why the pods are not known
}

// parts reads what a workload runs. Where versions do not depend on pods, they are read only while
// the object is not well, and a worker that may not read pods says so and goes on.
func (l *look) parts(ctx context.Context, o *unstructured.Unstructured, status entities.ObjectStatus) (parts, error) {
	p := parts{versions: ownVersion(o)}
	by := o // who makes the pods
	switch kind := o.GroupVersionKind().GroupKind(); workloadOf(kind) {
	case podSet:
		pods, err := l.made(ctx, podKind(), o)
		p.versions, p.targets = podVersions(o, pods), ofVersion(pods, templateVersion(o))
		return p, err
	case deployment:
		sets, err := l.made(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, o)
		if err != nil {
			return p, err
		}
		p.newest, p.versions = newestOf(sets), deploymentVersions(o, sets)
		by = p.newest
	case plain:
		switch kind {
		case podKind().GroupKind():
			p.targets = []*unstructured.Unstructured{o}
			return p, nil
		case schema.GroupKind{Group: "batch", Kind: "Job"}:
		default:
			return p, nil
		}
	}
	if by == nil || status == entities.ObjectSucceeded {
		return p, nil
	}
	pods, err := l.made(ctx, podKind(), by)
	if hasCode(err, runtimes.CodeForbidden) {
		p.unread = "its pods cannot be read: " + err.Error()
		return p, nil
	}
	p.targets = ofVersion(pods, templateVersion(o))
	return p, err
}

func podKind() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Pod"} }

// ofVersion leaves out the pods of other versions: that an old one fails is why it is replaced.
func ofVersion(pods []*unstructured.Unstructured, version string) (of []*unstructured.Unstructured) {
	for _, pod := range pods {
		if pod.GetAnnotations()[AnnotationVersion] == version {
			of = append(of, pod)
		}
	}
	return of
}

// made lists what a controller made of a kind for an object.
func (l *look) made(ctx context.Context, kind schema.GroupVersionKind, by *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	v, err := l.viewOf(ctx, kind, by.GetNamespace())
	if err != nil || v == nil {
		return nil, err
	}
	return v.controlledBy(l.owner, by), nil
}

// linksOf are the links that an object declares by annotations: converge/link-dashboard, or
// converge/log-search for logs, and an address.
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

// homeOf is the namespace of an instance.
func homeOf(in runtimes.Instance) string {
	if namespace := in.Payload.Address["namespace"]; namespace != "" {
		return namespace
	}
	return metav1.NamespaceDefault
}
