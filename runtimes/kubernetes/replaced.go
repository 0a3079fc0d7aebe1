package kubernetes

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// This file says which objects of an apply have their pods replaced, and why.

const (
	templateField    = "spec.template."
	annotationsField = templateField + "metadata.annotations"
	stampField       = annotationsField + "[" + AnnotationTemplate + "]"
)

// isMark reports whether a changed field of a pod template is only a mark of ours.
func isMark(f runtimes.FieldChange) bool {
	if f.Path == stampField || f.Path == annotationsField && f.Old == "" && strings.HasPrefix(f.New, `{"`+AnnotationTemplate+`":`) && !strings.Contains(f.New, ",") {
		return true
	}
	for _, name := range markLabels {
		if f.Path == templateField+"metadata.labels["+name+"]" {
			return true
		}
	}
	return false
}

// isStamp reports whether a changed field is the stamp of a template.
func isStamp(f runtimes.FieldChange) bool {
	return isMark(f) && strings.HasPrefix(f.Path, annotationsField)
}

// templateFields are the fields of the pod template that an apply changes, without our marks.
func (t *trial) templateFields() (paths []string) {
	for _, f := range t.fields {
		if strings.HasPrefix(f.Path, templateField) && !isMark(f) {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// replacedPods is the replacement of an object's pods by an apply; nil: they stay. ReplicaSets, and workloads that are updated OnDelete, keep
// their pods.
func (t *trial) replacedPods() *runtimes.Replacement {
	if why := t.whyReplaced(); why != "" {
		return &runtimes.Replacement{What: "pods", Why: why}
	}
	return nil
}

func (t *trial) whyReplaced() string {
	switch {
	case t.live == nil || !isWorkload(t.Unstructured) || t.GetKind() == "ReplicaSet":
		return ""
	case t.outcome == recreated && t.GetAnnotations()[AnnotationRecreate] != orphanDependents:
		return "it cannot be changed in place"
	case t.outcome != changed || isUpdatedOnDelete(t.Unstructured):
		return ""
	}
	paths := t.templateFields()
	switch len(paths) {
	case 0:
		return replacedByMarks(t.fields)
	case 1:
		return paths[0] + " changes"
	case 2:
		return paths[0] + " and " + paths[1] + " change"
	}
	return fmt.Sprintf("%s and %d other fields of the template change", paths[0], len(paths)-1)
}

// replacedByMarks is why pods are replaced although no declared field of their template changes.
func replacedByMarks(fields []runtimes.FieldChange) string {
	reason := ""
	for _, f := range fields {
		switch {
		case isStamp(f):
			return "their configuration changes"
		case isMark(f):
			reason = "the labels of Converge in their template change"
		}
	}
	return reason
}

func isUpdatedOnDelete(o *unstructured.Unstructured) bool {
	return text(o, "spec", "updateStrategy", "type") == "OnDelete"
}
