package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// hintedRuntime is observed once an hour while it is steady: what is seen sooner was hinted at.
const hintedRuntime = `{kubeconfig: "KUBECONFIG", context: CONTEXT, failAfter: 500ms, pollInterval: 100ms, steadyPollInterval: 1h, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 500ms}}`

// repaired waits until what was changed by hand is as declared.
func (w *kubeWorld) repaired(what string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, byWatch, func() (bool, string) {
		d := w.deployment(w.production, "web")
		return *d.Spec.Replicas == 3, fmt.Sprintf("%s: %d replicas", what, *d.Spec.Replicas)
	})
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// atRest waits until nothing of the service is observed again before long.
func (w *kubeWorld) atRest() {
	w.T.Helper()
	temporaltest.WaitFor(w.T, byWatch, func() (bool, string) {
		described, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID("web"), "")
		require.NoError(w.T, err)
		steady := 0
		for _, a := range described.PendingActivities {
			if a.ActivityType.GetName() != protocol.ActivityObserveAll || a.GetScheduledTime().AsTime().Before(time.Now().Add(10*time.Minute)) {
				return false, fmt.Sprint(a)
			}
			steady++
		}
		return steady > 0, "nothing is observed"
	})
}

// A repair ends as everything was before it, so the observation of what is steady goes on waiting. The next change is seen all
// the same, whenever it comes: here after what was repaired is steady again, an hour before that observation would come.
func TestDriftLongAfterARepairIsSeen_H9(t *testing.T) {
	t.Parallel()
	w := newKubeWorldOn(t, kubetest.Start(t), hintedRuntime, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.atRest()
	for n := range 3 {
		w.patchWeb(w.production, "kubectl-edit", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 5+n))
		w.repaired(fmt.Sprintf("change %d", n+1))
		w.atRest()
	}
}

// What changes while no worker runs is found by the one that starts, long before anything is observed by the clock.
func TestDriftWhileNoWorkerRanIsSeen_H9(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t)
	own := *cluster
	own.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig") // for connections of its own
	data, err := os.ReadFile(cluster.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(own.Kubeconfig, data, 0o600))
	w := newKubeWorldIn(t, shared.OwnServer(t, 0), &own, hintedRuntime, "web")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.atRest()

	w.StopWorker()
	disconnect(own.Kubeconfig)
	w.patchWeb(w.production, "kubectl-edit", `{"spec":{"replicas":5}}`)
	w.StartWorker()
	w.repaired("changed while no worker ran")

	w.StopWorker()
	disconnect(own.Kubeconfig)
	require.NoError(t, cluster.Client.AppsV1().Deployments(w.production).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	w.StartWorker()
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		_, err := cluster.Client.AppsV1().Deployments(w.production).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	w.Retire("web")
}
