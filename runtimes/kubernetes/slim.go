package kubernetes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// slim takes from an object what is never read of it, because thousands are held in memory:
// managedFields of all, and nearly everything of the ReplicaSets and Pods that a controller made.
// The object is changed; one that somebody declared keeps all else, since drift is judged by it.
func slim(o *unstructured.Unstructured) *unstructured.Unstructured {
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	if metav1.GetControllerOfNoCopy(o) == nil {
		return o
	}
	var paths [][]string
	switch o.GetKind() {
	case "ReplicaSet":
		paths = [][]string{{"spec", "replicas"}, {"spec", "template", "metadata", "annotations", AnnotationVersion}, {"status"}}
	case "Pod":
		paths = [][]string{
			{"metadata", "annotations", AnnotationVersion},
			{"status", "phase"},
			{"status", "conditions"},
			{"status", "containerStatuses"},
			{"status", "initContainerStatuses"},
		}
		slimContainers(o)
	default:
		return o
	}
	kept := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "generation", "labels", "ownerReferences", "creationTimestamp", "deletionTimestamp"} {
		paths = append(paths, []string{"metadata", name})
	}
	if o.GetKind() == "ReplicaSet" {
		paths = append(paths, []string{"metadata", "annotations", annotationRevision})
	}
	for _, path := range paths {
		value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
		if err != nil || !found {
			continue
		}
		into := kept
		for _, name := range path[:len(path)-1] {
			next, ok := into[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				into[name] = next
			}
			into = next
		}
		into[path[len(path)-1]] = value
	}
	return &unstructured.Unstructured{Object: kept}
}

// slimContainers leaves of the statuses of containers what says how they run.
func slimContainers(pod *unstructured.Unstructured) {
	status, _ := pod.Object["status"].(map[string]any)
	for _, list := range []string{"containerStatuses", "initContainerStatuses"} {
		containers, _ := status[list].([]any)
		for i, c := range containers {
			from, _ := c.(map[string]any)
			kept := map[string]any{}
			for _, field := range []string{"name", "state", "lastState", "restartCount"} {
				if value, ok := from[field]; ok {
					kept[field] = value
				}
			}
			containers[i] = kept
		}
	}
}
