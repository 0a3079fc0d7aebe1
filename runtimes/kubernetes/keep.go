package kubernetes

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/converge-engine/converge/runtimes"
)

// This file decides which objects are never removed (H5). An object may carry an annotation of any common tool for that. It applies
// to all removals: by pruning, with its channel, and with its service.

// keepAnnotations are annotations that keep an object, with the values that do.
var keepAnnotations = []struct {
	name  string
	keeps func(value string) bool
}{
	{AnnotationMovedTo, func(value string) bool { return value != "" }}, // until the next service has it (handover.go)
	{AnnotationKeep, func(value string) bool { return value == "true" }},
	{"helm.sh/resource-policy", func(value string) bool { return strings.EqualFold(value, "keep") }},
	{"argocd.argoproj.io/sync-options", argoKeep},
	{fluxPrefix + "prune", func(value string) bool { return strings.EqualFold(value, "disabled") }},
	{fluxPrefix + "reconcile", func(value string) bool { return strings.EqualFold(value, "disabled") }},
}

// fluxPrefix begins annotations that may also be labels.
const fluxPrefix = "kustomize.toolkit.fluxcd.io/"

// exclusions are the objects that the source declares and excludes from every apply, with the reasons.
type exclusions map[id]string

// exclusionsOf are the exclusions of a payload.
func exclusionsOf(in runtimes.Request) exclusions {
	all := exclusions{}
	if in.Payload.Kubernetes == nil {
		return all
	}
	for _, o := range in.Payload.Kubernetes.Excluded {
		kind := schema.GroupKind{Group: o.Group, Kind: o.Kind}
		all[id{kind, cmp.Or(o.Namespace, namespaceOf(in)), o.Name}] = o.Reason
		if o.Namespace == "" {
			all[id{kind, "", o.Name}] = o.Reason // its kind may have no namespace
		}
	}
	return all
}

// argoKeep reports whether sync options keep an object, or require the confirmation of a person, which is not available here.
func argoKeep(options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","), func(option string) bool {
		name, value, _ := strings.Cut(strings.TrimSpace(option), "=")
		return (name == "Prune" || name == "Delete") && (value == "false" || value == "confirm")
	})
}

// keepMark is the mark on an object that keeps it; empty: none.
func keepMark(o *unstructured.Unstructured) string {
	annotations := o.GetAnnotations()
	for _, by := range keepAnnotations {
		value := strings.TrimSpace(annotations[by.name])
		if strings.HasPrefix(by.name, fluxPrefix) {
			value = cmp.Or(value, o.GetLabels()[by.name])
		}
		if by.keeps(value) {
			return by.name + ": " + value
		}
	}
	return ""
}

// claimsKeptReason is why a claim without a mark is kept: its deletion would delete its data.
const claimsKeptReason = "claims are kept unless the service sets removeClaims: true"

// namespacesKeptReason is why a Namespace stays when its instance is removed.
const namespacesKeptReason = "namespaces are never removed: objects of others in it would be deleted"

// keepReason is why an object stays when its instance is removed; empty: it is removed.
func (a *apply) keepReason(o *unstructured.Unstructured) string {
	if reason := cmp.Or(a.excluded[idOf(o)], keepMark(o)); reason != "" {
		return reason
	}
	if idOf(o).kind == kindClaim && !a.removeClaims {
		return claimsKeptReason
	}
	return ""
}

// pruneKeepReason is why an object stays when it is no longer declared; empty: it is removed. The deletion of a Namespace or a definition
// would delete undeclared objects.
func (a *apply) pruneKeepReason(l leftover) string {
	if l.next != "" {
		return nextOwnerText(l.next)
	}
	if reason := a.keepReason(l.Unstructured); reason != "" {
		return reason
	}
	if kind := idOf(l.Unstructured).kind; kind == kindNamespace || kind == kindDefinition {
		return "objects of others in it would be deleted"
	}
	return ""
}
