package kubernetes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/kubetest"
)

// The API server of a cluster ends in the middle of an apply, which waits for the Job of its first wave, and starts again. The
// release goes on within a minute, by itself: no Job is run again, no object is applied twice, and drift is repaired as before.
func TestKubernetesControlPlaneRestarts_H9(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Own(t)[0]
	w := newKubeWorldOn(t, cluster, `{kubeconfig: "KUBECONFIG", context: CONTEXT, failAfter: 10s}`, "api")
	w.edit("api/base/migrate.yaml", `"echo migrated`, `"sleep 5; echo migrated`)
	w.Publish()
	w.Await("api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	migration := func() (*batchv1.Job, error) {
		return cluster.Client.BatchV1().Jobs(w.staging).Get(t.Context(), "api-migrate", metav1.GetOptions{})
	}
	before := w.deployment(w.staging, "api")

	w.Release("api", "6.7.1")
	var job *batchv1.Job
	kubetest.WaitFor(t, time.Minute, func() (bool, string) {
		var err error
		job, err = migration() // it is made anew
		return err == nil && job.Annotations["converge/version"] == "6.7.1" && job.Status.Active == 1, fmt.Sprint(job, err)
	})
	require.Equal(t, before.Generation, w.deployment(w.staging, "api").Generation, "the Deployment waits for the Job")
	cluster.StopAPIServer(t)
	w.AwaitThat("api", "an apply under way", func(s protocol.Status) bool { return channelOf(s, "staging").Target == "6.7.1" })
	cluster.StartAPIServer(t)
	since := time.Now()
	w.Await("api", "staging CONVERGED 6.7.1, production CONVERGED 6.7.1")
	t.Logf("released %s after the API server was back", time.Since(since).Round(100*time.Millisecond))
	require.Less(t, time.Since(since), time.Minute)
	after, err := migration()
	require.NoError(t, err)
	require.Equal(t, job.UID, after.UID, "the Job was run again")
	require.Equal(t, before.Generation+1, w.deployment(w.staging, "api").Generation, "it was applied twice")

	changed := func(by string) {
		t.Helper()
		w.patchDeployment(w.staging, "api", by, `{"spec":{"replicas":0}}`)
		require.Eventually(t, func() bool { return *w.deployment(w.staging, "api").Spec.Replicas == *before.Spec.Replicas }, time.Minute, 100*time.Millisecond)
	}
	changed("somebody")
	w.Await("api", "staging CONVERGED 6.7.1, production CONVERGED 6.7.1")
	cluster.StopAPIServer(t) // the watches are made anew
	cluster.StartAPIServer(t)
	changed("somebody-else")
}
