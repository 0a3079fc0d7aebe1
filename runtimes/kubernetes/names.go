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

// FieldManager is the name under which every field that a payload declares is owned on the server.
const FieldManager = "converge"

// Labels that every object of an instance carries, and the pods of its workloads too. Each value is a
// name as the configuration has it: at most 63 characters.
const (
	LabelApplication = "converge/application"
	LabelService     = "converge/service"
	LabelChannel     = "converge/channel"
	LabelInstance    = "converge/instance" // its name in the channel
	// LabelPartOf names the ApplySet, so that other tools see that an object has an owner
	// (kubernetes.io/docs/reference/labels-annotations-taints/#applyset-kubernetes-io-part-of).
	LabelPartOf = "applyset.kubernetes.io/part-of"
)

// Annotations.
const (
	// AnnotationVersion is the full version that an object was applied at. It is also on pod templates that no pod is replaced
	// for.
	AnnotationVersion = "converge/version"
	// AnnotationTemplate is on pod templates alone: the digest of the template as declared and of the configuration of the
	// same instance that its pods use (templates.go).
	AnnotationTemplate = "converge/template"
	// AnnotationEarlier is on workloads alone: the digests of earlier templates, with the last version of each (templates.go).
	AnnotationEarlier = "converge/earlier"
	// AnnotationWave orders objects: an integer, default 0; lower ones are ready before higher ones
	// are applied. Namespaces and CustomResourceDefinitions come before all.
	AnnotationWave = "converge/wave"
	// AnnotationRecreate "true" allows an object that cannot be changed in place (a Job) to be deleted
	// and made again; "orphan", so that what it made stays (recreate.go).
	AnnotationRecreate = "converge/recreate"
	// AnnotationAdopt says that an object may be adopted from another tool, once for each of its values (adopt.go).
	AnnotationAdopt = "converge/adopt"
	// AnnotationKeep "true" keeps an object when it is no longer declared, and when its channel or service is taken down.
	AnnotationKeep = "converge/keep"
	// AnnotationRestarted is on pod templates alone: when a person last had the instance restarted, in RFC 3339.
	AnnotationRestarted = "converge/restartedAt"
	// AnnotationRuns is on Jobs alone: how often they ran, and in which attempt last (jobs.go).
	AnnotationRuns = "converge/runs"
	// AnnotationHook lists the moments at which an object runs, as Helm names them: pre-install,post-upgrade. Such an object is
	// there for that alone (hooks.go). AnnotationHookWeight orders those of one moment, AnnotationHookDelete says when they go.
	AnnotationHook       = "converge/hook"
	AnnotationHookWeight = "converge/hook-weight"
	AnnotationHookDelete = "converge/hook-delete-policy"
	// AnnotationHookRun is on hooks alone: the moment, the version and the attempt that it was made for.
	AnnotationHookRun = "converge/hook-run"
	// AnnotationDelivery is on the inventory of an instance alone: the delivery, as JSON.
	AnnotationDelivery = "converge/delivery"
	// AnnotationTaken names the installations that an object, or an inventory, was taken over from (installation.go).
	AnnotationTaken = "converge/taken-from"
	// AnnotationFence is on the inventory of an instance alone: the runtimes.Fence of the last apply, as JSON.
	AnnotationFence = "converge/fence"
)

// Annotations and labels of an ApplySet's parent, as the specification names them.
const (
	labelSetID        = "applyset.kubernetes.io/id"
	annotationTooling = "applyset.kubernetes.io/tooling"
	annotationKinds   = "applyset.kubernetes.io/contains-group-kinds"
	annotationMoreNS  = "applyset.kubernetes.io/additional-namespaces"
	tooling           = "converge/v1"
)

// parentName is the name of the ApplySet's parent, a ConfigMap in the instance's namespace:
// "converge.shop.web.prod", in a fleet "converge.shop.web.prod.eu-3". No part of it has a dot.
func parentName(owner runtimes.Owner) string {
	name := fmt.Sprintf("converge.%s.%s.%s", owner.Application, owner.Service, owner.ID.Channel)
	if owner.ID.Name != entities.OnlyInstance {
		name += "." + owner.ID.Name
	}
	return name
}

// isInventory reports whether an object is our own book-keeping, here or where the instance once was.
func isInventory(o *unstructured.Unstructured, owner runtimes.Owner) bool {
	return idOf(o).kind == kindParent.GroupKind() && o.GetName() == parentName(owner)
}

// isSet reports whether it is an inventory that was written where it is, and no copy of one: that names the set of the namespace it was copied from.
func isSet(o *unstructured.Unstructured, owner runtimes.Owner) bool {
	return isInventory(o, owner) && o.GetLabels()[labelSetID] == setID(o.GetName(), o.GetNamespace())
}

// setID is the ApplySet id of a parent object: base64url of SHA-256 of name.namespace.kind.group.
func setID(name, namespace string) string {
	sum := sha256.Sum256([]byte(name + "." + namespace + ".ConfigMap."))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// ownerOf reads whose an object is from its labels; ok is false when it is nobody's of ours.
func ownerOf(labels map[string]string) (owner runtimes.Owner, ok bool) {
	owner = runtimes.Owner{
		Application: labels[LabelApplication], Service: labels[LabelService],
		ID: entities.InstanceID{Channel: labels[LabelChannel], Name: labels[LabelInstance]},
	}
	return owner, owner.Application != "" && owner.Service != "" && owner.ID.Channel != "" && owner.ID.Name != ""
}

// labelsOf are the labels that say whose an object is.
func labelsOf(owner runtimes.Owner) map[string]string {
	return map[string]string{
		LabelApplication: owner.Application, LabelService: owner.Service,
		LabelChannel: owner.ID.Channel, LabelInstance: owner.ID.Name,
	}
}

func selectorOf(owner runtimes.Owner) string { return labels.SelectorFromSet(labelsOf(owner)).String() }
