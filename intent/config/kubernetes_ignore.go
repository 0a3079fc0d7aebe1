package config

import (
	"regexp"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// IgnoredDifference names fields of objects that are somebody else's, as Argo CD spells it: they are left out of what is applied
// to an object that is there, and a difference in them is no drift.
type IgnoredDifference struct {
	// The API group; without it, that of the core (ConfigMap, Service).
	Group NamePattern `json:"group,omitempty"`
	// The kind.
	Kind NamePattern `json:"kind"`
	// The name; any when not given.
	Name NamePattern `json:"name,omitempty"`
	// The namespace; any when not given.
	Namespace NamePattern `json:"namespace,omitempty"`
	// The fields, as in RFC 6901: /spec/replicas. In lists of what has a name, a number stands for the element that is declared there.
	JSONPointers []JSONPointer `json:"jsonPointers,omitempty"`
	// Who writes the fields, as managedFields name it: kube-controller-manager.
	ManagedFieldsManagers []NamePattern `json:"managedFieldsManagers,omitempty"`
	// Not supported; it is here to say so.
	JQPathExpressions []string `json:"jqPathExpressions,omitempty" jsonschema:"-"`
}

// JSONPointer names a field of an object.
type JSONPointer string

const jsonPointerPattern = `^(/([^~/]|~[01])+)+$`

var jsonPointerRE = regexp.MustCompile(jsonPointerPattern)

// Pattern is for the JSON schema.
func (JSONPointer) Pattern() string { return jsonPointerPattern }

// Check refuses what is no pointer, and what names an object.
func (p JSONPointer) Check() *Fault {
	switch p {
	case "/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace":
		return &Fault{Code: "bad-value", Message: string(p) + " says which object it is", Expected: "a field of it, such as /spec/replicas"}
	}
	return strict.Unless(jsonPointerRE.MatchString(string(p)), "bad-value", "%q is no JSON pointer", string(p), "a field such as /spec/replicas; ~1 stands for a slash in a name")
}

// ForeignRule is report or remove.
type ForeignRule string

// Values lists what may stand in the file.
func (ForeignRule) Values() []string { return []string{"report", "remove"} }
