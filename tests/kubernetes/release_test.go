package kubernetes_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// Services of manifests, of a kustomization and of a chart converge side by side, in two channels in one cluster.
func TestKubernetesExampleConverges_D8(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web", "api", "cache")
	missing := w.production + "-made"
	w.edit(configFile, "namespace: "+w.production, "namespace: "+missing)
	w.production = missing // made by whichever service comes first
	t.Cleanup(func() {
		require.NoError(t, w.cluster.Client.CoreV1().Namespaces().Delete(context.Background(), missing, metav1.DeleteOptions{}))
	})
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Await("api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	w.Await("cache", "staging CONVERGED 1.6.38, production CONVERGED 1.6.38")

	require.Equal(t, int32(2), w.deployment(w.staging, "web").Status.ReadyReplicas)
	require.Equal(t, int32(3), w.deployment(w.production, "web").Status.ReadyReplicas)
	set, err := w.cluster.Client.AppsV1().StatefulSets(w.production).Get(t.Context(), "cache", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "docker.io/library/memcached:1.6.38-alpine", set.Spec.Template.Spec.Containers[0].Image)

	// The migration of a new version runs before the Deployment of that version is touched.
	w.Release("api", "6.7.1")
	w.Await("api", "staging CONVERGED 6.7.1, production CONVERGED 6.7.1")
	job, err := w.cluster.Client.BatchV1().Jobs(w.production).Get(t.Context(), "api-migrate", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "6.7.1", job.Annotations["converge/version"])
	sets, err := w.cluster.Client.AppsV1().ReplicaSets(w.production).List(t.Context(), metav1.ListOptions{LabelSelector: "converge/service=api"})
	require.NoError(t, err)
	seen := false
	for _, set := range sets.Items {
		if strings.HasSuffix(set.Spec.Template.Spec.Containers[0].Image, ":6.7.1") {
			seen = true
			require.False(t, set.CreationTimestamp.Before(job.Status.CompletionTime), "%s before %s", set.CreationTimestamp, job.Status.CompletionTime)
		}
	}
	require.True(t, seen)
}

// While staging rolls, both versions are seen, and production waits; then it goes on. Changed
// configuration moves the channel that it concerns.
func TestKubernetesRollingUpdate_A3_A8_B9(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.annotateWebPods("kubelab/ready-in", "${{ params.ready }}")
	w.edit(configFile, "- {name: replicas,", "- {name: ready, type: string, default: 0s}\n- {name: replicas,")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	require.NoError(t, w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
		RequestMeta: protocol.RequestMeta{By: "test"}, Version: "v2", ChannelParameters: map[string]map[string]any{"staging": {"ready": "5s"}},
	}, &protocol.ReleaseAnswer{}))
	s := w.AwaitThat("web", "two versions in staging", func(s protocol.Status) bool {
		return len(active(objectOf(s, "staging", "Deployment/web"))) == 2
	})
	require.Equal(t, []string{"v2", "v1"}, active(objectOf(s, "staging", "Deployment/web")))
	require.Equal(t, "CONVERGING", channelOf(s, "staging").Status)
	require.Equal(t, "v1", channelOf(s, "production").Target)
	require.Equal(t, "registry.shop.dev/web:v1", w.deployment(w.production, "web").Spec.Template.Spec.Containers[0].Image)
	s = w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, []entities.ObjectVersion{{Version: "v2", Active: true, Replicas: 3, AvailableReplicas: 3, TargetReplicas: 3}},
		objectOf(s, "production", "Deployment/web").Versions)

	before := w.deployment(w.staging, "web").Generation
	w.edit(configFile, "parameters: {replicas: 3}", "parameters: {replicas: 4}")
	w.Publish()
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2-i2")
	require.Equal(t, int32(4), w.deployment(w.production, "web").Status.ReadyReplicas)
	require.Equal(t, before, w.deployment(w.staging, "web").Generation, "staging was not touched")
}

