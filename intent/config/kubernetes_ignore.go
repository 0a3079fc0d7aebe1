package config

import (
	"regexp"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// IgnoredDifference names fields of objects with another owner, in the format of Argo CD. They are omitted when an existing object is
// applied, and a difference in them is not drift.
type IgnoredDifference struct {
	// The API group; by default the core group (ConfigMap, Service).
	Group NamePattern `json:"group,omitempty"`
	// The kind.
	Kind NamePattern `json:"kind"`
	// The name; by default any.
	Name NamePattern `json:"name,omitempty"`
	// The namespace; by default any.
	Namespace NamePattern `json:"namespace,omitempty"`
	// The fields, as in RFC 6901: /spec/replicas. In lists of named elements, a number refers to the declared element with that index.
	JSONPointers []JSONPointer `json:"jsonPointers,omitempty"`
	// The field managers that write the fields, as in managedFields: kube-controller-manager.
	ManagedFieldsManagers []NamePattern `json:"managedFieldsManagers,omitempty"`
	// Not supported; declared for a clear error.
	JQPathExpressions []string `json:"jqPathExpressions,omitempty" jsonschema:"-"`
}

// JSONPointer names a field of an object.
type JSONPointer string

const jsonPointerPattern = `^(/([^~/]|~[01])+)+$`

var jsonPointerRE = regexp.MustCompile(jsonPointerPattern)

// Pattern returns the pattern for the JSON schema.
func (JSONPointer) Pattern() string { return jsonPointerPattern }

// Check rejects invalid pointers, and pointers to fields that identify an object.
func (p JSONPointer) Check() *Fault {
	switch p {
	case "/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace":
		return &Fault{Code: "bad-value", Message: string(p) + " identifies the object", Expected: "another field, such as /spec/replicas"}
	}
	return strict.FaultUnless(jsonPointerRE.MatchString(string(p)), "bad-value", "invalid JSON pointer %q", string(p), "a field such as /spec/replicas; ~1 is a slash in a name")
}

// ForeignRule is report or remove.
type ForeignRule string

// Values lists the allowed values.
func (ForeignRule) Values() []string { return []string{"report", "remove"} }
