package kubernetes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
)

// fleetOf is a production in each of some namespaces, which the label of a runtime names.
func fleetOf(cluster *kubetest.Cluster, namespaces []string) string {
	text := `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- name: production
  runtimes: [{selector: {app: APP}, namespace: "${{ runtime.labels.place }}"}]
  rollout: {steps: [{instances: 1}, {instances: "20%"}]}
---
apiVersion: converge/v1
kind: Service
name: web
kubernetes: {manifests: [web.yaml]}
`
	kind := strings.NewReplacer("KUBECONFIG", cluster.Kubeconfig, "CONTEXT", cluster.Name).Replace(kubeRuntime)
	for n, namespace := range namespaces {
		text += fmt.Sprintf(`---
apiVersion: converge/v1
kind: Runtime
name: APP-%02d
labels: {app: APP, place: %s}
kubernetes: %s
`, n+1, namespace, kind)
	}
	return text
}

const deployedEverywhere = `apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {version: "${{ version }}", place: "${{ runtime.labels.place }}"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.shop.dev/web:${{ version }}"}]}
`

// A Deployment in each of fifty namespaces: an image that cannot be pulled is seen by the canary alone, which goes back; a good one
// goes everywhere, and nowhere before the canary has it (D24, D27).
func TestKubernetesFleetInSteps_D24_D25_D27(t *testing.T) {
	t.Parallel()
	const many = 50
	w := &kubeWorld{World: shared.World(t), cluster: kubetest.Start(t)}
	var namespaces []string
	for range many {
		namespaces = append(namespaces, w.cluster.Namespace(t))
	}
	t.Cleanup(func() { w.Retire("web") }) // before the namespaces go
	w.Write(fleetOf(w.cluster, namespaces))
	w.save("web.yaml", deployedEverywhere)
	w.Publish()
	all := func(version string) {
		t.Helper()
		w.AwaitThat("web", "all at "+version, func(s protocol.Status) bool {
			return stage.Channels(s) == "production CONVERGED "+version && s.Channels[0].Fleet.AtVersion == many
		})
	}
	w.Release("web", "v1")
	all("v1")

	from := requestsOf(w.cluster.Kubeconfig).writes()
	w.Release("web", "nopull")
	s := w.Await("web", "production ROLLED_BACK v1")
	require.Regexp(t, "(ErrImagePull|ImagePullBackOff) web-", reasons(s, "production"))
	require.Equal(t, namespaces[:1], w.deployedTo(namespaces, from))
	require.Equal(t, "registry.shop.dev/web:v1", w.deployment(namespaces[0], "web").Spec.Template.Spec.Containers[0].Image)

	from = requestsOf(w.cluster.Kubeconfig).writes()
	w.Release("web", "v2")
	all("v2")
	for _, namespace := range namespaces {
		require.Equal(t, "registry.shop.dev/web:v2", w.deployment(namespace, "web").Spec.Template.Spec.Containers[0].Image)
		c, err := w.cluster.Client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"version": "v2", "place": namespace}, c.Data)
	}
	order := w.deployedTo(namespaces, from)
	require.Len(t, order, many)
	require.Equal(t, namespaces[:1], order[:1])
	require.ElementsMatch(t, namespaces[1:10], order[1:10])
}

// deployedTo lists those of the namespaces whose Deployment web was written since the first so many requests, in the order in
// which each was first.
func (w *kubeWorld) deployedTo(namespaces []string, from int) (order []string) {
	r := requestsOf(w.cluster.Kubeconfig)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range r.written[from:] {
		parts := strings.Split(request, "/")
		if len(parts) < 3 || !strings.HasSuffix(request, "/deployments/web") {
			continue
		}
		if in := parts[len(parts)-3]; slices.Contains(namespaces, in) && !slices.Contains(order, in) {
			order = append(order, in)
		}
	}
	return order
}
