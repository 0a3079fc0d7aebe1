package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// twoContexts is a kubeconfig whose contexts are those of the example, both of the tests' cluster.
func twoContexts(t *testing.T, c *kubetest.Cluster) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	require.NoError(t, err)
	for _, name := range []string{"staging", "production"} {
		config.Contexts[name] = config.Contexts[c.Name].DeepCopy()
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// impatient shortens what a test would wait for.
func impatient(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "failAfter: 10s")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "failAfter: 10s", "failAfter: 1s")), 0o600))
}

// The example's README, by the programs themselves: released, planned, broken, killed in the middle.
func TestKubernetesFromTheReadme_A11(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	c := kubetest.Start(t)
	dir := filepath.Join(t.TempDir(), "kubernetes")
	require.NoError(t, os.CopyFS(dir, os.DirFS(kubernetesExample)))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, ".converge")))
	impatient(t, filepath.Join(dir, configFile))
	t.Cleanup(func() {
		for _, namespace := range []string{"shop-staging", "shop-production"} {
			_ = c.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		}
	})
	d := shared.Dev(t, dir)
	d.Env = []string{"KUBECONFIG=" + twoContexts(t, c)}
	d.Start()
	d.Await("shop/web", "staging CONVERGED v1, production CONVERGED v1")
	d.Await("shop/api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	d.Await("shop/cache", "staging CONVERGED 1.6.38, production CONVERGED 1.6.38")

	out, code := d.Converge("plan", "shop/web", "v2", "-p", "production:replicas=5")
	require.Zero(t, code)
	require.Contains(t, out, "image registry.shop.dev/web:v1 → registry.shop.dev/web:v2")
	require.Contains(t, out, "replicas 3 → 5")
	require.Contains(t, out, "8 objects change, 0 removed")
	out, code = d.Converge("release", "shop/web", "v2", "--wait")
	require.Zero(t, code, out)
	require.Contains(t, out, "web v2 converged in staging, production.")

	t.Run("killed in the middle of a rollout", func(t *testing.T) {
		web := func(channel string) *appsv1.Deployment {
			d, err := c.Client.AppsV1().Deployments("shop-"+channel).Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			return d
		}
		before := web("staging").Generation
		_, code := d.Converge("release", "shop/web", "slow", "-p", "replicas=1") // two seconds for the pod
		require.Zero(t, code)
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			status := web("staging").Status
			return status.ObservedGeneration > before && status.UpdatedReplicas == 1, fmt.Sprint(status)
		})
		d.Kill()
		d.Start()
		d.Await("shop/web", "staging CONVERGED slow, production CONVERGED slow")
		require.Equal(t, before+1, web("staging").Generation, "what was applied is not applied again")
	})
	out, code = d.Converge("explain", "shop/web", "production")
	require.Zero(t, code)
	require.Contains(t, out, "shop/web production runs slow, as desired")
	out, code = d.Converge("logs", "shop/web", "production", "--last", "1")
	require.Zero(t, code)
	require.Contains(t, out, "configured Deployment/web")

	out, code = d.Converge("release", "shop/web", "v4", "-p", "staging:image=registry.shop.dev/web:crash", "--wait")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "CrashLoopBackOff web-")
	require.Contains(t, out, "production blocked by that")
	d.Stop()
	require.Contains(t, d.Output(), "keep running")
}
