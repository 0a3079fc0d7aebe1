package kubernetes_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// An installation was moved with a copy of its store, and the old one runs on, with a store that knows nothing of that. What
// the cluster remembers keeps it from applying anything any more, and it says so.
func TestMovedInstallationIsNotAppliedOver(t *testing.T) {
	t.Parallel()
	old := newKubeWorldIn(t, shared.OwnServer(t, 0), kubetest.Start(t), kubeRuntime, "web")
	old.Publish()
	old.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	old.StopWorker()
	moved := &kubeWorld{World: shared.Unserved(t, embedded.Options{}), cluster: old.cluster, staging: old.staging, production: old.production}
	moved.App, moved.Dir = old.App, old.Dir
	require.NoError(t, os.CopyFS(moved.Store, os.DirFS(old.Store)))
	moved.StartWorkerAs(worker.Options{TakeOver: true})
	moved.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	moved.Release("web", "v2")
	moved.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	before := moved.deployment(old.production, "web")
	require.Equal(t, "v2", before.Annotations["converge/version"])

	old.StartWorker()
	old.Release("web", "v3")
	old.AwaitThat("web", "a refusal in staging", func(s protocol.Status) bool {
		return refusedBy(channelOf(s, "staging"), "refused: v2 is newer, from the moved installation (epoch 2; here it is 1)")
	})
	after := moved.deployment(old.production, "web")
	require.Equal(t, before.Generation, after.Generation)
	require.Equal(t, "v2", moved.deployment(old.staging, "web").Annotations["converge/version"])
	moved.Release("web", "v4")
	moved.Await("web", "staging CONVERGED v4, production CONVERGED v4")
}

// What stands in the cluster from a run that the store knows nothing of is not applied over, until a person says so: that counts
// above it.
func TestUnmanagedObjectsAreNotOverwritten(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	inventory := w.inventory(w.staging, "staging")
	w.fence(inventory, strings.NewReplacer(`"sequence":1`, `"sequence":9`, `"fullVersion":"v1"`, `"fullVersion":"v8"`).Replace(inventory.Annotations["converge/fence"]))
	w.Release("web", "v2")
	w.AwaitThat("web", "a refusal in staging", func(s protocol.Status) bool {
		return refusedBy(channelOf(s, "staging"), "refused: v8 is newer (9), from a run that is unknown here (2)")
	})
	require.Equal(t, "v1", w.deployment(w.staging, "web").Annotations["converge/version"])
	w.Act("web", protocol.Retry, `{"by":"alice","version":"v2"}`)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Contains(t, w.inventory(w.staging, "staging").Annotations["converge/fence"], `"sequence":10`)
}

func (w *kubeWorld) inventory(namespace, channel string) *corev1.ConfigMap {
	w.T.Helper()
	c, err := w.cluster.Client.CoreV1().ConfigMaps(namespace).Get(w.T.Context(), "converge."+w.App+".web."+channel, metav1.GetOptions{})
	require.NoError(w.T, err)
	return c
}

// fence writes another fence on an inventory.
func (w *kubeWorld) fence(inventory *corev1.ConfigMap, text string) {
	w.T.Helper()
	require.NotEqual(w.T, inventory.Annotations["converge/fence"], text)
	inventory.Annotations["converge/fence"] = text
	_, err := w.cluster.Client.CoreV1().ConfigMaps(inventory.Namespace).Update(w.T.Context(), inventory, metav1.UpdateOptions{FieldManager: "test"})
	require.NoError(w.T, err)
}

func refusedBy(c protocol.ChannelStatus, text string) bool {
	for _, r := range c.Reasons {
		if strings.Contains(r.Text, text) {
			return true
		}
	}
	return false
}

// A second installation, with a store of its own, declares the same services on the same cluster. It is told whose they are, and
// changes nothing of them; the first one neither notices nor repairs anything.
func TestSecondInstallationIsRefused_H10(t *testing.T) {
	t.Parallel()
	first := newKubeWorldIn(t, shared.OwnServer(t, 0), kubetest.Start(t), kubeRuntime, "web")
	first.Publish()
	first.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	before := first.deployment(first.staging, "web")
	second := &kubeWorld{World: shared.Unserved(t, embedded.Options{}), cluster: first.cluster, staging: first.staging, production: first.production}
	second.App, second.Dir = first.App, first.Dir
	second.StartWorker()
	second.Publish()
	page := stage.Text(t, "../../docs/kubernetes.md", "Two installations on one cluster").With(second.ours()).With(strings.NewReplacer("L5V7", "", "3GFK", "")) // their ids
	second.AwaitThat("web", "a refusal in staging", func(s protocol.Status) bool { return page.Missing(reasons(s, "staging")) == "" })
	after := first.deployment(first.staging, "web")
	require.Equal(t, before.ResourceVersion, after.ResourceVersion)
	first.Release("web", "v2")
	first.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}
