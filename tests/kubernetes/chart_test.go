package kubernetes_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/tests/charttest"
	"github.com/converge-engine/converge/tests/kubetest"
)

// A chart of some size that others wrote, from a registry by its version: it is installed, its hooks run once and go as they
// say, a newer version of it comes, and is taken back; one field of it is patched.
func TestKubernetesPublicChartFromARegistry_H6_D8(t *testing.T) {
	dirs, versions := kubetest.PublicChartWithHooks(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	registry := charttest.NewRegistry(t)
	for i, dir := range dirs {
		registry.Push(t, "charts/cert-manager", versions[i], charttest.Released(t, "cert-manager", versions[i], os.DirFS(dir)))
	}
	w := newKubeWorld(t, "cache")
	w.pattern(configFile, `(?s)- name: production\n.*?\n---\n`, "---\n") // it has objects without a namespace
	w.pattern(configFile, `(?s)\nperReleaseChannel:.*`, "\n")
	w.pattern(configFile, `(?s)  helm:\n.*`, fmt.Sprintf(`  helm:
    chart: oci://%s/charts/cert-manager
    version: 1.20.x
    values:
      crds: {enabled: true}
      global: {leaderElection: {namespace: %s}}
      startupapicheck: {podAnnotations: {kubelab/run: "false", kubelab/exit-code: "0"}}
  patches:
  - {target: {kind: Deployment, labelSelector: app.kubernetes.io/component=controller}, patch: "{spec: {minReadySeconds: 1}}"}
`, registry.Host, w.staging))
	lock := func() compile.Locked {
		locked, err := compile.Lock(t.Context(), w.Dir, config.Options{}, false)
		require.NoError(t, err)
		return locked
	}
	require.Len(t, lock().Changes, 1)
	w.Publish()
	s := w.Await("cache", "staging CONVERGED 1.6.38")
	objects := len(channelOf(s, "staging").Objects) + channelOf(s, "staging").Omitted
	require.Greater(t, objects, 35)
	image := func() string {
		d := w.deployment(w.staging, "cache-cert-manager")
		require.Equal(t, int32(1), d.Spec.MinReadySeconds)
		return d.Spec.Template.Spec.Containers[0].Image
	}
	require.Equal(t, "quay.io/jetstack/cert-manager-controller:"+versions[0], image())
	hooksGone := func() {
		jobs, err := w.cluster.Client.BatchV1().Jobs(w.staging).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, jobs.Items)
	}
	hooksGone()
	ran := func() (n int) {
		events, err := w.cluster.Client.CoreV1().Events(w.staging).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Job,reason=Completed"})
		require.NoError(t, err)
		for _, e := range events.Items {
			n += int(max(e.Count, 1))
		}
		return n
	}
	require.Equal(t, 1, ran())

	w.edit(configFile, "version: 1.20.x", "version: 1.21.x")
	require.Len(t, lock().Changes, 2)
	w.Publish()
	w.Await("cache", "staging CONVERGED 1.6.38-i2")
	require.Equal(t, "quay.io/jetstack/cert-manager-controller:"+versions[1], image())

	w.Act("cache", protocol.Rollback, `{"by":"test","channel":"staging","reason":"bad"}`)
	w.Await("cache", "staging ROLLED_BACK 1.6.38")
	require.Equal(t, "quay.io/jetstack/cert-manager-controller:"+versions[0], image())
	hooksGone()
	require.Equal(t, 1, ran(), "the hooks are of the installation")
}
