package kubernetes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// orphanDependents is the value of AnnotationRecreate that keeps the dependents of a recreated object.
const orphanDependents = "orphan"

// mayRecreate reports whether an object may be deleted and recreated.
func mayRecreate(o *unstructured.Unstructured) bool {
	text := o.GetAnnotations()[AnnotationRecreate]
	return text == "true" || text == orphanDependents
}

// dependents is the deletion policy for the dependents of a recreated object. The new object adopts the kept pods and ReplicaSets if
// its selector matches; otherwise they have no controller.
func dependents(o *unstructured.Unstructured) metav1.DeletionPropagation {
	if o.GetAnnotations()[AnnotationRecreate] == orphanDependents {
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationForeground
}
