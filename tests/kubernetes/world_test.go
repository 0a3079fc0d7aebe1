// Package kubernetes_test releases with a whole Converge to real Kubernetes API servers: the example, drift, rights,
// refusals, and what it costs to be idle.
package kubernetes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

const kubernetesExample = "../../examples/kubernetes"

// kubeWorld is examples/kubernetes, or some of its services, on the tests' cluster: its two channels
// in two namespaces of the test's own.
type kubeWorld struct {
	*stage.World
	cluster             *kubetest.Cluster
	staging, production string // namespaces
}

// runtime is what a test's runtimes say of their connection; KUBECONFIG and CONTEXT are filled in. What
// is steady is observed every five minutes, so whatever a test sees sooner was watched.
const kubeRuntime = `{kubeconfig: "KUBECONFIG", context: CONTEXT, failAfter: 500ms, pollInterval: 100ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}`

// newKubeWorld copies the example and keeps those services. Nothing is published yet.
func newKubeWorld(t *testing.T, services ...string) *kubeWorld {
	t.Helper()
	return newKubeWorldOn(t, kubetest.Start(t), kubeRuntime, services...)
}

// newKubeWorldOn is newKubeWorld on a cluster, with runtimes that say this of their connection.
func newKubeWorldOn(t *testing.T, cluster *kubetest.Cluster, runtime string, services ...string) *kubeWorld {
	t.Helper()
	w := newKubeWorldIn(t, shared.World(t), cluster, runtime, services...)
	t.Cleanup(func() { w.Retire(services...) }) // before the namespaces go: a service would want them back
	return w
}

// newKubeWorldIn is newKubeWorldOn in a world that there is. Nobody retires its services.
func newKubeWorldIn(t *testing.T, in *stage.World, cluster *kubetest.Cluster, runtime string, services ...string) *kubeWorld {
	t.Helper()
	w := &kubeWorld{World: in, cluster: cluster, staging: cluster.Namespace(t), production: cluster.Namespace(t)}
	w.copyExample()
	w.edit(configFile, "name: shop\n", "name: "+w.App+"\n")
	for channel, namespace := range map[string]string{"staging": w.staging, "production": w.production} {
		w.edit(configFile, fmt.Sprintf("{name: %s, namespace: shop-%s}", channel, channel), fmt.Sprintf("{name: %s-%s, namespace: %s}", w.App, channel, namespace))
		w.pattern(configFile, `(?s)name: `+channel+`\nkubernetes: \{[^\n]*`, fmt.Sprintf("name: %s-%s\nkubernetes: %s", w.App, channel, runtime))
	}
	w.edit(configFile, "KUBECONFIG", cluster.Kubeconfig)
	w.edit(configFile, "CONTEXT", cluster.Name)
	w.keep(services)
	return w
}

const configFile = "shop.converge.yaml"

func (w *kubeWorld) copyExample() {
	w.T.Helper()
	require.NoError(w.T, os.CopyFS(w.Dir, os.DirFS(kubernetesExample)))
	require.NoError(w.T, os.RemoveAll(filepath.Join(w.Dir, ".converge")))
}

// keep leaves out the services that are not named.
func (w *kubeWorld) keep(services []string) {
	w.T.Helper()
	documents := strings.Split(w.read(configFile), "\n---\n")
	documents = slices.DeleteFunc(documents, func(d string) bool {
		name := regexp.MustCompile(`(?m)^kind: Service\nname: (\w+)$`).FindStringSubmatch(d)
		return name != nil && !slices.Contains(services, name[1])
	})
	w.save(configFile, strings.Join(documents, "\n---\n"))
}

func (w *kubeWorld) read(file string) string {
	w.T.Helper()
	data, err := os.ReadFile(filepath.Join(w.Dir, file))
	require.NoError(w.T, err)
	return string(data)
}

func (w *kubeWorld) save(file, text string) {
	w.T.Helper()
	require.NoError(w.T, os.WriteFile(filepath.Join(w.Dir, file), []byte(text), 0o600))
}

