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
	entries, _ := nestedMap(o.Object, "metadata")["managedFields"].([]any)
	for _, each := range entries {
		entry, _ := each.(map[string]any)
		manager, _ := entry["manager"].(string)
		if entry["subresource"] != "scale" || strings.HasPrefix(manager, "kubectl") || manager == FieldManager {
			continue
		}
		if _, ok := nestedMap(entry, "fieldsV1", "f:spec")["f:replicas"]; ok {
			return manager
		}
	}
	return ""
}

// scaleTargetOf is the object that an autoscaler scales; not ok for an object that is no autoscaler. A paused autoscaler scales nothing.
func scaleTargetOf(o *unstructured.Unstructured) (target id, ok bool) {
	kind := idOf(o).kind
	if kind != kindAutoscaler.GroupKind() && kind != kindScaled {
		return id{}, false
	}
	ref := nestedMap(o.Object, "spec", "scaleTargetRef")
	refField := func(field, fallback string) string {
		if text, _ := ref[field].(string); text != "" {
			return text
		}
		return fallback
	}
	version, err := schema.ParseGroupVersion(refField("apiVersion", "apps/v1"))
	name := refField("name", "")
	return id{schema.GroupKind{Group: version.Group, Kind: refField("kind", "Deployment")}, o.GetNamespace(), name}, err == nil && name != ""
}

// findScalers records which declared objects other declared objects scale.
func findScalers(objects []declared) {
	by := map[id]string{}
	for _, d := range objects {
		if target, ok := scaleTargetOf(d.Unstructured); ok {
			by[target] = displayName(d.Unstructured)
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
	list, err := clients.resourceClient(at, d.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", false // this worker may not ask: only the field manager is known
	}
	for n := range list.Items {
		if target, ok := scaleTargetOf(&list.Items[n]); ok && target == idOf(d.Unstructured) {
			return displayName(&list.Items[n]), true
		}
	}
	return "", true
}

// findClusterScaler finds an autoscaler that is not among the declared objects. If the autoscaler that wrote the replicas is gone, Converge
// owns them again.
func (a *apply) findClusterScaler(ctx context.Context, t *trial) {
	if t.scaler != "" || t.scalerGone || t.live == nil || scaledBy(t.live) != autoscalers {
		return
	}
	if name, known := a.findScaler(ctx, a.clients, t.declared); name != "" {
		t.scaler = name
	} else {
		t.scalerGone = known
	}
}

// overridesScaler reports whether an apply would change replicas that an autoscaler in the cluster scales. No earlier step has
// searched for it, because it has written nothing so far.
func (a *apply) overridesScaler(ctx context.Context, t *trial) bool {
	if t.outcome != changed || t.scaler != "" || t.scalerGone || !slices.ContainsFunc(t.fields, func(f runtimes.FieldChange) bool { return f.Path == replicas.String() }) {
		return false
	}
	t.scaler, _ = a.findScaler(ctx, a.clients, t.declared)
	return t.scaler != ""
}

func includesReplicas(found []difference) bool {
	return slices.ContainsFunc(found, func(d difference) bool { return slices.Equal(d.at, replicas) })
}

// isByScaler reports whether the owner of a field wrote it as an autoscaler does.
func (c conflict) isByScaler() bool {
	return c.field == replicas.String() && c.subresource == "scale" && !strings.HasPrefix(c.owner, "kubectl")
}

// mayYield reports whether a field may stay with its other owner. The watched object did not show that yet.
func (a *apply) mayYield(t *trial, live *unstructured.Unstructured, c conflict) bool {
	if c.isByScaler() {
		return !t.scalerGone
	}
	ignored := func(i entities.IgnoredDifference) bool { return i.MatchesManager(c.owner) }
	return isWithinPaths(c.field, t.omittedPaths(live)) || slices.ContainsFunc(t.ignoredManagers, ignored)
}
