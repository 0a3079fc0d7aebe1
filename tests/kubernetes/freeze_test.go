package kubernetes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// An API server that answers nothing for 87 s, inside a progress deadline of 60 s, condemns nothing: the release in progress is UNKNOWN
// meanwhile, and so is what rests; both go on when it answers again.
func TestKubernetesFrozenServerCondemnsNothing_A23_D17(t *testing.T) {
	stage.Long(t, "the time of a frozen server")
	t.Parallel()
	freezer := kubetest.Start(t).Freezer(t)
	w := newKubeWorldOn(t, freezer.Cluster, kubeRuntime, "web")
	w.annotateWebPods("kubelab/ready-in", "${{ params.ready }}")
	w.edit(configFile, "- {name: replicas,", "- {name: ready, type: string, default: 0s}\n- {name: replicas,")
	w.edit(configFile, "name: web\ninitialVersion: v1\n", "name: web\ninitialVersion: v1\nprogressDeadline: 60s\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")

	require.NoError(t, w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
		RequestMeta: protocol.RequestMeta{By: "test"}, Version: "v2", ChannelParameters: map[string]map[string]any{"staging": {"ready": "10s"}},
	}, &protocol.ReleaseAnswer{}))
	w.Await("web", "staging CONVERGING v2, production WAITING_PRECONDITIONS v1")
	freezer.Freeze()
	frozen := time.Now()
	w.Await("web", "staging UNKNOWN v2, production UNKNOWN v1")
	t.Logf("unknown after %s", time.Since(frozen))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // it stays so for longer than the deadline
		require.Equal(t, "staging UNKNOWN v2, production UNKNOWN v1", stage.Channels(w.Status("web")))
		return time.Since(frozen) > 87*time.Second, fmt.Sprintf("frozen for %s", time.Since(frozen))
	})
	freezer.Thaw()
	s := w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	for _, line := range s.Journal {
		require.NotContains(t, line.Text, "FAILED", "nothing was condemned")
		require.NotContains(t, line.Text, "ROLL", "nothing was rolled back")
	}
}