// edit replaces all occurrences in a file.
func (w *kubeWorld) edit(file, old, replacement string) {
	w.T.Helper()
	text := w.read(file)
	require.Contains(w.T, text, old)
	w.save(file, strings.ReplaceAll(text, old, replacement))
}

// pattern replaces whatever matches.
func (w *kubeWorld) pattern(file, old, replacement string) {
	w.T.Helper()
	text, re := w.read(file), regexp.MustCompile(old)
	require.Regexp(w.T, re, text)
	w.save(file, re.ReplaceAllLiteralString(text, replacement))
}

// annotateWebPods adds an annotation to the pod template of web, which tells the nodes how to play.
func (w *kubeWorld) annotateWebPods(annotation, value string) {
	w.T.Helper()
	w.edit("web/web.yaml", "    metadata:\n      labels:", fmt.Sprintf("    metadata:\n      annotations: {%s: %q}\n      labels:", annotation, value))
}

func (w *kubeWorld) deployment(namespace, name string) *appsv1.Deployment {
	w.T.Helper()
	d, err := w.cluster.Client.AppsV1().Deployments(namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	require.NoError(w.T, err)
	return d
}

// patchWeb changes the Deployment web as somebody else does.
func (w *kubeWorld) patchWeb(namespace, by, patch string) {
	w.T.Helper()
	w.patchDeployment(namespace, "web", by, patch)
}

func (w *kubeWorld) patchDeployment(namespace, name, by, patch string) {
	w.T.Helper()
	_, err := w.cluster.Client.AppsV1().Deployments(namespace).Patch(w.T.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: by})
	require.NoError(w.T, err)
}

// declareWeb declares fields of the Deployment web by server-side apply, as another tool does.
func (w *kubeWorld) declareWeb(namespace, by, object string) {
	w.T.Helper()
	force := true
	_, err := w.cluster.Client.AppsV1().Deployments(namespace).Patch(w.T.Context(), "web", types.ApplyPatchType, []byte(object), metav1.PatchOptions{FieldManager: by, Force: &force})
	require.NoError(w.T, err)
}

// prompt is where converge is run for the application.
func (w *kubeWorld) prompt() *stage.Dev {
	w.T.Helper()
	d := shared.Prompt(w.T, w.Dir, temporaltest.Start(w.T).Address)
	d.Env = []string{"CONVERGE_STORE=" + w.Store}
	return d
}

// ours puts the names of the test in place of those of a page.
func (w *kubeWorld) ours() *strings.Replacer {
	return strings.NewReplacer("PodDisruptionBudget shop/web", "PodDisruptionBudget "+w.staging+"/web", "shop/web", w.App+"/web", "examples/kubernetes", w.Dir,
		"of production: ", "of "+w.App+"-production: ", "of staging: ", "of "+w.App+"-staging: ", "v1.34.2, 412 APIs", "v…APIs",
		`ImagePullBackOff web-8df945d6b-htbqs: Back-off pulling image "registry.shop.dev/web:nopull": `, "…", // the node says it in two ways
		"ImagePullBackOff web-8df945d6b-htbqs: Back-off pulling image …", "…")
}

func channelOf(s protocol.Status, name string) protocol.ChannelStatus {
	for _, c := range s.Channels {
		if c.Name == name {
			return c
		}
	}
	return protocol.ChannelStatus{}
}

// objectOf finds an object by type and name: Deployment/web.
func objectOf(s protocol.Status, channel, name string) entities.Object {
	for _, o := range channelOf(s, channel).Objects {
		if o.Type+"/"+o.Name == name {
			return o
		}
	}
	return entities.Object{}
}

// reasons is all that a channel says of itself.
func reasons(s protocol.Status, channel string) string {
	var lines []string
	for _, r := range channelOf(s, channel).Reasons {
		lines = append(lines, r.Text)
	}
	return strings.Join(lines, "\n")
}

// active lists the active versions of an object.
func active(o entities.Object) (all []string) {
	for _, v := range o.Versions {
		if v.Active {
			all = append(all, v.Version)
		}
	}
	return all
}
