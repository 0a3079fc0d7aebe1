package kubernetes

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// The replicas of a scaled object belong to its scaler (H2): an autoscaler among the declared objects, an autoscaler in the cluster
// that is found when it matters, or a writer through the subresource scale, as autoscalers do. A VerticalPodAutoscaler changes pods
// and not their template, so no field has to be left to it.

var (
	replicas       = path{{field: "spec"}, {field: "replicas"}}
	kindAutoscaler = schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}
	kindScaled     = schema.GroupKind{Group: "keda.sh", Kind: "ScaledObject"} // its controller makes an autoscaler for it
)

// autoscalers is the field manager of the controller of HorizontalPodAutoscalers at the subresource scale. Controllers that do not
// scale use the same name.
const autoscalers = "kube-controller-manager"

// scaledBy is the field manager that wrote the replicas of an object through the subresource scale; empty: none, or a person.
func scaledBy(o *unstructured.Unstructured) string {
	entries, _ := inside(o.Object, "metadata")["managedFields"].([]any)
	for _, each := range entries {
		entry, _ := each.(map[string]any)
		manager, _ := entry["manager"].(string)
		if entry["subresource"] != "scale" || strings.HasPrefix(manager, "kubectl") || manager == FieldManager {
			continue
		}
		if _, ok := inside(entry, "fieldsV1", "f:spec")["f:replicas"]; ok {
			return manager
		}
	}
	return ""
}

// scales is the object that an autoscaler scales; not ok for an object that is no autoscaler. A paused autoscaler scales nothing.
func scales(o *unstructured.Unstructured) (target id, ok bool) {
	kind := idOf(o).kind
	if kind != kindAutoscaler.GroupKind() && kind != kindScaled {
		return id{}, false
	}
	ref := inside(o.Object, "spec", "scaleTargetRef")
	of := func(field, otherwise string) string {
		if text, _ := ref[field].(string); text != "" {
			return text
		}
		return otherwise
	}
	version, err := schema.ParseGroupVersion(of("apiVersion", "apps/v1"))
	name := of("name", "")
	return id{schema.GroupKind{Group: version.Group, Kind: of("kind", "Deployment")}, o.GetNamespace(), name}, err == nil && name != ""
}

// findScalers records which declared objects other declared objects scale.
func findScalers(objects []declared) {
	by := map[id]string{}
	for _, d := range objects {
		if target, ok := scales(d.Unstructured); ok {
			by[target] = called(d.Unstructured)
		}
	}
	for n := range objects {
		objects[n].scaler = by[idOf(objects[n].Unstructured)]
	}
}

// findScaler reads from the cluster whether there is an autoscaler for an object whose replicas are about to change, or were written
// by an autoscaler. If known is false, this could not be read.
func (r *Runtime) findScaler(ctx context.Context, clients *clients, d declared) (name string, known bool) {
	at, err := r.cluster.resource(ctx, kindAutoscaler)
	if err != nil {
		return "", false
	}
	list, err := clients.at(at, d.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", false // this worker may not ask: only the field manager is known
	}
	for n := range list.Items {
		if target, ok := scales(&list.Items[n]); ok && target == idOf(d.Unstructured) {
			return called(&list.Items[n]), true
		}
	}
	return "", true
}

// scaled finds an autoscaler that is not among the declared objects. If the autoscaler that wrote the replicas is gone, Converge
// owns them again.
func (a *apply) scaled(ctx context.Context, t *trial) {
	if t.scaler != "" || t.unscaled || t.live == nil || scaledBy(t.live) != autoscalers {
		return
	}
	if name, known := a.findScaler(ctx, a.clients, t.declared); name != "" {
		t.scaler = name
	} else {
		t.unscaled = known
	}
}

// takesReplicas reports whether an apply would change replicas that an autoscaler in the cluster scales. No earlier step has
// searched for it, because it has written nothing so far.
func (a *apply) takesReplicas(ctx context.Context, t *trial) bool {
	if t.outcome != changed || t.scaler != "" || t.unscaled || !slices.ContainsFunc(t.fields, func(f runtimes.FieldChange) bool { return f.Path == replicas.String() }) {
		return false
	}
	t.scaler, _ = a.findScaler(ctx, a.clients, t.declared)
	return t.scaler != ""
}

func hasReplicas(found []difference) bool {
	return slices.ContainsFunc(found, func(d difference) bool { return slices.Equal(d.at, replicas) })
}

// scales reports whether the owner of a field wrote it as an autoscaler does.
func (c conflict) scales() bool {
	return c.field == replicas.String() && c.subresource == "scale" && !strings.HasPrefix(c.owner, "kubectl")
}

// yields reports whether a field may stay with its other owner. The watched object did not show that yet.
func (a *apply) yields(t *trial, live *unstructured.Unstructured, c conflict) bool {
	if c.scales() {
		return !t.unscaled
	}
	by := func(i entities.IgnoredDifference) bool { return i.By(c.owner) }
	return within(c.field, t.theirsIn(live)) || slices.ContainsFunc(t.ignore, by)
}
