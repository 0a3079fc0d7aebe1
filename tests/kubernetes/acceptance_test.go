package kubernetes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/tests/kubetest"
)

// What the command says of a cluster is so: each thing that it tries holds here, nothing of it is left, and where one does not
// hold it says which, and cleans up all the same.
func TestAcceptanceOfACluster_A11(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	c := kubetest.Start(t)
	namespace, dir := c.Namespace(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, configFile), []byte(`apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: none}]}]
---
apiVersion: converge/v1
kind: Runtime
name: none
custom: {apply: {command: ["true"]}}
---
apiVersion: converge/v1
kind: Service
name: other
initialVersion: v1
`), 0o600))
	d := shared.Dev(t, dir)
	d.Env = []string{"KUBECONFIG=" + c.Kubeconfig}
	d.Start()
	d.Await("shop/other", "prod CONVERGED v1")
	accept := func(more ...string) (string, int) {
		return d.Converge(append([]string{"admin", "acceptance", "kubernetes", "--context", c.Name, "--in", namespace, "--image", "registry.shop.dev/web", "--versions", "v1,v2"}, more...)...)
	}
	empty := func() {
		left, err := c.Client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, left.Items)
	}
	out, code := accept()
	require.Zero(t, code, out)
	require.Contains(t, out, "ok    a broken version is rolled back")
	require.Contains(t, out, "all steps passed")
	empty()

	out, code = accept("--broken", "v3") // which can be pulled
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "FAIL  a broken version is rolled back: exit status 0, expected 2")
	require.Contains(t, out, "ok    the service is deleted")
	empty()
}
