package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// readOnly is a cluster with access: read. Another tool applies there, so no object has our labels, and no watch shows it: each object is
// read when it is observed. Dry runs need the permission to write, so the comparison is our own (lacking.go).
type readOnly struct{ runtime *Runtime }

var (
	_ runtimes.Runtime  = (*readOnly)(nil)
	_ runtimes.Planner  = (*readOnly)(nil)
	_ runtimes.Capturer = (*readOnly)(nil)
)

// onlyReads reports whether a request changes nothing. A review of the own permissions is a request of POST that the server does not store.
func onlyReads(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodPost:
		return strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews")
	}
	return false
}

// Apply implements runtimes.Runtime: it is refused.
func (r *readOnly) Apply(context.Context, runtimes.Request) (runtimes.Output, error) {
	return runtimes.Output{ExitCode: 1}, runtimes.Permanent(fmt.Errorf("runtime %s has access: read: nothing is applied there", r.runtime.def.Name))
}

// Observe implements runtimes.Runtime. An object that has all declared fields counts as the observed version, regardless of who
// applied it. The version of another one is unknown, and its message names the fields. Hooks and undeclared objects are not reported.
func (r *readOnly) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	if in.Payload == nil {
		return nil, ctx.Err()
	}
	ob := &observation{Runtime: r.runtime, in: in, owner: in.Owner, namespace: namespaceOf(in)}
	var objects []entities.Object
	err := ob.compareAll(ctx, func(c compared) error {
		object, err := ob.objectOfOthers(ctx, c)
		objects = append(objects, object)
		return err
	})
	if err != nil {
		return nil, r.runtime.cluster.withSilence(readingError("observe "+in.Owner.String(), err))
	}
	return objects, nil
}

// Plan implements runtimes.Planner, without the server: its defaults, and the refusals of admission, are unknown.
func (r *readOnly) Plan(ctx context.Context, in runtimes.Request) ([]runtimes.Change, error) {
	if in.Payload == nil {
		return nil, ctx.Err()
	}
	ob := &observation{Runtime: r.runtime, in: in, owner: in.Owner, namespace: namespaceOf(in)}
	var changes []runtimes.Change
	err := ob.compareAll(ctx, func(c compared) error {
		if c.live == nil || len(c.lacking) > 0 {
			changes = append(changes, c.change())
		}
		return nil
	})
	if err != nil {
		return nil, explain(ctx, "plan", err)
	}
	return changes, nil
}

// Capabilities implements runtimes.Capturer.
func (r *readOnly) Capabilities(ctx context.Context) (string, map[string][]string, error) {
	return r.runtime.Capabilities(ctx)
}

// compared is a declared object, the live one, and the declared fields that the live one lacks.
type compared struct {
	declared
	live    *unstructured.Unstructured // nil: it does not exist
	reason  string                     // why it does not exist
	lacking []difference
}

// compareAll reads and compares every declared object, without the hooks.
func (ob *observation) compareAll(ctx context.Context, use func(compared) error) error {
	all, err := ob.declare(ctx, ob.in)
	if err != nil {
		return err
	}
	clients, err := ob.clientsFor(ctx, ob.in)
	if err != nil {
		return err
	}
	permanent, _ := splitHooks(all)
	for _, d := range permanent {
		c, err := ob.compareLive(ctx, clients, d)
		if err == nil {
			err = use(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (ob *observation) compareLive(ctx context.Context, clients *clients, d declared) (compared, error) {
	c := compared{declared: d}
	kind, err := ob.served(ctx, d.GroupVersionKind())
	if meta.IsNoMatchError(err) {
		c.reason = fmt.Sprintf("does not exist: the server does not know the kind %s of %s", d.GetKind(), d.GetAPIVersion())
		return c, nil
	}
	if err != nil {
		return c, err
	}
	live, err := clients.resourceClient(kind, d.GetNamespace()).Get(ctx, d.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.reason = "does not exist"
		return c, nil
	}
	if err != nil {
		return c, err
	}
	c.live = live
	if c.lacking, err = lacking(live, d); err != nil {
		return c, err
	}
	if d.scaler == "" && includesReplicas(c.lacking) {
		if c.scaler, _ = ob.findScaler(ctx, clients, d); c.scaler != "" {
			c.lacking = dropDifferences(c.lacking, []path{replicas})
		}
	}
	return c, nil
}

// deployedByOthers reports an object in a report-only channel that does not have our labels: no watch shows it, so it is read.
func (ob *observation) deployedByOthers(ctx context.Context, d declared) (entities.Object, error) {
	clients, err := ob.clientsFor(ctx, ob.in)
	if err != nil {
		return entities.Object{}, err
	}
	c, err := ob.compareLive(ctx, clients, d)
	if err != nil {
		return entities.Object{}, err
	}
	return ob.objectOfOthers(ctx, c)
}

// objectOfOthers reports an object as if Converge had adopted it at the observed version.
func (ob *observation) objectOfOthers(ctx context.Context, c compared) (entities.Object, error) {
	object := ob.newObject(c.Unstructured)
	if c.live == nil {
		object.Message = c.reason
		return object, nil
	}
	version := ob.in.FullVersion
	if len(c.lacking) > 0 {
		version = ""
	}
	seen, err := asAdopted(c.live, c.declared, version)
	if err != nil {
		return object, err
	}
	if err := ob.describe(ctx, &object, seen, versionsByStamp{templateStamp(c.Unstructured): version}); err != nil {
		return object, err
	}
	if len(c.lacking) > 0 {
		object.Message = describeDrift(c.lacking, c.live) // its own problem, if it has one, is that of another version
		return object, nil
	}
	object.AsDeclared = object.Status != entities.ObjectSucceeded
	return object, nil
}

// asAdopted is a copy of a live object as an adoption at a version leaves it: without marks in the template of its pods (marks.go).
func asAdopted(live *unstructured.Unstructured, d declared, version string) (*unstructured.Unstructured, error) {
	seen := declared{Unstructured: live.DeepCopy()}
	if err := seen.unmark(); err != nil {
		return nil, err
	}
	notes := map[string]string{AnnotationVersion: version}
	if isWorkload(live) {
		notes[AnnotationUnmarked] = templateStamp(d.Unstructured)
	}
	err := merge(seen.Object, notes, []string{"metadata", "annotations"})
	return seen.Unstructured, err
}

// change is a comparison in the form of a plan.
func (c compared) change() runtimes.Change {
	t := &trial{declared: c.declared, live: c.live, outcome: created}
	if c.live != nil {
		t.outcome = changed
		for _, d := range c.lacking {
			t.fields = append(t.fields, d.FieldChange)
		}
	}
	return t.change()
}
