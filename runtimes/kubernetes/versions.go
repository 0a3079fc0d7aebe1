package kubernetes

import (
	"sort"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/entities"
)

const (
	// annotationRevision is the annotation in which the Deployment controller numbers ReplicaSets.
	annotationRevision = "deployment.kubernetes.io/revision"
	// annotationTemplate is the annotation in which the server numbers the templates of a DaemonSet.
	annotationTemplate = "deprecated.daemonset.template.generation"
)

// workload is how the versions of a kind are read.
type workload int

const (
	plain      workload = iota // from the object's own annotation
	deployment                 // from its ReplicaSets
	podSet                     // from its Pods
)

// workloadOf lists the kinds that are not plain.
var workloadOf = map[schema.GroupKind]workload{
	{Group: "apps", Kind: "Deployment"}:  deployment,
	{Group: "apps", Kind: "StatefulSet"}: podSet,
	{Group: "apps", Kind: "DaemonSet"}:   podSet,
	{Group: "apps", Kind: "ReplicaSet"}:  podSet,
}

// versionIn is the full version at which an object was applied; empty if it is unknown.
func versionIn(o *unstructured.Unstructured) string { return o.GetAnnotations()[AnnotationVersion] }

func number(o *unstructured.Unstructured, fallback int64, path ...string) int {
	if n, found, err := unstructured.NestedInt64(o.Object, path...); err == nil && found {
		return int(n)
	}
	return int(fallback)
}

// ownVersion is the version of an object without pods.
func ownVersion(o *unstructured.Unstructured) []entities.ObjectVersion {
	return []entities.ObjectVersion{{Version: versionIn(o), Active: true}}
}

// deploymentVersions reads a Deployment's versions from its ReplicaSets: each that has pods, and the newest one, or the one that the
// controller has yet to create. So two are active during a rollout, and one after it.
func deploymentVersions(o *unstructured.Unstructured, sets []*unstructured.Unstructured, names versionsByStamp) []entities.ObjectVersion {
	desired := number(o, 1, "spec", "replicas")
	newest := newestOf(sets)
	if newest == nil { // the controller has not seen it yet
		return []entities.ObjectVersion{{Version: names[templateStamp(o)], Active: true, TargetReplicas: desired}}
	}
	all := tally{}
	for _, set := range sets {
		if pods := number(set, 0, "status", "replicas"); pods > 0 {
			all.add(names[podStamp(set)], pods, number(set, 0, "status", "availableReplicas"), number(set, 0, "spec", "replicas"))
		}
	}
	all.addUnwatched(o, names)
	stamp := podStamp(newest)
	if number(o, 0, "status", "observedGeneration") < number(o, 0, "metadata", "generation") {
		stamp = templateStamp(o)
	}
	return all.versions(names[stamp], desired)
}

// newestOf finds the ReplicaSet of a Deployment's current template: the one with the highest revision, also if a rollback made an
// old one the newest.
func newestOf(sets []*unstructured.Unstructured) (newest *unstructured.Unstructured) {
	revision := func(o *unstructured.Unstructured) int {
		n, err := strconv.Atoi(o.GetAnnotations()[annotationRevision])
		if err != nil {
			return 0 // not numbered yet
		}
		return n
	}
	for _, set := range sets {
		if newest == nil || revision(set) > revision(newest) {
			newest = set
		}
	}
	return newest
}

// podVersions reads a workload's versions from its pods. Pods that terminate or have ended do not count.
func podVersions(o *unstructured.Unstructured, pods []*unstructured.Unstructured, names versionsByStamp) []entities.ObjectVersion {
	desired := number(o, 1, "spec", "replicas")
	if o.GetKind() == "DaemonSet" {
		desired = number(o, 0, "status", "desiredNumberScheduled")
	}
	all := tally{}
	for _, pod := range pods {
		if !runs(pod) {
			continue
		}
		available := 0
		if conditionOf(pod, "Ready").is("True") {
			available = 1
		}
		all.add(names[podStamp(pod)], 1, available, 0)
	}
	all.addUnwatched(o, names)
	return all.versions(names[templateStamp(o)], desired)
}

func runs(pod *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return pod.GetDeletionTimestamp() == nil && phase != "Succeeded" && phase != "Failed"
}

// tally counts pods by version.
type tally map[string]entities.ObjectVersion

func (t tally) add(version string, replicas, available, target int) {
	v := t[version]
	v.Version, v.Active = version, true
	v.Replicas += replicas
	v.AvailableReplicas += available
	v.TargetReplicas += target
	t[version] = v
}

// versions lists the newest version first, with or without pods. Without pods it is active only if no pods are desired, or if no
// other version runs.
func (t tally) versions(newest string, desired int) []entities.ObjectVersion {
	others := len(t)
	v, has := t[newest]
	if has {
		others--
	}
	v.Version, v.TargetReplicas = newest, desired
	v.Active = has || desired == 0 || others == 0
	all := make([]entities.ObjectVersion, 0, others+1)
	for version, other := range t {
		if version != newest {
			all = append(all, other)
		}
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Version < all[b].Version })
	return append([]entities.ObjectVersion{v}, all...)
}
