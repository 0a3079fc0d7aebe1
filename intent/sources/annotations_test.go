package sources

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// annotated is an object with annotations.
func annotated(t *testing.T, kind string, annotations map[string]string) *Object {
	t.Helper()
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "it", "annotations": annotations}, "data": map[string]any{"n": json.Number("9007199254740993")}})
	require.NoError(t, err)
	return &Object{Kind: kind, Name: "it", Data: data}
}

// honoured is the effect of annotations, as text: the annotations of Converge that they add, "left out", "created only", or "refused NAME".
func honoured(t *testing.T, tool string, annotations map[string]string) string {
	t.Helper()
	o := annotated(t, "Job", annotations)
	h, err := o.Honour(tool, false)
	require.NoError(t, err)
	var all []string
	if h.Object == nil {
		all = append(all, "left out")
	} else {
		var fields struct {
			Metadata struct{ Annotations map[string]string }
			Data     map[string]json.Number
		}
		require.NoError(t, json.Unmarshal(h.Object.Data, &fields))
		require.Equal(t, json.Number("9007199254740993"), fields.Data["n"], "digits stay")
		for _, name := range slices.Sorted(maps.Keys(fields.Metadata.Annotations)) {
			if _, given := annotations[name]; !given {
				all = append(all, strings.TrimPrefix(name, "converge/")+"="+fields.Metadata.Annotations[name])
			}
		}
	}
	if h.CreateOnly {
		all = append(all, "created only")
	}
	for _, name := range slices.Sorted(maps.Keys(h.Refused)) {
		require.NotEmpty(t, h.Refused[name])
		all = append(all, "refused "+name)
	}
	return strings.Join(all, "; ")
}

