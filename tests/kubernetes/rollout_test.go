package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/kubetest/rollouts"
	"github.com/converge-engine/converge/tests/temporaltest"
)

const rolloutConfig = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: APP-cluster, namespace: NAMESPACE}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-cluster
kubernetes: {kubeconfig: "KUBECONFIG", context: CONTEXT, pollInterval: 100ms, retry: {backoff: 100ms, maxBackoff: 1s}}
---
apiVersion: converge/v1
kind: Service
name: web
initialVersion: v1
kubernetes: {manifests: [rollout.yaml]}
`

const rolloutManifest = `apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app.kubernetes.io/name: web}}
  strategy: {canary: {steps: [{setWeight: 50}, {pause: {}}, {setWeight: 100}]}}
  template:
    metadata: {labels: {app.kubernetes.io/name: web}}
    spec: {containers: [{name: web, image: "web:${{ version }}"}]}
`

// A Rollout of Argo Rollouts waits at a step, and is promoted and aborted by the commands that explain prints: from the
// program to the controller of that project, on a real API server. Its pods are played.
func TestRolloutsFromTheCommandLine_H3(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	w := newRolloutWorld(t)
	w.Publish()
	w.Await("web", "production CONVERGED v1") // a first version has no steps
	w.runs("v1 v1")

	command := w.suspended("v2")
	w.prompt().RunPage(stage.Only(t, "../../docs/kubernetes.md", "Rollouts with steps of their own").With(w.ours()))
	w.runs("v1 v2")
	w.converge(append(command, "--reason", "looks good")...)
	w.Await("web", "production CONVERGED v2")
	w.runs("v2 v2")
	require.Contains(t, w.converge("history", w.App+"/web"), "looks good")

	w.suspended("v3")
	w.runs("v2 v3")
	w.converge("abort", w.App+"/web", "production", "--reason", "errors in checkout")
	w.Await("web", "production ROLLED_BACK v2")
	w.runs("v2 v2")
	require.Contains(t, w.converge("history", w.App+"/web"), "errors in checkout")

	command = w.suspended("v4")
	w.converge(append(command, "--full")...)
	w.Await("web", "production CONVERGED v4")
	w.runs("v4 v4")
}

// A service that is a Rollout is adopted from the tool that deploys it, and returned, beside the controller of Argo Rollouts. No pod is
// restarted, and no step of its strategy begins.
func TestRolloutIsAdoptedAndReturned_A25(t *testing.T) {
	t.Parallel()
	w := newRolloutWorld(t)
	w.edit(configFile, "- {name: production,", "- {name: production, enforcement: report,")
	w.edit(configFile, "manifests: [rollout.yaml]", "manifests: [rollout.yaml], adopt: true")
	rollout := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(rolloutManifest, "${{ version }}", "v1")), &rollout.Object))
	client, err := dynamic.NewForConfig(w.cluster.Config)
	require.NoError(t, err)
	_, err = client.Resource(rollouts.Resource).Namespace(w.production).Apply(t.Context(), "web", rollout, metav1.ApplyOptions{FieldManager: "argocd-controller"})
	require.NoError(t, err)
	w.runs("v1 v1")
	before := w.pods(w.production)
	w.Publish()
	require.True(t, channelOf(w.Await("web", "production CONVERGED v1"), "production").ReportOnly)

	label := func() string {
		live, err := client.Resource(rollouts.Resource).Namespace(w.production).Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		return live.GetLabels()["converge/service"]
	}
	w.Act("web", protocol.Adopt, `{"by":"alice","channel":"production","reason":"two weeks without a difference"}`)
	w.AwaitThat("web", "Converge applies", func(s protocol.Status) bool {
		return !channelOf(s, "production").ReportOnly && stage.Channels(s) == "production CONVERGED v1" && label() == "web"
	})
	w.Act("web", protocol.Return, `{"by":"alice","channel":"production","reason":"after the migration"}`)
	w.AwaitThat("web", "its objects are given up", func(s protocol.Status) bool {
		return channelOf(s, "production").ReportOnly && stage.Channels(s) == "production CONVERGED v1" && label() == ""
	})
	w.runs("v1 v1")
	require.Equal(t, before, w.pods(w.production))
}

// rolloutWorld is a service that is one Rollout, in a namespace with the controller of Argo Rollouts.
type rolloutWorld struct {
	*kubeWorld
	bin, address string
}

func newRolloutWorld(t *testing.T) *rolloutWorld {
	t.Helper()
	cluster := kubetest.Start(t)
	w := &rolloutWorld{kubeWorld: &kubeWorld{World: shared.World(t), cluster: cluster, production: cluster.Namespace(t)}}
	cluster.Rollouts(t, w.production)
	w.save(configFile, strings.NewReplacer("APP", w.App, "NAMESPACE", w.production, "KUBECONFIG", cluster.Kubeconfig, "CONTEXT", cluster.Name).Replace(rolloutConfig))
	w.save("rollout.yaml", rolloutManifest)
	t.Cleanup(func() { w.Retire("web") })
	w.bin, w.address = shared.Converge(t), temporaltest.Start(t).Address
	return w
}

func (w *rolloutWorld) converge(args ...string) string {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), w.bin, append(args, "--address", w.address)...)
	cmd.Env = append(os.Environ(), "CONVERGE_STORE="+w.Store)
	out, err := cmd.CombinedOutput()
	require.NoError(w.T, err, "%s", out)
	return string(out)
}

// suspended releases a version, waits until it waits for a person, and returns the command that explain prints for that.
func (w *rolloutWorld) suspended(version string) (command []string) {
	w.T.Helper()
	w.converge("release", w.App+"/web", version)
	w.AwaitThat("web", version+" suspended", func(s protocol.Status) bool {
		return channelOf(s, "production").Status == "SUSPENDED" && channelOf(s, "production").Target == version
	})
	promote := fmt.Sprintf("converge promote %s/web production", w.App)
	require.Contains(w.T, w.converge("explain", w.App+"/web", "production"), promote)
	return strings.Fields(promote)[1:]
}

// runs waits until the namespace has ready pods of these versions, and no others.
func (w *rolloutWorld) runs(versions string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, byWatch, func() (bool, string) {
		pods, err := w.cluster.Client.CoreV1().Pods(w.production).List(w.T.Context(), metav1.ListOptions{})
		require.NoError(w.T, err)
		var seen []string
		for _, p := range pods.Items {
			seen = append(seen, versionOfPod(&p))
		}
		slices.Sort(seen)
		return strings.Join(seen, " ") == versions, fmt.Sprintf("pods of %v; expected %s", seen, versions)
	})
}

// versionOfPod is that of its image, with what it lacks.
func versionOfPod(p *corev1.Pod) string {
	version := strings.TrimPrefix(p.Spec.Containers[0].Image, "web:")
	if p.DeletionTimestamp != nil {
		return version + " going"
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return version
		}
	}
	return version + " not ready"
}
