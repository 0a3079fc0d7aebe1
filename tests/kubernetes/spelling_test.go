package kubernetes_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
)

// budgeted is a Deployment whose budget allows no disruption: none of its pods may be evicted, and all of them are replaced by a release.
const budgeted = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.shop.dev/web:${{ version }}"}]}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}
`

// What a server spells otherwise than the files is no drift: nothing is applied a second time, and numbers keep their digits.
func TestWhatTheServerSpellsOtherwiseIsNoDrift_A12(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	w := &kubeWorld{World: shared.World(t), cluster: cluster, production: cluster.Namespace(t)}
	t.Cleanup(func() { w.Retire("web") })
	objects, err := os.ReadFile("testdata/spelling.yaml")
	require.NoError(t, err)
	long := strings.Repeat("x", 240)
	w.save("objects.yaml", strings.Replace(string(objects), "LONG", long, 1)+budgeted)
	w.Write(fmt.Sprintf(`{apiVersion: converge/v1, kind: Application, name: APP, releaseChannels: [{name: prod, runtimes: [{name: APP-rt, namespace: %s}]}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
kubernetes: {kubeconfig: %q, context: %s, pollInterval: 100ms, steadyPollInterval: 500ms}
---
{apiVersion: converge/v1, kind: Service, name: web, initialVersion: v1, kubernetes: {manifests: [objects.yaml]}}
`, w.production, cluster.Kubeconfig, cluster.Name))
	w.Publish()
	w.steady("web", "prod CONVERGED v1")
	w.Release("web", "v2")
	w.steady("web", "prod CONVERGED v2")

	get := func(path ...string) string {
		t.Helper()
		text, err := cluster.Client.CoreV1().RESTClient().Get().AbsPath(path...).DoRaw(t.Context())
		require.NoError(t, err)
		return string(text)
	}
	require.Contains(t, get("/apis/spelling.converge.dev/v1/namespaces", w.production, "widgets/w"), `"big":9007199254740993`)
	require.Contains(t, get("/api/v1/namespaces", w.production, "resourcequotas/large"), `"requests.storage":"9007199254740993"`)
	_, err = cluster.Client.CoreV1().ConfigMaps(w.production).Get(t.Context(), long, metav1.GetOptions{})
	require.NoError(t, err)
}

// steady waits until a service that has converged was observed three times, and requires that nothing was applied meanwhile.
func (w *kubeWorld) steady(service, channels string) {
	w.T.Helper()
	w.Await(service, channels)
	applies, read := w.applies(service), w.readings([]string{service})
	w.AwaitThat(service, "three more readings", func(s protocol.Status) bool {
		require.Equal(w.T, channels, stage.Channels(s))
		require.NotContains(w.T, fmt.Sprint(s.Journal), "DEGRADED")
		return w.readings([]string{service}) >= read+3
	})
	require.Equal(w.T, applies, w.applies(service))
}
