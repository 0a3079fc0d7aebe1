package kubernetes

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// FieldManager is the field manager that owns every declared field on the server.
const FieldManager = "converge"

// Labels of every object of an instance, and of the pods of its workloads. Each value is a name from the configuration: at most 63
// characters.
const (
	LabelApplication = "converge/application"
	LabelService     = "converge/service"
	LabelChannel     = "converge/channel"
	LabelInstance    = "converge/instance" // the name of the instance in the channel
	// LabelPartOf names the ApplySet, so that other tools see that an object has an owner
	// (kubernetes.io/docs/reference/labels-annotations-taints/#applyset-kubernetes-io-part-of).
	LabelPartOf = "applyset.kubernetes.io/part-of"
)

// Annotations.
const (
	// AnnotationVersion is the full version at which an object was applied. Pod templates carry it too if their change replaces no
	// pods.
	AnnotationVersion = "converge/version"
	// AnnotationTemplate is only on pod templates: the digest of the declared template and of the configuration of the same instance
	// that its pods use (templates.go).
	AnnotationTemplate = "converge/template"
	// AnnotationEarlier is only on workloads: the digests of earlier templates, with the last version of each (templates.go).
	AnnotationEarlier = "converge/earlier"
	// AnnotationUnmarked is only on workloads that were adopted with their pod template as it was: the digest that the template would
	// have (marks.go).
	AnnotationUnmarked = "converge/unmarked"
	// AnnotationWave orders objects: an integer, default 0. Lower waves are ready before higher ones are applied. Namespaces and
	// CustomResourceDefinitions come first.
	AnnotationWave = "converge/wave"
	// AnnotationRecreate "true" allows an object that cannot be changed in place (a Job) to be deleted and recreated. With "orphan"
	// its dependents stay (recreate.go).
	AnnotationRecreate = "converge/recreate"
	// AnnotationAdopt allows the adoption of an object from another tool, once for each of its values (adopt.go).
	AnnotationAdopt = "converge/adopt"
	// AnnotationKeep "true" keeps an object when it is no longer declared, and when its channel or service is removed.
	AnnotationKeep = "converge/keep"
	// AnnotationPrune is how the dependents of an object are deleted when it is pruned: background (the default), foreground or orphan.
	AnnotationPrune = "converge/prune-propagation"
	// AnnotationMovedTo names the service that takes over an object, and AnnotationMovedFrom the one from which an object is taken over
	// (handover.go).
	AnnotationMovedTo   = "converge/moved-to"
	AnnotationMovedFrom = "converge/moved-from"
	// AnnotationRestarted is only on pod templates: when a person last restarted the instance, in RFC 3339.
	AnnotationRestarted = "converge/restartedAt"
	// AnnotationRuns is only on Jobs: the number of runs, and the attempt of the last one (jobs.go).
	AnnotationRuns = "converge/runs"
	// AnnotationHook lists the moments at which an object runs, named as in Helm: pre-install,post-upgrade. Such an object has no
	// other use (hooks.go). AnnotationHookWeight orders the hooks of a moment. AnnotationHookDelete says when they are deleted.
	AnnotationHook       = "converge/hook"
	AnnotationHookWeight = "converge/hook-weight"
	AnnotationHookDelete = "converge/hook-delete-policy"
	// AnnotationHookRun is only on hooks: the moment, the version and the attempt for which it was created.
	AnnotationHookRun = "converge/hook-run"
	// AnnotationDelivery is only on the inventory of an instance: the delivery, as JSON.
	AnnotationDelivery = "converge/delivery"
	// AnnotationTakenFrom lists the installations from which an object, or an inventory, was taken over (installation.go).
	AnnotationTakenFrom = "converge/taken-from"
	// AnnotationFence is only on the inventory of an instance: the runtimes.Fence of the last apply, as JSON.
	AnnotationFence = "converge/fence"
)

// Annotations and labels of an ApplySet's parent, with the names of the specification.
const (
	labelSetID        = "applyset.kubernetes.io/id"
	annotationTooling = "applyset.kubernetes.io/tooling"
	annotationKinds   = "applyset.kubernetes.io/contains-group-kinds"
	annotationMoreNS  = "applyset.kubernetes.io/additional-namespaces"
	tooling           = "converge/v1"
)

// inventoryName is the name of the ApplySet's parent, a ConfigMap in the instance's namespace:
// "converge.shop.web.prod", in a fleet "converge.shop.web.prod.eu-3". No part of it has a dot.
func inventoryName(owner runtimes.Owner) string {
	name := fmt.Sprintf("converge.%s.%s.%s", owner.Application, owner.Service, owner.ID.Channel)
	if owner.ID.Name != entities.OnlyInstance {
		name += "." + owner.ID.Name
	}
	return name
}

// isInventory reports whether an object is an inventory of Converge for an owner, in its present namespace or an earlier one.
func isInventory(o *unstructured.Unstructured, owner runtimes.Owner) bool {
	return idOf(o).kind == kindInventory.GroupKind() && o.GetName() == inventoryName(owner)
}

// isOriginalInventory reports whether an object is an original inventory and not a copy in another namespace: a copy has the ApplySet
// id of its original.
func isOriginalInventory(o *unstructured.Unstructured, owner runtimes.Owner) bool {
	return isInventory(o, owner) && o.GetLabels()[labelSetID] == setID(o.GetName(), o.GetNamespace())
}

// setID is the ApplySet id of a parent object: base64url of SHA-256 of name.namespace.kind.group.
func setID(name, namespace string) string {
	sum := sha256.Sum256([]byte(name + "." + namespace + ".ConfigMap."))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// ownerOf reads the owner of an object from its labels; ok is false if it has none of ours.
func ownerOf(labels map[string]string) (owner runtimes.Owner, ok bool) {
	owner = runtimes.Owner{
		Application: labels[LabelApplication], Service: labels[LabelService],
		ID: entities.InstanceID{Channel: labels[LabelChannel], Name: labels[LabelInstance]},
	}
	return owner, owner.Application != "" && owner.Service != "" && owner.ID.Channel != "" && owner.ID.Name != ""
}

// labelsOf are the labels that identify the owner of an object.
func labelsOf(owner runtimes.Owner) map[string]string {
	return map[string]string{
		LabelApplication: owner.Application, LabelService: owner.Service,
		LabelChannel: owner.ID.Channel, LabelInstance: owner.ID.Name,
	}
}

func selectorOf(owner runtimes.Owner) string { return labels.SelectorFromSet(labelsOf(owner)).String() }
