package kubernetes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
)

// flagged is a Deployment with a ConfigMap of flags.
const flagged = `apiVersion: v1
kind: ConfigMap
metadata: {name: flags}
data: {flagSet: "${{ params.flagSet }}"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.shop.dev/web:${{ version }}"}]}
`

// newFlagged is web with its flags, in a fleet of so many namespaces.
func newFlagged(t *testing.T, in *stage.World, many int) (w *kubeWorld, namespaces []string) {
	t.Helper()
	w = &kubeWorld{World: in, cluster: kubetest.Start(t)}
	for range many {
		namespaces = append(namespaces, w.cluster.Namespace(t))
	}
	w.Write(strings.Replace(fleetOf(w.cluster, namespaces), "kubernetes: {manifests: [web.yaml]}\n", `kubernetes: {manifests: [web.yaml]}
onDelete: remove
parameters: [{name: flagSet, type: string, default: plain}]
aspects: {flags: [flagSet]}
`, 1))
	w.save("web.yaml", flagged)
	w.Publish()
	return w, namespaces
}

// runs is the image and the flags in a namespace, or "".
func (w *kubeWorld) runs(namespace string) string {
	w.T.Helper()
	flags, err := w.cluster.Client.CoreV1().ConfigMaps(namespace).Get(w.T.Context(), "flags", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(w.T, err)
	return w.deployment(namespace, "web").Spec.Template.Spec.Containers[0].Image + " " + flags.Data["flagSet"]
}

// Flags go through a fleet beside the version that is there, in steps as it does; a version that cannot start goes back and leaves them,
// and so does a person who takes back the version below them (A22, B5, D24).
func TestKubernetesFlagsWithAVersion_A22_B5_D24(t *testing.T) {
	t.Parallel()
	w, namespaces := newFlagged(t, shared.World(t), 3)
	t.Cleanup(func() { w.Retire("web") }) // before the namespaces go
	all := func(status, full, runs string) {
		t.Helper()
		w.Await("web", "production "+status+" "+full)
		for _, namespace := range namespaces {
			require.Equal(t, "registry.shop.dev/web:"+runs, w.runs(namespace))
		}
	}
	w.Release("web", "v1")
	all("CONVERGED", "v1", "v1 plain")

	dark := entities.ValuesName("flags", map[string]any{"flagSet": "dark"}, nil)
	from := requestsOf(w.cluster.Kubeconfig).writes()
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
		RequestMeta: protocol.RequestMeta{By: "test"}, Aspect: "flags", Parameters: map[string]any{"flagSet": "dark"},
	}, &protocol.ReleaseAnswer{}))
	all("CONVERGED", "v1-"+dark, "v1 dark")
	require.Equal(t, namespaces[:1], w.deployedTo(namespaces, from)[:1], "the first step")

	w.Release("web", "nopull")
	all("ROLLED_BACK", "v1-"+dark, "v1 dark")
	w.Release("web", "v2")
	all("CONVERGED", "v2-"+dark, "v2 dark")
	bright := entities.ValuesName("flags", map[string]any{"flagSet": "bright"}, nil)
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
		RequestMeta: protocol.RequestMeta{By: "test"}, Aspect: "flags", Parameters: map[string]any{"flagSet": "bright"},
	}, &protocol.ReleaseAnswer{}))
	all("CONVERGED", "v2-"+bright, "v2 bright")
	w.Act("web", protocol.Rollback, `{"version":"v2","by":"alice"}`)
	all("ROLLED_BACK", "v1-"+bright, "v1 bright")
}

// What is in the namespace of a runtime that is drained is removed there, and comes back at what the rest got meanwhile (A16, D23).
func TestKubernetesDrainAndRestore_A16_D23(t *testing.T) {
	t.Parallel()
	w, namespaces := newFlagged(t, shared.OwnServer(t, 0), 2)
	w.Release("web", "v1")
	w.Await("web", "production CONVERGED v1")
	runtime := fmt.Sprintf("%s-%02d", w.App, 2)
	_, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: protocol.RuntimeID(runtime), TaskQueue: protocol.TaskQueue},
		protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: runtime, StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(t, err)
	act := func(verb string) {
		t.Helper()
		require.NoError(t, w.Update(protocol.RuntimeID(runtime), verb, protocol.DrainRequest{RequestMeta: protocol.RequestMeta{By: "carol", Reason: "new nodes"}}, &protocol.Answer{}))
	}
	act(protocol.Drain)
	gone := runtime + " is drained by carol: new nodes: removed until: converge runtime restore " + runtime
	w.AwaitThat("web", gone, func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Channels[0].Instances, func(i protocol.InstanceStatus) bool { return i.Reason == gone })
	})
	require.Empty(t, w.runs(namespaces[1]))
	_, err = w.cluster.Client.AppsV1().Deployments(namespaces[1]).Get(t.Context(), "web", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	w.Release("web", "v2")
	w.AwaitThat("web", "v2 elsewhere", func(s protocol.Status) bool {
		return s.Channels[0].Status == "CONVERGED" && s.Channels[0].Fleet.Version == "v2" && s.Channels[0].Fleet.AtVersion == 1
	})
	require.Equal(t, "registry.shop.dev/web:v2 plain", w.runs(namespaces[0]))
	require.Empty(t, w.runs(namespaces[1]), "nobody repairs what was removed")

	act(protocol.Restore)
	w.AwaitThat("web", "v2 everywhere", func(s protocol.Status) bool {
		return s.Channels[0].Status == "CONVERGED" && s.Channels[0].Fleet.AtVersion == 2
	})
	require.Equal(t, "registry.shop.dev/web:v2 plain", w.runs(namespaces[1]))
}
