package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

const argoObjects = `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: HookSucceeded}}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox, command: ["/bin/true"]}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: warm, annotations: {argocd.argoproj.io/hook: PostSync}}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox, command: ["/bin/true"]}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second, annotations: {argocd.argoproj.io/sync-wave: "5"}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: cleanup, annotations: {argocd.argoproj.io/hook: SyncFail}}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox, command: ["/bin/true"]}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: skipped, annotations: {argocd.argoproj.io/hook: Skip}}
`

// Manifests for Argo CD are released as Argo CD does: what runs before the others runs before them and goes by its policy, waves and what runs
// after them come later, and what it would not apply is not applied.
func TestKubernetesHonoursAnnotationsOfArgoCD_H7(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.save("web/argo.yaml", argoObjects)
	w.edit(configFile, "manifests: [web]", "manifests: [web], annotations: argocd")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	client, ctx := w.cluster.Client, t.Context()
	gone := func(_ any, err error) { t.Helper(); require.True(t, apierrors.IsNotFound(err), "%v", err) }
	gone(client.BatchV1().Jobs(w.staging).Get(ctx, "migrate", metav1.GetOptions{}))
	gone(client.BatchV1().Jobs(w.staging).Get(ctx, "cleanup", metav1.GetOptions{}))
	gone(client.CoreV1().ConfigMaps(w.staging).Get(ctx, "skipped", metav1.GetOptions{}))
	warm, err := client.BatchV1().Jobs(w.staging).Get(ctx, "warm", metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, warm.Annotations["converge/hook-run"], "post-install v1")
	second, err := client.CoreV1().ConfigMaps(w.staging).Get(ctx, "second", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "5", second.Annotations["converge/wave"])
	require.False(t, second.CreationTimestamp.Before(&w.deployment(w.staging, "web").CreationTimestamp), "a later wave")
	require.False(t, warm.CreationTimestamp.Before(&second.CreationTimestamp), "after all objects")
	inventory, err := client.CoreV1().ConfigMaps(w.staging).Get(ctx, "converge."+w.App+".web.staging", metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, inventory.Annotations["converge/delivery"], `"ended":true`)
}

// An object that Flux creates only if it is missing is created, and then left as it is: another declaration does not change it, and neither is
// a hand edit drift.
func TestKubernetesCreatesOnlyMissingObjectsOfFlux_H7(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	const once = "{apiVersion: v1, kind: ConfigMap, metadata: {name: once, annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}}, data: {a: VALUE}}\n"
	w.save("web/flux.yaml", once)
	w.edit(configFile, "manifests: [web]", "manifests: [web], annotations: flux")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	maps := w.cluster.Client.CoreV1().ConfigMaps(w.staging)
	found, err := maps.Get(t.Context(), "once", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "VALUE", found.Data["a"])
	found.Data["a"] = "by hand"
	_, err = maps.Update(t.Context(), found, metav1.UpdateOptions{FieldManager: "somebody"})
	require.NoError(t, err)

	w.edit("web/flux.yaml", "VALUE", "another")
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	found, err = maps.Get(t.Context(), "once", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "by hand", found.Data["a"])
	there, err := w.cluster.Client.CoreV1().ConfigMaps(w.production).Get(t.Context(), "once", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "VALUE", there.Data["a"])
}

// An object that Flux would neither apply nor remove stays as it is, also where everything that is no longer declared is removed.
func TestKubernetesLeavesExcludedObjectsOfFlux_H7(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	const two = "{apiVersion: v1, kind: ConfigMap, metadata: {name: disabled}, data: {a: first}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: ignored}, data: {a: first}}\n"
	w.save("web/flux.yaml", two)
	w.edit(configFile, "manifests: [web]", "manifests: [web], annotations: flux, prune: true")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	left := strings.NewReplacer("name: disabled", "name: disabled, annotations: {kustomize.toolkit.fluxcd.io/reconcile: disabled}",
		"name: ignored", "name: ignored, labels: {kustomize.toolkit.fluxcd.io/ssa: Ignore}", "first", "second").Replace(two)
	w.save("web/flux.yaml", left)
	w.Publish()
	s := w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	maps := w.cluster.Client.CoreV1().ConfigMaps(w.staging)
	for _, name := range []string{"disabled", "ignored"} {
		found, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "first", found.Data["a"])
		for _, o := range s.Channels[0].Objects {
			require.NotEqual(t, name, o.Name, "it is no orphan")
		}
	}

	w.Act("web", protocol.Delete, `{"channel":"production","by":"bob"}`)
	w.Await("web", "staging CONVERGED v1-i2, production DELETED v1-i2")
	for _, name := range []string{"disabled", "ignored"} {
		_, err := w.cluster.Client.CoreV1().ConfigMaps(w.production).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err, "a removal leaves it, too")
	}
	w.save("web/flux.yaml", "")
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i3, production DELETED v1-i2")
	for _, name := range []string{"disabled", "ignored"} {
		_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "no longer declared at all: it is removed")
	}
}
