package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// readme is a copy of the examples of Kubernetes, with a dev server that follows the first one.
type readme struct {
	*stage.Dev
	cluster *kubetest.Cluster
	example string
}

func newReadme(t *testing.T) *readme {
	t.Helper()
	root := t.TempDir()
	r := &readme{cluster: kubetest.Start(t), example: filepath.Join(root, "examples", "kubernetes")}
	for _, name := range []string{"kubernetes", "operated"} {
		to := filepath.Join(root, "examples", name)
		require.NoError(t, os.CopyFS(to, os.DirFS("../../examples/"+name)))
		require.NoError(t, os.RemoveAll(filepath.Join(to, ".converge")))
	}
	edit(t, filepath.Join(r.example, configFile), "failAfter: 10s", "failAfter: 1s") // what a test would wait for
	edit(t, filepath.Join(r.example, configFile), "- {name: replicas,", "- {name: ready, type: string, default: 0s}\n- {name: replicas,")
	edit(t, filepath.Join(r.example, "web", "web.yaml"), "    metadata:\n      labels:", "    metadata:\n      annotations: {kubelab/ready-in: \"${{ params.ready }}\"}\n      labels:")
	t.Cleanup(func() {
		for _, namespace := range []string{"shop-staging", "shop-production", "shop-orders"} {
			_ = r.cluster.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		}
	})
	r.Dev = shared.Dev(t, root)
	r.Env = []string{"KUBECONFIG=" + twoContexts(t, r.cluster)}
	return r
}

// start has it follow the example, while commands are run where the page has them run.
func (r *readme) start() {
	root := r.Dir
	r.Dir = r.example
	r.Start()
	r.Dir = root
}

func edit(t *testing.T, file, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, replacement)), 0o600))
}

// page runs the command lines of the example's README, and what docs/kubernetes.md shows of the same.
func (r *readme) page() {
	t := r.T
	t.Helper()
	_, err := exec.LookPath("kubectl")
	ours := strings.NewReplacer("release shop/web slow", "release shop/web slow -p staging:ready=5s", // to be seen on a loaded machine, too
		`ImagePullBackOff web-8df945d6b-vlnsr: Back-off pulling image "registry.shop.dev/web:nopull": `, "…", // the node says it in two ways
		"ImagePullBackOff web-8df945d6b-vlnsr", "…",
		"as declared again", "… again") // its pods may be ready by the next reading
	before := map[string]func(){
		"converge explain shop/web production": func() {
			edit(t, filepath.Join(r.example, configFile), "parameters: {replicas: 3}", "parameters: {replicas: 4}")
			r.Await("shop/web", "staging CONVERGED v3, production CONVERGED v3-i2")
			require.NoError(t, os.Rename(filepath.Join(r.example, "web", "settings.yaml"), filepath.Join(t.TempDir(), "settings.yaml")))
			r.Await("shop/web", "staging CONVERGED v3-i3, production CONVERGED v3-i3")
		},
	}
	for _, b := range stage.Console(t, "../../examples/kubernetes/README.md") {
		if prepare := before[b.Commands[0].Line]; prepare != nil {
			prepare()
		}
		if err != nil && slices.ContainsFunc(b.Commands, func(c stage.Command) bool { return strings.HasPrefix(c.Line, "kubectl ") }) {
			t.Logf("not run, for want of kubectl: %s", b.Commands[0].Line)
			continue
		}
		r.RunPage(b.With(ours))
		if strings.Contains(b.Commands[0].Line, " scale deployment web ") {
			r.RunPage(stage.Only(t, "../../docs/kubernetes.md", "Drift"))
		}
	}
}

// The example's README, by the programs themselves: released, planned, broken, killed in the middle.
func TestKubernetesFromTheReadme_A11(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	d := newReadme(t)
	d.start()
	d.Await("shop/web", "staging CONVERGED v1, production CONVERGED v1")
	d.Await("shop/api", "staging CONVERGED 6.7.0, production CONVERGED 6.7.0")
	d.Await("shop/cache", "staging CONVERGED 1.6.38, production CONVERGED 1.6.38")

	out, code := d.Converge("plan", "shop/web", "v2", "-p", "production:replicas=5")
	require.Zero(t, code)
	require.Contains(t, out, "replicas 3 → 5")
	require.Contains(t, out, "8 objects change, 0 removed")
	d.page()

	t.Run("killed in the middle of a rollout", func(t *testing.T) {
		web := func(channel string) *appsv1.Deployment {
			d, err := d.cluster.Client.AppsV1().Deployments("shop-"+channel).Get(t.Context(), "web", metav1.GetOptions{})
			require.NoError(t, err)
			return d
		}
		before := web("staging").Generation
		_, code := d.Converge("release", "shop/web", "v5", "-p", "replicas=1", "-p", "ready=2s")
		require.Zero(t, code)
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			status := web("staging").Status
			return status.ObservedGeneration > before && status.UpdatedReplicas == 1, fmt.Sprint(status)
		})
		d.Kill()
		d.start()
		d.Await("shop/web", "staging CONVERGED v5, production CONVERGED v5")
		require.Equal(t, before+1, web("staging").Generation, "what was applied is not applied again")
	})
	out, code = d.Converge("explain", "shop/web", "production")
	require.Zero(t, code)
	require.Contains(t, out, "shop/web production runs v5, as desired")
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