// An image that cannot be pulled fails staging, in the node's words, and production never moves. A fix goes
// past it.
func TestKubernetesFailingImage_A8_A23_B10(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.edit(configFile, "kind: Service\nname: web\n", "kind: Service\nname: web\nautoRollback: false\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	before := w.deployment(w.production, "web").Generation

	w.Release("web", "nopull")
	s := w.AwaitThat("web", "failed, and what ran goes on", func(s protocol.Status) bool { // the set of the new pods is counted after them
		return stage.Channels(s) == "staging FAILED nopull, production BLOCKED v1" && len(active(objectOf(s, "staging", "Deployment/web"))) == 2
	})
	require.Regexp(t, "(ErrImagePull|ImagePullBackOff) web-", reasons(s, "staging"))
	failed := objectOf(s, "staging", "Deployment/web")
	require.Equal(t, entities.ObjectFailed, failed.Status)
	require.Equal(t, []string{"nopull", "v1"}, active(failed))
	require.Equal(t, int32(2), w.deployment(w.staging, "web").Status.AvailableReplicas)
	require.NotEmpty(t, failed.Events)
	require.Equal(t, before, w.deployment(w.production, "web").Generation)
	if !testing.Short() {
		w.prompt().RunPage(stage.Only(t, "../../docs/kubernetes.md", "Health and versions").With(w.ours()))
	}

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// What is no longer declared stays and is shown; with prune it goes.
func TestKubernetesOrphans_D10(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	text := w.read("web/web.yaml")
	at := strings.Index(text, "---\napiVersion: policy/v1")
	require.Positive(t, at)
	w.save("web/web.yaml", text[:at])
	w.Publish()
	s := w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	left := objectOf(s, "production", "PodDisruptionBudget/web")
	require.True(t, left.Orphaned)
	_, err := w.cluster.Client.PolicyV1().PodDisruptionBudgets(w.production).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)

	w.edit(configFile, "manifests: [web]", "manifests: [web], prune: true")
	w.Publish()
	s = w.Await("web", "staging CONVERGED v1-i3, production CONVERGED v1-i3")
	require.Empty(t, objectOf(s, "production", "PodDisruptionBudget/web"))
	budgets, err := w.cluster.Client.PolicyV1().PodDisruptionBudgets(w.production).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, budgets.Items)
}

// What comes before an upgrade has ended before anything is touched, and what comes after it begins when all is healthy.
func TestKubernetesChartHooks_D8_H6(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "cache")
	for name, when := range map[string]string{"before": "pre-install,pre-upgrade", "after": "post-install,post-upgrade"} {
		w.save("cache/chart/templates/"+name+".yaml", `apiVersion: batch/v1
kind: Job
metadata: {name: `+name+`, annotations: {helm.sh/hook: "`+when+`", helm.sh/hook-weight: "5", helm.sh/hook-delete-policy: before-hook-creation}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: hook, image: "tools:{{ .Values.image.tag }}", command: ["true"]}]}}}
`)
	}
	w.Publish()
	w.Await("cache", "staging CONVERGED 1.6.38, production CONVERGED 1.6.38")
	w.Release("cache", "1.6.39")
	w.Await("cache", "staging CONVERGED 1.6.39, production CONVERGED 1.6.39")
	created := func(name string) metav1.Time {
		job, err := w.cluster.Client.BatchV1().Jobs(w.production).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "tools:1.6.39-alpine", job.Spec.Template.Spec.Containers[0].Image)
		return job.CreationTimestamp
	}
	pod, err := w.cluster.Client.CoreV1().Pods(w.production).Get(t.Context(), "cache-0", metav1.GetOptions{})
	require.NoError(t, err)
	before, after := created("before"), created("after")
	require.False(t, pod.CreationTimestamp.Before(&before))
	require.False(t, after.Before(&pod.CreationTimestamp))
}
