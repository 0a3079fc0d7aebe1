package kubernetes_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
)

// The `console` blocks of the quickstart, and of the pages for those who have Argo CD or Flux, are run in the order of the pages, and
// print what the pages show.
func TestKubernetesPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("the pages use kubectl, which is not installed")
	}
	c := kubetest.Start(t)
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	require.NoError(t, err)
	config.CurrentContext = c.Name
	root := t.TempDir()
	kubeconfig := filepath.Join(root, "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	t.Cleanup(func() {
		for _, namespace := range []string{"demo-staging", "demo-production", "argocd-web"} {
			_ = c.Client.CoreV1().Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{})
		}
	})

	const quickstart = "../../docs/quickstart-kubernetes.md"
	demo := filepath.Join(root, "demo")
	require.NoError(t, os.Mkdir(demo, 0o700))
	text, err := os.ReadFile(quickstart)
	require.NoError(t, err)
	files := regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, files, 2)
	for _, file := range files {
		require.NoError(t, os.WriteFile(filepath.Join(demo, file[1]), []byte(file[2]), 0o600))
	}
	d := shared.Dev(t, demo)
	d.Env = []string{"KUBECONFIG=" + kubeconfig}
	_, code := d.Run(kubectl, "auth", "can-i", "create", "namespaces") // as the quickstart demands
	require.Zero(t, code)
	d.Start()
	d.Await("demo/web", "staging CONVERGED 1.27.4, production WAITING_MANUAL_APPROVAL")
	d.Dir = root
	for _, b := range stage.Console(t, quickstart) {
		d.RunPage(b)
	}

	for _, dir := range []string{"shop", "deploy"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, dir), os.DirFS("testdata/argocd")))
	}
	archive, err := txtar.ParseFile("../../cmd/converge/testdata/init_kubernetes.txtar")
	require.NoError(t, err)
	require.NoError(t, txtar.Write(archive, root)) // has the directory argo
	for _, args := range [][]string{
		{"create", "namespace", "argocd-web"},
		{"-n", "argocd-web", "apply", "--server-side", "--field-manager", "argocd-controller", "-f", "deploy/web"},
	} {
		out, code := d.Run(kubectl, args...)
		require.Zero(t, code, out)
	}
	for _, b := range stage.Console(t, "../../docs/trial.md") {
		d.RunPage(b)
	}
	out, code := d.Run(kubectl, "-n", "argocd-web", "apply", "--server-side", "--field-manager", "argocd-controller", "-f", "deploy/web")
	require.Zero(t, code, out)
	for _, b := range stage.Console(t, "../../docs/from-argocd-flux.md") {
		d.RunPage(b)
	}
}
