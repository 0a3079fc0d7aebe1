package kubernetes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// The marks of all tools that keep an object.
func TestKeepMarks_H5(t *testing.T) {
	for _, c := range []struct{ name, value, says string }{
		{"converge/keep", "true", "converge/keep: true"},
		{"converge/keep", "false", ""},
		{"helm.sh/resource-policy", "keep", "helm.sh/resource-policy: keep"},
		{"helm.sh/resource-policy", " Keep ", "helm.sh/resource-policy: Keep"},
		{"helm.sh/resource-policy", "delete", ""},
		{"argocd.argoproj.io/sync-options", "Prune=false", "argocd.argoproj.io/sync-options: Prune=false"},
		{"argocd.argoproj.io/sync-options", "Validate=false, Delete=false", "argocd.argoproj.io/sync-options: Validate=false, Delete=false"},
		{"argocd.argoproj.io/sync-options", "Prune=confirm", "argocd.argoproj.io/sync-options: Prune=confirm"},
		{"argocd.argoproj.io/sync-options", "Prune=true,Validate=false", ""},
		{"kustomize.toolkit.fluxcd.io/prune", "disabled", "kustomize.toolkit.fluxcd.io/prune: disabled"},
		{"kustomize.toolkit.fluxcd.io/prune", "enabled", ""},
	} {
		o := &unstructured.Unstructured{}
		o.SetAnnotations(map[string]string{c.name: c.value})
		require.Equal(t, c.says, keepMark(o), c)
	}
	labelled := &unstructured.Unstructured{}
	labelled.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/prune": "disabled"})
	require.NotEmpty(t, keepMark(labelled))
	require.Empty(t, keepMark(&unstructured.Unstructured{}))
}

// It is kept when it is no longer declared, and when the instance is removed; so are manually marked objects, and claims.
func TestMarkedObjectsAreKept_H5(t *testing.T) {
	d := newTestCluster(t).recording()
	claim := "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	all := []string{
		config, configOf("ours", "x", `converge/keep: "true"`), configOf("helm", "x", "helm.sh/resource-policy: keep"),
		configOf("argo", "x", "argocd.argoproj.io/sync-options: Prune=false"), configOf("flux", "x", "kustomize.toolkit.fluxcd.io/prune: disabled"),
		configOf("marked", "x"), configOf("gone", "x"), claim,
	}
	v1 := d.instance("v1", all...)
	d.mustApply(v1)
	d.patchAs("kubectl-annotate", "ConfigMap", "marked", `{"metadata":{"annotations":{"converge/keep":"true"}}}`)
	d.waitWatchedAs("ConfigMap", "marked")
	kept := []string{"ours", "helm", "argo", "flux", "marked"}

	less := withPrune(d.instance("v2", config))
	plan, err := d.Plan(t.Context(), less)
	require.NoError(t, err)
	said := map[string]string{}
	for _, change := range plan {
		if change.Action == runtimes.ActionOrphan {
			said[change.Name] = change.Message
		}
	}
	require.Equal(t, map[string]string{
		"ours": "no longer declared, kept: converge/keep: true", "helm": "no longer declared, kept: helm.sh/resource-policy: keep",
		"argo":   "no longer declared, kept: argocd.argoproj.io/sync-options: Prune=false",
		"flux":   "no longer declared, kept: kustomize.toolkit.fluxcd.io/prune: disabled",
		"marked": "no longer declared, kept: converge/keep: true", "data": "no longer declared, kept: " + claimsKeptReason,
	}, said)
	lines := d.mustApply(less)
	require.Contains(t, lines, "pruned ConfigMap/gone")
	require.Contains(t, lines, "left in place ConfigMap/helm, which is no longer declared (helm.sh/resource-policy: keep)")

	there := func(names ...string) {
		t.Helper()
		for _, name := range names {
			require.NotNil(t, d.liveObject("ConfigMap", name), name)
		}
		require.NotNil(t, d.liveObject("PersistentVolumeClaim", "data"))
	}
	there(kept...)
	d.mustApply(d.instance("v3", all...))
	require.ElementsMatch(t, []string{
		"remove ConfigMap/settings", "remove ConfigMap/gone", "keep ConfigMap/ours: converge/keep: true", "keep ConfigMap/helm: helm.sh/resource-policy: keep",
		"keep ConfigMap/argo: argocd.argoproj.io/sync-options: Prune=false", "keep ConfigMap/flux: kustomize.toolkit.fluxcd.io/prune: disabled",
		"keep ConfigMap/marked: converge/keep: true", "keep PersistentVolumeClaim/data: " + claimsKeptReason,
	}, d.removal(d.instance("v3", all...)))
	require.NoError(t, d.Remove(t.Context(), d.instance("v3", all...)))
	there("ours", "helm", "argo", "flux", "marked")
	require.Nil(t, d.liveObject("ConfigMap", "gone"))
	require.Nil(t, d.liveObject("ConfigMap", "settings"))
	d.mustApply(d.instance("v4", all...)) // kept objects are managed again
}

// Claims are removed if the service says so, except one with a mark that keeps it.
func TestClaimsAreRemovedIfDeclared_H5(t *testing.T) {
	d := newTestCluster(t).recording()
	claim := func(name, annotations string) string {
		return "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: " + name + ", annotations: {" + annotations + "}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	}
	removing := func(in runtimes.Request) runtimes.Request {
		in.Payload.Kubernetes.RemoveClaims = true
		return in
	}
	v1 := removing(d.instance("v1", config, claim("data", ""), claim("more", ""), claim("dear", `converge/keep: "true"`)))
	d.mustApply(v1)
	d.patchAs("kubectl-edit", "PersistentVolumeClaim", "data", `{"metadata":{"finalizers":null}}`) // nothing uses them here
	d.patchAs("kubectl-edit", "PersistentVolumeClaim", "more", `{"metadata":{"finalizers":null}}`)
	lines := d.mustApply(removing(withPrune(d.instance("v2", config, claim("more", ""), claim("dear", `converge/keep: "true"`)))))
	require.Contains(t, strings.Join(lines, "\n"), "pruned PersistentVolumeClaim/data") // a controller may have put its finalizer back
	require.NoError(t, d.Remove(t.Context(), removing(d.instance("v2", config))))
	require.Nil(t, d.liveObject("PersistentVolumeClaim", "more"))
	require.NotNil(t, d.liveObject("PersistentVolumeClaim", "dear"))
}
