package kubernetes

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// This file decides which objects are never removed (H5). An object may carry an annotation of any common tool for that. It applies
// to all removals: by pruning, with its channel, and with its service.

// keepsBy are annotations that keep an object, with the values that do.
var keepsBy = []struct {
	name  string
	keeps func(value string) bool
}{
	{AnnotationKeep, func(value string) bool { return value == "true" }},
	{"helm.sh/resource-policy", func(value string) bool { return strings.EqualFold(value, "keep") }},
	{"argocd.argoproj.io/sync-options", argoKeeps},
	{annotationFluxPrune, func(value string) bool { return strings.EqualFold(value, "disabled") }},
}

// annotationFluxPrune may also be a label.
const annotationFluxPrune = "kustomize.toolkit.fluxcd.io/prune"

// argoKeeps reports whether sync options keep an object, or require the confirmation of a person, which is not available here.
func argoKeeps(options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","), func(option string) bool {
		name, value, _ := strings.Cut(strings.TrimSpace(option), "=")
		return (name == "Prune" || name == "Delete") && (value == "false" || value == "confirm")
	})
}

// saysKeep is the mark on an object that keeps it; empty: none.
func saysKeep(o *unstructured.Unstructured) string {
	annotations := o.GetAnnotations()
	for _, by := range keepsBy {
		value := strings.TrimSpace(annotations[by.name])
		if by.name == annotationFluxPrune {
			value = cmp.Or(value, o.GetLabels()[by.name])
		}
		if by.keeps(value) {
			return by.name + ": " + value
		}
	}
	return ""
}

// keepsClaims is why a claim without a mark is kept: its deletion would delete its data.
const keepsClaims = "claims are kept unless the service sets removeClaims: true"

// keepsNamespaces is why a Namespace stays when its instance is removed.
const keepsNamespaces = "namespaces are never removed: objects of others in it would be deleted"

// kept is why an object stays when its instance is removed; empty: it is removed.
func (a *apply) kept(o *unstructured.Unstructured) string {
	if says := saysKeep(o); says != "" {
		return says
	}
	if idOf(o).kind == kindClaim && !a.claims {
		return keepsClaims
	}
	return ""
}

// spared is why an object stays when it is no longer declared; empty: it is removed. The deletion of a Namespace or a definition
// would delete undeclared objects.
func (a *apply) spared(o *unstructured.Unstructured) string {
	if why := a.kept(o); why != "" {
		return why
	}
	if kind := idOf(o).kind; kind == kindNamespace || kind == kindDefinition {
		return "objects of others in it would be deleted"
	}
	return ""
}
