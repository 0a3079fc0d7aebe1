package kubernetes

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	kindNamespace  = schema.GroupKind{Kind: "Namespace"}
	kindDefinition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	kindClaim      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
)

// firstWave is the one of what others are made in or of.
const firstWave = math.MinInt

// waveOf reads the wave of an object. Namespaces and CustomResourceDefinitions come before all,
// whatever they say.
func waveOf(o *unstructured.Unstructured) (int, error) {
	if kind := o.GroupVersionKind().GroupKind(); kind == kindNamespace || kind == kindDefinition {
		return firstWave, nil
	}
	text, ok := o.GetAnnotations()[AnnotationWave]
	if !ok {
		return 0, nil
	}
	wave, err := strconv.ParseInt(text, 10, 32) // as when compiling; hooks of charts are far out
	if err != nil {
		return 0, fmt.Errorf("%s: annotation %s is %q; expected a whole number", idOf(o), AnnotationWave, text)
	}
	return int(wave), nil
}

// rankOf orders the kinds of one wave so that what is referred to is there first. Kinds that are not
// known come last: mostly custom ones, whose controllers look for the rest.
func rankOf(kind string) int {
	order := [...]string{
		"Namespace", "CustomResourceDefinition", "PriorityClass", "StorageClass", "IngressClass", "NetworkPolicy",
		"ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap",
		"PersistentVolume", "PersistentVolumeClaim", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"Service", "DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "StatefulSet",
		"HorizontalPodAutoscaler", "Job", "CronJob", "Ingress", "APIService",
		"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
	}
	if at := slices.Index(order[:], kind); at >= 0 {
		return at
	}
	return len(order)
}
