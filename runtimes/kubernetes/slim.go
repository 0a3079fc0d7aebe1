package kubernetes

import (
	"time"
	interned "unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// annotationPodStamp is where slim stores the stamp of a pod, and of the pods of a ReplicaSet. It exists only in memory, in no cluster.
const annotationPodStamp = "converge/stamp"

// slim removes the unused parts of an object, because thousands are in memory: managedFields, except whether Converge is in them,
// and nearly everything of the ReplicaSets and Pods that a controller created. It changes the object. A declared object keeps all
// other fields, since drift is computed from it. Equal strings are stored once: names of fields, images, versions.
func slim(o *unstructured.Unstructured) *unstructured.Unstructured {
	by := metav1.GetControllerOfNoCopy(o)
	var mark []any
	if by == nil {
		mark = markOf(o)
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	if by != nil {
		switch o.GetKind() {
		case "ReplicaSet":
			o = slimReplicaSet(o, by)
		case "Pod":
			o = slimPod(o, by)
		}
	}
	internStrings(o.Object)
	if mark != nil {
		nestedMap(o.Object, "metadata")["managedFields"] = mark
	}
	return o
}

// appliedMark replaces managedFields if Converge is in them: it says that Converge applied the object. It is shared, and never
// changed.
var appliedMark = []any{map[string]any{"manager": FieldManager, "operation": string(metav1.ManagedFieldsOperationApply)}}

// markOf is the kept part of an object's managedFields. For a workload it has the time of our last apply, and for a scaled object
// the owner of the replicas.
func markOf(o *unstructured.Unstructured) []any {
	at := appliedAt(o)
	if !appliedByUs(o) {
		return nil
	}
	mark := map[string]any{"manager": FieldManager, "operation": string(metav1.ManagedFieldsOperationApply)}
	if isWorkload(o) && !at.IsZero() {
		mark["time"] = at.UTC().Format(time.RFC3339)
	}
	if ours := appliedFields(o); len(nestedMap(ours, "f:spec")) > 0 && containsPath(ours, replicas) {
		mark["fieldsV1"] = replicasMark
	}
	by := scaledBy(o)
	switch {
	case by != "":
		scale := map[string]any{"manager": by, "operation": string(metav1.ManagedFieldsOperationUpdate), "subresource": "scale", "fieldsV1": replicasMark}
		return []any{mark, scale}
	case len(mark) > 2:
		return []any{mark}
	}
	return appliedMark
}

// replicasMark says that a manager owns the replicas. It is shared, and never changed.
var replicasMark = map[string]any{"f:spec": map[string]any{"f:replicas": map[string]any{}}}

// slimReplicaSet keeps the fields that a Deployment's versions are read from. Most ReplicaSets are empty ones of earlier versions,
// of which only the number is kept.
func slimReplicaSet(o *unstructured.Unstructured, by *metav1.OwnerReference) *unstructured.Unstructured {
	kept := slimmed(o, by, map[string]any{annotationRevision: o.GetAnnotations()[annotationRevision], annotationPodStamp: podStamp(o)})
	if n := number(o, 0, "spec", "replicas"); n > 0 {
		kept.Object["spec"] = map[string]any{"replicas": int64(n)}
	}
	status := map[string]any{}
	for _, name := range []string{"replicas", "availableReplicas"} {
		if n := number(o, 0, "status", name); n > 0 {
			status[name] = int64(n)
		}
	}
	if conditionOf(o, "ReplicaFailure").is("True") {
		status["conditions"] = nestedMap(o.Object, "status")["conditions"]
	}
	if len(status) > 0 {
		kept.Object["status"] = status
	}
	return kept
}

// slimPod keeps the status of a pod: its phase, whether it is ready, and the containers that cannot start.
func slimPod(o *unstructured.Unstructured, by *metav1.OwnerReference) *unstructured.Unstructured {
	kept := slimmed(o, by, map[string]any{annotationPodStamp: podStamp(o)})
	if gone := o.GetDeletionTimestamp(); gone != nil {
		kept.SetDeletionTimestamp(gone)
	}
	in := nestedMap(o.Object, "status")
	status := map[string]any{"phase": in["phase"]}
	all, _ := in["conditions"].([]any)
	var conditions []any
	for _, each := range all {
		c, _ := each.(map[string]any)
		if c["type"] == "Ready" || c["type"] == "PodScheduled" && (c["status"] == "False" || !conditionOf(o, "Ready").found) {
			conditions = append(conditions, c)
		}
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
		if failing := failingOf(in[list]); len(failing) > 0 {
			status[list] = failing
		}
	}
	kept.Object["status"] = status
	if node := text(o, "spec", "nodeName"); node != "" && (!conditionOf(o, "Ready").is("True") || o.GetDeletionTimestamp() != nil) {
		kept.Object["spec"] = map[string]any{"nodeName": node}
		kept.SetFinalizers(o.GetFinalizers())
	}
	return kept
}

// failingOf are the statuses of containers that cannot start, or ended with an error.
func failingOf(list any) (failing []any) {
	all, _ := list.([]any)
	for _, each := range all {
		c, _ := each.(map[string]any)
		if reason, _ := nestedMap(c, "state", "waiting")["reason"].(string); cannotStart(reason) || exitedNonZero(c) {
			failing = append(failing, map[string]any{"name": c["name"], "restartCount": c["restartCount"], "state": c["state"], "lastState": c["lastState"]})
		}
	}
	return failing
}

// exitedNonZero: a container has ended, with another code than 0.
func exitedNonZero(c map[string]any) bool {
	code, ended := nestedMap(c, "state", "terminated")["exitCode"].(int64)
	return ended && code != 0
}

// slimmed is a new object with the name and the owner of the original.
func slimmed(o *unstructured.Unstructured, by *metav1.OwnerReference, annotations map[string]any) *unstructured.Unstructured {
	in := nestedMap(o.Object, "metadata")
	labels := map[string]any{}
	for _, name := range []string{LabelApplication, LabelService, LabelChannel, LabelInstance, LabelPartOf} {
		if value, ok := o.GetLabels()[name]; ok {
			labels[name] = value
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(),
		"metadata": map[string]any{
			"name": o.GetName(), "namespace": o.GetNamespace(), "uid": string(o.GetUID()),
			"resourceVersion": o.GetResourceVersion(), "creationTimestamp": in["creationTimestamp"],
			"labels": labels, "annotations": annotations,
			"ownerReferences": []any{map[string]any{
				"apiVersion": by.APIVersion, "kind": by.Kind, "name": by.Name, "uid": string(by.UID), "controller": true,
			}},
		},
	}}
}

// shareMetadata makes an object that a controller created use the label and owner values of a similar one, so that the pods and the
// ReplicaSets of an instance store them once. The contents of a view are never changed.
func shareMetadata(o, similar *unstructured.Unstructured) {
	own, shared := nestedMap(o.Object, "metadata"), nestedMap(similar.Object, "metadata")
	by, other := metav1.GetControllerOfNoCopy(o), metav1.GetControllerOfNoCopy(similar)
	if by == nil || other == nil || o.GetKind() != "ReplicaSet" && o.GetKind() != "Pod" {
		return
	}
	if by.UID == other.UID {
		own["ownerReferences"] = shared["ownerReferences"]
	}
	if o.GetLabels()[LabelPartOf] == similar.GetLabels()[LabelPartOf] { // the other labels name the owner, which is the same
		own["labels"] = shared["labels"]
	}
}

// internStrings replaces strings by equal ones that are already stored.
func internStrings(value any) any {
	switch v := value.(type) {
	case string:
		if len(v) > 128 {
			return v // rarely equal to another
		}
		return interned.Make(v).Value()
	case map[string]any:
		for _, name := range keysOf(v) {
			inner := v[name]
			delete(v, name)
			v[interned.Make(name).Value()] = internStrings(inner)
		}
	case []any:
		for i := range v {
			v[i] = internStrings(v[i])
		}
	}
	return value
}
