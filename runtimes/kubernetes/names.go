package kubernetes

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/converge-engine/converge/runtimes"
)

// FieldManager is the name under which every field that a payload declares is owned on the server.
const FieldManager = "converge"

// Labels that every object of an instance carries, and the pods of its workloads too. Each value is a
// name of the configuration: at most 63 characters.
const (
	LabelApplication = "converge/application"
	LabelService     = "converge/service"
	LabelChannel     = "converge/channel"
	// LabelPartOf names the ApplySet, so that other tools see that an object has an owner
	// (kubernetes.io/docs/reference/labels-annotations-taints/#applyset-kubernetes-io-part-of).
	LabelPartOf = "applyset.kubernetes.io/part-of"
)

// Annotations.
const (
	// AnnotationVersion is the full version that an object, or a pod template, was applied at.
	AnnotationVersion = "converge/version"
	// AnnotationWave orders objects: an integer, default 0; lower ones are ready before higher ones
	// are applied. Namespaces and CustomResourceDefinitions come before all.
	AnnotationWave = "converge/wave"
	// AnnotationRecreate "true" allows an object that cannot be changed in place (a Job) to be deleted
	// and made again.
	AnnotationRecreate = "converge/recreate"
)

// Annotations and labels of an ApplySet's parent, as the specification names them.
const (
	labelSetID         = "applyset.kubernetes.io/id"
	annotationTooling  = "applyset.kubernetes.io/tooling"
	annotationKinds    = "applyset.kubernetes.io/contains-group-kinds"
	annotationMoreNS   = "applyset.kubernetes.io/additional-namespaces"
	tooling            = "converge/v1"
	parentNameTemplate = "converge.%s.%s.%s" // application, service, channel: a ConfigMap in the instance's namespace
)

// setID is the ApplySet id of a parent object: base64url of SHA-256 of name.namespace.kind.group.
func setID(name, namespace string) string {
	sum := sha256.Sum256([]byte(name + "." + namespace + ".ConfigMap."))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// ownerOf reads whose an object is from its labels; ok is false when it is nobody's of ours.
func ownerOf(labels map[string]string) (owner runtimes.Owner, ok bool) {
	owner = runtimes.Owner{Application: labels[LabelApplication], Service: labels[LabelService], Channel: labels[LabelChannel]}
	return owner, owner.Application != "" && owner.Service != "" && owner.Channel != ""
}
