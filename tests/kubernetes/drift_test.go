package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// byWatch is far less than the five minutes between readings of what is steady.
const byWatch = 2 * time.Minute

// What is changed by hand is put back, at once, and what others add is left alone.
func TestKubernetesDriftIsRepaired_A12(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	t.Run("an edited field", func(t *testing.T) {
		w.patchWeb(w.production, "kubectl-edit", `{"spec":{"replicas":5}}`)
		temporaltest.WaitFor(t, byWatch, func() (bool, string) {
			d := w.deployment(w.production, "web")
			return *d.Spec.Replicas == 3, fmt.Sprintf("%d replicas", *d.Spec.Replicas)
		})
		s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
		require.Contains(t, fmt.Sprint(s.Journal), "kubectl-edit", "it is told who wrote it")
	})
	t.Run("a deleted object", func(t *testing.T) {
		services := w.cluster.Client.CoreV1().Services(w.production)
		before, err := services.Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, services.Delete(t.Context(), "web", metav1.DeleteOptions{}))
		temporaltest.WaitFor(t, byWatch, func() (bool, string) {
			after, err := services.Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && after.UID != before.UID, fmt.Sprint(err)
		})
		w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	})
	t.Run("what others add stays", func(t *testing.T) {
		w.declareWeb(w.production, "mesh", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","annotations":{"mesh/inject":"true"}}}`)
		w.patchWeb(w.production, "kubectl-edit", `{"spec":{"replicas":4}}`) // a repair, and then a release, pass it by
		w.Release("web", "v2")
		w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
		d := w.deployment(w.production, "web")
		require.Equal(t, int32(3), *d.Spec.Replicas)
		require.Equal(t, "true", d.Annotations["mesh/inject"])
	})
}

// A look that finds nothing new leaves the watch as it was.
func TestKubernetesChangeAfterALookIsSeen_A12(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	for range 2 {
		looked := time.Now()
		w.Act("web", protocol.Refresh, `{"by":"test"}`)
		w.AwaitThat("web", "the look", func(s protocol.Status) bool { return channelOf(s, "production").ObservedAt.After(looked) })
	}
	services := w.cluster.Client.CoreV1().Services(w.production)
	require.NoError(t, services.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		_, err := services.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// Under observe, drift is reported and left.
func TestKubernetesDriftIsReported_A12(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.edit(configFile, "initialVersion: v1\n", "initialVersion: v1\ndrift: observe\n")
	w.edit(configFile, "pollInterval: 100ms", "pollInterval: 100ms, steadyPollInterval: 2s") // should a hint be missed
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"replicas":5}}`)
	s := w.AwaitThat("web", "the rollout to five ended", func(s protocol.Status) bool {
		versions := objectOf(s, "production", "Deployment/web").Versions
		return channelOf(s, "production").Status == "DEGRADED" && len(versions) == 1 && versions[0].AvailableReplicas == 5
	})
	require.Contains(t, reasons(s, "production"), "spec.replicas 5, declared 3 (written by kubectl-edit)")

	seen := channelOf(s, "production").ObservedAt
	w.Act("web", protocol.Refresh, `{"by":"test"}`)
	w.AwaitThat("web", "another look", func(s protocol.Status) bool { return channelOf(s, "production").ObservedAt.After(seen) })
	require.Equal(t, int32(5), *w.deployment(w.production, "web").Spec.Replicas)
}

// A field that another tool declares is no drift to be taken back: the two would fight for ever. It is told who owns
// what, until somebody decides.
func TestKubernetesConflictIsExplained_D11(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.declareWeb(w.production, "flux", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":5}}`)
	s := w.AwaitThat("web", "the refused repair", func(s protocol.Status) bool {
		return channelOf(s, "production").Status == "DEGRADED" && strings.Contains(reasons(s, "production"), "spec.replicas belongs to flux")
	})
	require.Equal(t, "CONVERGED", channelOf(s, "staging").Status)
	require.Equal(t, int32(5), *w.deployment(w.production, "web").Spec.Replicas, "it was not fought over")

	w.edit(configFile, "manifests: [web]", "manifests: [web], adopt: true")
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	require.Equal(t, int32(3), *w.deployment(w.production, "web").Spec.Replicas)
}

// What is there already and not ours is not taken over, unless that is asked for.
func TestKubernetesAdopts_D11(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	maps := w.cluster.Client.CoreV1().ConfigMaps(w.staging)
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "web-settings"}, Data: map[string]string{"GREETING": "mine", "MORE": "kept"},
	}, metav1.CreateOptions{FieldManager: "somebody"})
	require.NoError(t, err)
	w.Publish()
	s := w.AwaitThat("web", "the refusal", func(s protocol.Status) bool { return channelOf(s, "staging").Status == "FAILED" })
	require.Contains(t, reasons(s, "staging"), "it already exists, and does not belong to this instance (written by somebody)")
	_, err = w.cluster.Client.AppsV1().Deployments(w.staging).Get(t.Context(), "web", metav1.GetOptions{})
	require.Error(t, err, "nothing is half done")

	w.edit(configFile, "manifests: [web]", "manifests: [web], adopt: true")
	w.Publish()
	w.AwaitThat("web", "both converged", func(s protocol.Status) bool { return s.Status == "CONVERGED" })
	settings, err := maps.Get(t.Context(), "web-settings", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "Hello from staging", settings.Data["GREETING"])
}

// A converged service costs no history and no request, however often it is observed. Alone,
// since it counts the requests of all that use the kubeconfig.
func TestKubernetesIdleCostsNothing(t *testing.T) {
	w := newKubeWorld(t, "web", "api", "cache")
	w.edit(configFile, "pollInterval: 100ms", "pollInterval: 50ms, steadyPollInterval: 50ms")
	w.Publish()
	services := []string{"web", "api", "cache"}
	for _, service := range services {
		w.AwaitThat(service, "converged", func(s protocol.Status) bool { return s.Status == "CONVERGED" })
	}
	record := requestsOf(w.cluster.Kubeconfig)
	events := func() (n int) {
		for _, service := range services {
			n += len(w.History(w.ID(service)))
		}
		return n
	}
	// What the last rollout leaves behind may still come in.
	before, asked, since := 0, 0, time.Now()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		if n, r := events(), record.count(); n != before || r != asked {
			before, asked, since = n, r, time.Now()
		}
		return time.Since(since) > time.Second, fmt.Sprintf("%d events, %d requests", before, asked)
	})
	counted := w.readings(services)
	const many = 24 // the server makes them a second apart
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { n := w.readings(services); return n >= counted+many, fmt.Sprint(n) })
	require.Equal(t, before, events(), "history events")
	require.Equal(t, asked, record.count(), "requests")
}

// readings is how often services were read by the observations under way.
func (w *kubeWorld) readings(services []string) (n int32) {
	w.T.Helper()
	for _, service := range services {
		described, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(service), "")
		require.NoError(w.T, err)
		for _, a := range described.PendingActivities {
			n += a.Attempt
		}
	}
	return n
}
