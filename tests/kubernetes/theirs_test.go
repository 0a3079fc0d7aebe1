package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// The API of the example has an autoscaler in production, whose replicas stay through drift and releases.
func TestKubernetesExampleIsScaled_H2(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "api")
	w.Publish()
	w.Await("api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	scale, err := w.cluster.Client.AppsV1().Deployments(w.production).GetScale(t.Context(), "api", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(3), scale.Spec.Replicas)
	scale.Spec.Replicas = 5
	_, err = w.cluster.Client.AppsV1().Deployments(w.production).UpdateScale(t.Context(), "api", scale, metav1.UpdateOptions{FieldManager: "kubectl"})
	require.NoError(t, err)
	w.Release("api", "6.7.1")
	s := w.Await("api", "staging CONVERGED 6.7.1, production CONVERGED 6.7.1")
	require.Equal(t, int32(5), *w.deployment(w.production, "api").Spec.Replicas)
	require.NotContains(t, fmt.Sprint(s.Journal), "DEGRADED")
}

// What somebody adds to a workload is shown with who it was, and put back once the service says so.
func TestKubernetesForeignFields_H2_A12(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"template":{"spec":{"containers":[{"name":"debug","image":"debug:1"}]}}}}`)
	const guest = "spec.template.spec.containers[name=debug] (by kubectl-edit)"
	s := w.AwaitThat("web", "the guest", func(s protocol.Status) bool {
		return strings.Contains(fmt.Sprint(objectOf(s, "production", "Deployment/web").Foreign), guest)
	})
	require.NotContains(t, fmt.Sprint(s.Journal), "DEGRADED")
	require.Contains(t, w.explained(), "foreign: "+guest)
	if !testing.Short() {
		w.prompt().RunPage(stage.Only(t, "../../docs/kubernetes.md", "Fields left to others").With(w.ours()))
	}
	require.Len(t, w.deployment(w.production, "web").Spec.Template.Spec.Containers, 2)

	w.edit(configFile, "manifests: [web]", "manifests: [web], foreign: remove")
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	require.Len(t, w.deployment(w.production, "web").Spec.Template.Spec.Containers, 1)
	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`)
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		s := w.Status("web")
		return strings.Contains(fmt.Sprint(s.Journal), "DEGRADED") && !w.deployment(w.production, "web").Spec.Template.Spec.HostNetwork, fmt.Sprint(s.Journal)
	})
	w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
}

// A conflict says what to declare, and that is taken.
func TestKubernetesIgnoresDifferences_H2(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.declareWeb(w.production, "flux", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":5}}`)
	const snippet = "ignoreDifferences: [{group: apps, kind: Deployment, name: web, jsonPointers: [/spec/replicas]}]"
	w.AwaitThat("web", "the refused repair", func(s protocol.Status) bool { return strings.Contains(reasons(s, "production"), snippet) })
	w.edit(configFile, "manifests: [web]", "manifests: [web], "+snippet)
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	require.Equal(t, int32(5), *w.deployment(w.production, "web").Spec.Replicas)
	require.Equal(t, int32(2), *w.deployment(w.staging, "web").Spec.Replicas)
}

// Claims stay when a channel is taken down, with what says that it is to be kept; the rest goes.
func TestKubernetesKeepsClaims_H5_A24(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.save("web/claim.yaml", "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
	w.save("web/kept.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}}")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Act("web", protocol.Delete, `{"channel":"production","by":"bob","reason":"moved"}`)
	w.Await("web", "staging CONVERGED v1, production DELETED v1")
	core := w.cluster.Client.CoreV1()
	_, err := core.PersistentVolumeClaims(w.production).Get(t.Context(), "data", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = core.ConfigMaps(w.production).Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = core.ConfigMaps(w.production).Get(t.Context(), "web-settings", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
