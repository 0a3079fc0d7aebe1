package kubernetes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// orphaning is the value of AnnotationRecreate by which what an object made stays when it is made again.
const orphaning = "orphan"

// recreates reports whether an object may be deleted and made again.
func recreates(o *unstructured.Unstructured) bool {
	text := o.GetAnnotations()[AnnotationRecreate]
	return text == "true" || text == orphaning
}

// dependents is what becomes of what an object made when it is deleted to be made again. What stays, pods and ReplicaSets, is
// taken up by the new one where its selector fits, and is nobody's where it does not.
func dependents(o *unstructured.Unstructured) metav1.DeletionPropagation {
	if o.GetAnnotations()[AnnotationRecreate] == orphaning {
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationForeground
}
