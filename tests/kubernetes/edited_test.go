package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// editedObjects are a Service and a Deployment whose edits server-side apply cannot merge back.
const editedObjects = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "registry.shop.dev/web:${{ version }}"}]
`

// newEditedWorld is a service of editedObjects.
func newEditedWorld(t *testing.T) *kubeWorld {
	t.Helper()
	w := newKubeWorld(t, "web")
	require.NoError(t, os.RemoveAll(filepath.Join(w.Dir, "web")))
	require.NoError(t, os.Mkdir(filepath.Join(w.Dir, "web"), 0o700))
	w.save("web/web.yaml", editedObjects)
	return w
}

// editPort changes the port of the Service in production, as kubectl edit does.
func (w *kubeWorld) editPort() {
	w.T.Helper()
	_, err := w.cluster.Client.CoreV1().Services(w.production).Patch(w.T.Context(), "web", types.JSONPatchType,
		[]byte(`[{"op": "replace", "path": "/spec/ports/0/port", "value": 83}]`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(w.T, err)
}

// ports are the ports of the Service in production.
func (w *kubeWorld) ports() (ports []int32) {
	w.T.Helper()
	service, err := w.cluster.Client.CoreV1().Services(w.production).Get(w.T.Context(), "web", metav1.GetOptions{})
	require.NoError(w.T, err)
	for _, p := range service.Spec.Ports {
		ports = append(ports, p.Port)
	}
	return ports
}

// An edit that makes the server refuse the declaration is noticed by the watch, and put back like any other; the journal names its
// author, and the next release succeeds.
func TestKubernetesEditThatCannotBeMergedIsRepaired_A12(t *testing.T) {
	t.Parallel()
	w := newEditedWorld(t)
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.editPort()
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		ports := w.ports()
		return len(ports) == 1 && ports[0] == 80, fmt.Sprint(ports)
	})
	s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Contains(t, fmt.Sprint(s.Journal), "spec.ports[port=80] is missing, declared")

	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"strategy":{"type":"RollingUpdate"}}}`)
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		strategy := w.deployment(w.production, "web").Spec.Strategy
		return strategy.Type == "Recreate" && strategy.RollingUpdate == nil, fmt.Sprint(strategy)
	})
	s = w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Contains(t, fmt.Sprint(s.Journal), `spec.strategy.type "RollingUpdate", declared "Recreate" (written by kubectl-edit)`)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// Under observe such an edit is shown and stays. The next release repairs it.
func TestKubernetesReleasesRepairAnEditThatCannotBeMerged_A12_A14(t *testing.T) {
	t.Parallel()
	w := newEditedWorld(t)
	w.edit(configFile, "initialVersion: v1\n", "initialVersion: v1\ndrift: observe\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.editPort()
	s := w.AwaitThat("web", "what differs", func(s protocol.Status) bool { return channelOf(s, "production").Status == "DEGRADED" })
	require.Contains(t, reasons(s, "production"), "spec.ports[port=80] is missing, declared")
	require.Equal(t, []int32{83}, w.ports())

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, []int32{80}, w.ports())

	w.editPort()
	w.AwaitThat("web", "what differs", func(s protocol.Status) bool { return channelOf(s, "production").Status == "DEGRADED" })
	w.Release("web", "nopull")
	w.AwaitThat("web", "the rollback in staging", func(s protocol.Status) bool { return channelOf(s, "staging").Status == "ROLLED_BACK" })
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	require.Equal(t, []int32{80}, w.ports())
}