// Every annotation that the documentation of Argo CD (Annotations and Labels; Resource Hooks; Sync Phases and Waves; Sync Options; Compare
// Options; Helm), of Helm (Chart Hooks) and of Flux (Kustomization, HelmRelease) lists for an object has its meaning here, or is refused by name.
// Those that need nothing have no effect and no refusal.
func TestAnnotationsOfOtherTools(t *testing.T) {
	const before, after = "hook=pre-install,pre-upgrade,pre-rollback", "hook=post-install,post-upgrade,post-rollback"
	const argo = "argocd.argoproj.io/"
	for _, row := range []struct{ tool, name, value, want string }{
		{ArgoCD, argo + "hook", "PreSync", before},
		{ArgoCD, argo + "hook", "PostSync", after},
		{ArgoCD, argo + "hook", "PreSync, PostSync", "hook=pre-install,post-install,pre-upgrade,post-upgrade,pre-rollback,post-rollback"},
		{ArgoCD, argo + "hook", "Sync", "recreate=true"},
		{ArgoCD, argo + "hook", "Skip", "left out"},
		{ArgoCD, argo + "hook", "SyncFail", "hook=on-failure"},
		{ArgoCD, argo + "hook", "PreDelete", "hook=pre-delete"},
		{ArgoCD, argo + "hook", "PostDelete", "hook=post-delete"},
		{ArgoCD, argo + "hook", "PreSync,SyncFail", before + ",on-failure"},
		{ArgoCD, argo + "hook", "PreSync,Sync", before + "; refused " + argo + "hook"},
		{ArgoCD, argo + "hook-delete-policy", "HookSucceeded", ""}, // of no hook
		{ArgoCD, argo + "sync-wave", "5", "wave=5"},
		{ArgoCD, argo + "sync-wave", "-5", "wave=-5"},
		{ArgoCD, argo + "sync-wave", "0", ""},
		{ArgoCD, argo + "sync-wave", "first", "refused " + argo + "sync-wave"},
		{ArgoCD, argo + "sync-options", "Force=true", "recreate=true"},
		{ArgoCD, argo + "sync-options", "Force=true,Replace=true", "recreate=true"},
		{ArgoCD, argo + "sync-options", "Replace=true", "refused " + argo + "sync-options"},
		{ArgoCD, argo + "sync-options", "Prune=false", ""}, // kept: runtimes/kubernetes/keep.go
		{ArgoCD, argo + "sync-options", "Prune=confirm", ""},
		{ArgoCD, argo + "sync-options", "Delete=false", ""},
		{ArgoCD, argo + "sync-options", "Delete=confirm", ""},
		{ArgoCD, argo + "sync-options", "PruneLast=true", ""},
		{ArgoCD, argo + "sync-options", "ServerSideApply=true", ""},
		{ArgoCD, argo + "sync-options", "ServerSideApply=false", "refused " + argo + "sync-options"},
		{ArgoCD, argo + "sync-options", "ClientSideApplyMigration=false", "refused " + argo + "sync-options"},
		{ArgoCD, argo + "sync-options", "SkipDryRunOnMissingResource=true", "refused " + argo + "sync-options"},
		{ArgoCD, argo + "sync-options", "Validate=false", "refused " + argo + "sync-options"},
		{ArgoCD, argo + "sync-options", "ApplyOutOfSyncOnly=true", ""},
		{ArgoCD, argo + "sync-options", "RespectIgnoreDifferences=true", ""},
		{ArgoCD, argo + "sync-options", "FailOnSharedResource=true", ""},
		{ArgoCD, argo + "sync-options", "PrunePropagationPolicy=background", ""},
		{ArgoCD, argo + "sync-options", "PrunePropagationPolicy=orphan", "prune-propagation=orphan"},
		{ArgoCD, argo + "sync-options", "PrunePropagationPolicy=foreground", "prune-propagation=foreground"},
		{ArgoCD, argo + "compare-options", "IgnoreExtraneous", ""},
		{ArgoCD, argo + "compare-options", "ServerSideDiff=true", ""},
		{ArgoCD, argo + "compare-options", "IncludeMutationWebhook=true", ""},
		{ArgoCD, argo + "compare-options", "ServerSideDiff=false", "refused " + argo + "compare-options"},
		{ArgoCD, argo + "ignore-healthcheck", "true", "refused " + argo + "ignore-healthcheck"},
		{ArgoCD, argo + "ignore-resource-updates", "true", ""},
		{ArgoCD, argo + "tracking-id", "shop:apps/Deployment:shop/web", ""},
		{ArgoCD, argo + "installation-id", "one", ""},
		{ArgoCD, "link.argocd.argoproj.io/docs", "https://docs.example.com", "link-docs=https://docs.example.com"},
		{ArgoCD, "link.argocd.argoproj.io/docs", "Handbook|https://docs.example.com", "link-docs=https://docs.example.com"},
		{ArgoCD, "helm.sh/hook", "pre-install,pre-upgrade", before},
		{ArgoCD, "helm.sh/hook", "post-upgrade", after},
		{ArgoCD, "helm.sh/hook", "crd-install", ""},
		{ArgoCD, "helm.sh/hook", "test", "left out; refused helm.sh/hook"},
		{ArgoCD, "helm.sh/hook", "pre-rollback", "left out; refused helm.sh/hook"},
		{ArgoCD, "helm.sh/hook", "pre-delete", "hook=pre-delete"},
		{ArgoCD, "helm.sh/hook", "post-delete,test", "hook=post-delete; refused helm.sh/hook"},
		{ArgoCD, "helm.sh/resource-policy", "keep", ""},
		{Flux, "kustomize.toolkit.fluxcd.io/reconcile", "disabled", "left out"},
		{Flux, "kustomize.toolkit.fluxcd.io/reconcile", "enabled", ""},
		{Flux, "kustomize.toolkit.fluxcd.io/ssa", "Override", ""},
		{Flux, "kustomize.toolkit.fluxcd.io/ssa", "Merge", ""},
		{Flux, "kustomize.toolkit.fluxcd.io/ssa", "IfNotPresent", "created only"},
		{Flux, "kustomize.toolkit.fluxcd.io/ssa", "Ignore", "left out"},
		{Flux, "kustomize.toolkit.fluxcd.io/prune", "disabled", ""},
		{Flux, "kustomize.toolkit.fluxcd.io/force", "enabled", "recreate=true"},
		{Flux, "kustomize.toolkit.fluxcd.io/substitute", "disabled", ""}, // text in braces is none of ours
		{Flux, "helm.toolkit.fluxcd.io/driftDetection", "disabled", "refused helm.toolkit.fluxcd.io/driftDetection"},
		{Flux, "reconcile.fluxcd.io/requestedAt", "now", ""},
	} {
		require.Equal(t, row.want, honoured(t, row.tool, map[string]string{row.name: row.value}), "%s %s", row.name, row.value)
	}

	hook := map[string]string{argo + "hook": "PostSync", argo + "hook-delete-policy": "HookSucceeded,BeforeHookCreation", argo + "sync-wave": "3"}
	require.Equal(t, after+"; hook-delete-policy=before-hook-creation,hook-succeeded; hook-weight=3", honoured(t, ArgoCD, hook))
	hook = map[string]string{"helm.sh/hook": "pre-install", "helm.sh/hook-delete-policy": "hook-failed", "helm.sh/hook-weight": "-2"}
	require.Equal(t, before+"; hook-delete-policy=hook-failed; hook-weight=-2", honoured(t, ArgoCD, hook))
	hook = map[string]string{argo + "hook": "Sync", argo + "hook-delete-policy": "HookSucceeded", argo + "sync-wave": "2"}
	require.Equal(t, "recreate=true; wave=2; refused "+argo+"hook-delete-policy", honoured(t, ArgoCD, hook))
	own := map[string]string{argo + "sync-wave": "3", "converge/wave": "1"}
	require.Empty(t, honoured(t, ArgoCD, own), "the annotation of Converge comes first")
	hook = map[string]string{argo + "hook": "PreSync", "helm.sh/hook": "post-install"}
	require.Equal(t, before, honoured(t, ArgoCD, hook), "Argo CD reads its own annotation first")

	sealed := annotated(t, "Secret", map[string]string{argo + "sync-wave": "3"})
	sealed.Encrypted = true
	h, err := sealed.Honour(ArgoCD, false)
	require.NoError(t, err)
	require.Same(t, sealed, h.Object)
	require.Contains(t, h.Refused, argo+"sync-wave")
}
