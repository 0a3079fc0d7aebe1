package kubernetes_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// helmUser is a person with the helm command and a cluster, in the root of a checkout.
type helmUser struct {
	*testing.T
	helm    string
	cluster *kubetest.Cluster
	page    string // docs/install.md
}

// run runs the one command of the page that begins so, with the values file.
func (u *helmUser) run(begin, values string) string {
	u.Helper()
	lines := regexp.MustCompile("(?m)(?:^|`)("+regexp.QuoteMeta(begin)+"[^`\n]*)").FindAllStringSubmatch(u.page, -1)
	require.Len(u, lines, 1, begin)
	return u.command(strings.Fields(strings.ReplaceAll(lines[0][1], "values.yaml", values))...)
}

func (u *helmUser) command(words ...string) string {
	u.Helper()
	require.Equal(u, "helm", words[0])
	cmd := exec.CommandContext(u.Context(), u.helm, append(words[1:], "--kubeconfig", u.cluster.Kubeconfig, "--kube-context", u.cluster.Name)...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(u, err, "%s", out)
	return string(out)
}

// The helm command installs the chart as docs/install.md says, with the least values of the page, upgrades it to another version and with all
// that it can have, and uninstalls it: what the page says is left.
func TestHelmInstallsTheChart_H6(t *testing.T) {
	t.Parallel()
	u := &helmUser{T: t, helm: kubetest.Helm(t), cluster: kubetest.Own(t)[0]} // the page names the namespace
	page, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	u.page = string(page)
	values := t.TempDir() + "/values.yaml"
	least := regexp.MustCompile("(?s)`values.yaml`:\n\n```yaml\n(.*?)```").FindStringSubmatch(u.page)
	require.NotNil(t, least)
	require.NoError(t, os.WriteFile(values, []byte(least[1]), 0o600))

	notes := u.run("helm install ", values)
	require.Contains(t, notes, "kubectl -n converge rollout status deployment/converge-worker\n")
	u.awaitWorkers("v1.2.3")

	require.NoError(t, os.WriteFile(values, []byte(strings.ReplaceAll(least[1], "v1.2.3", "v1.2.4")+"serve: {enabled: true, baseURL: \"https://converge.shop.dev\", sessionKeysSecret: {name: sessions}}\n"), 0o600))
	_, err = u.cluster.Client.CoreV1().Secrets("converge").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sessions"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	notes = u.command("helm", "upgrade", "converge", "deploy/chart", "--namespace", "converge", "--values", values)
	require.Contains(t, notes, "The board: https://converge.shop.dev")
	u.awaitWorkers("v1.2.4")

	u.run("helm uninstall ", values)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		left := u.left()
		return slices.Equal(left, []string{"secrets/sessions"}), strings.Join(left, " ")
	})
}

// awaitWorkers waits until all workers that are available have that tag.
func (u *helmUser) awaitWorkers(tag string) {
	u.Helper()
	temporaltest.WaitFor(u, stage.Patience, func() (bool, string) {
		d, err := u.cluster.Client.AppsV1().Deployments("converge").Get(u.Context(), "converge-worker", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":"+tag) && d.Status.ObservedGeneration == d.Generation &&
			d.Status.UpdatedReplicas == 2 && d.Status.AvailableReplicas == 2 && d.Status.Replicas == 2, d.Status.String()
	})
}

// left are the objects in the namespace that a person or a chart made.
func (u *helmUser) left() (names []string) {
	u.Helper()
	client, err := dynamic.NewForConfig(u.cluster.Config)
	require.NoError(u, err)
	for _, kind := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "secrets"},
		{Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "serviceaccounts"},
		{Version: "v1", Resource: "pods"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	} {
		list, err := client.Resource(kind).Namespace("converge").List(u.Context(), metav1.ListOptions{})
		require.NoError(u, err)
		for _, o := range list.Items {
			if name := kind.Resource + "/" + o.GetName(); name != "serviceaccounts/default" {
				names = append(names, name)
			}
		}
	}
	return names
}
