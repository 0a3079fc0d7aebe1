package kubernetes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A chart that asks what the cluster has sees the real one, once that was captured by the command; a cluster that does not answer
// leaves the lock as it is.
func TestCapabilitiesAreCapturedOnKubernetes_H6(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	bin := shared.Programs(t)
	w := newKubeWorld(t, "cache")
	group := strings.ReplaceAll(w.staging, "-", "") + ".example.com"
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.` + group + `"},"spec":{"group":"` + group +
		`","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},"versions":[{"name":"v1","served":true,"storage":true,` +
		`"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	rest := w.cluster.Client.Discovery().RESTClient()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	require.NoError(t, rest.Post().AbsPath(definitions).SetHeader("Content-Type", "application/json").Body([]byte(definition)).Do(t.Context()).Error())
	t.Cleanup(func() { rest.Delete().AbsPath(definitions + "/widgets." + group).Do(t.Context()) })
	temporaltest.WaitFor(t, byWatch, func() (bool, string) {
		list, err := w.cluster.Client.Discovery().ServerResourcesForGroupVersion(group + "/v1")
		return err == nil && len(list.APIResources) > 0, "it is not served"
	})
	w.save("cache/chart/templates/seen.yaml", `{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}, data: {widget: "{{ .Capabilities.APIVersions.Has "`+group+`/v1/Widget" }}", `+
		`gadget: "{{ .Capabilities.APIVersions.Has "`+group+`/v1/Gadget" }}", kube: "{{ .Capabilities.KubeVersion }}"}}`)
	lock := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "converge"), append([]string{"config", "lock", w.Dir, "--capabilities", "--store", w.Store}, args...)...)
		cmd.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+temporaltest.Start(t).Address)
		out, err := cmd.CombinedOutput()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%v: %s", err, out)
		return string(out)
	}
	w.prompt().RunPage(stage.Only(t, "../../docs/kubernetes.md", "What charts see of a cluster").With(w.ours()))
	text := w.read("converge.lock")
	require.Contains(t, text, "      - groupVersion: "+group+"/v1\n        kinds: [Widget]\n")
	w.Publish()
	w.Await("cache", "staging CONVERGED 1.6.38, production CONVERGED 1.6.38")
	seen, err := w.cluster.Client.CoreV1().ConfigMaps(w.staging).Get(t.Context(), "seen", metav1.GetOptions{})
	require.NoError(t, err)
	version, err := w.cluster.Client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"widget": "true", "gadget": "false", "kube": version.GitVersion}, seen.Data)

	lock(0)
	require.Equal(t, text, w.read("converge.lock"), "the same bytes")
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(nowhere, []byte(`{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}`), 0o600))
	w.edit(configFile, `kubeconfig: "`+w.cluster.Kubeconfig+`", context: `+w.cluster.Name, `kubeconfig: "`+nowhere+`", context: a`)
	said := lock(1, "--update", "--runtime", w.App+"-production")
	require.Contains(t, said, "runtime "+w.App+"-production: the cluster cannot be queried: ")
	require.Contains(t, said, "127.0.0.1:1")
	require.Equal(t, text, w.read("converge.lock"), "nothing is written")
}
