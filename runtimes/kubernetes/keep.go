package kubernetes

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// This file says what is never removed (H5). An object may say so itself, in the words of whichever tool it was written for, and
// means it of all removals: by pruning, with its channel, and with its service.

// keepsBy are annotations that keep an object, each with what it says then.
var keepsBy = []struct {
	name  string
	keeps func(value string) bool
}{
	{AnnotationKeep, func(value string) bool { return value == "true" }},
	{"helm.sh/resource-policy", func(value string) bool { return strings.EqualFold(value, "keep") }},
	{"argocd.argoproj.io/sync-options", argoKeeps},
	{annotationFluxPrune, func(value string) bool { return strings.EqualFold(value, "disabled") }},
}

// annotationFluxPrune may be a label as well.
const annotationFluxPrune = "kustomize.toolkit.fluxcd.io/prune"

// argoKeeps reports whether the options of a sync keep an object, or ask for a person's word, which nobody gives here.
func argoKeeps(options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","), func(option string) bool {
		name, value, _ := strings.Cut(strings.TrimSpace(option), "=")
		return (name == "Prune" || name == "Delete") && (value == "false" || value == "confirm")
	})
}

// saysKeep is what on an object says that it is to be kept; empty: nothing does.
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

// keepsClaims is why a claim is kept that says nothing itself: with it would go its data.
const keepsClaims = "claims are kept unless the service says removeClaims: true"

// keepsNamespaces is why a Namespace stays when its instance goes.
const keepsNamespaces = "namespaces are never removed: what others have in it would go with it"

// kept is why an object is not removed when its instance goes; empty: it goes.
func (a *apply) kept(o *unstructured.Unstructured) string {
	if says := saysKeep(o); says != "" {
		return says
	}
	if idOf(o).kind == kindClaim && !a.claims {
		return keepsClaims
	}
	return ""
}

// spared is why an object is not removed when it is no longer declared; empty: it goes. With a Namespace or a definition would
// go what nobody declared.
func (a *apply) spared(o *unstructured.Unstructured) string {
	if why := a.kept(o); why != "" {
		return why
	}
	if kind := idOf(o).kind; kind == kindNamespace || kind == kindDefinition {
		return "what others have in it would go with it"
	}
	return ""
}
