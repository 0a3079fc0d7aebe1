package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/kubetest"
	"github.com/converge-engine/converge/tests/kubetest/flux"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// fluxTrial is a trial beside the kustomize-controller of Flux, which reconciles its Kustomization of web every second.
type fluxTrial struct {
	*trial
	source         *flux.Source
	kustomizations dynamic.ResourceInterface
}

func newFluxTrial(t *testing.T) *fluxTrial {
	t.Helper()
	cluster := kubetest.Own(t)[0] // the controller looks after all namespaces
	w := &fluxTrial{trial: &trial{kubeWorld: newKubeWorldOn(t, cluster, kubeRuntime, "web")}}
	w.source = cluster.Flux(t, w.production)
	client, err := dynamic.NewForConfig(cluster.Config)
	require.NoError(t, err)
	w.kustomizations = client.Resource(flux.Kustomizations).Namespace(w.production)
	return w
}

// declares makes a version of web what Flux deploys.
func (w *fluxTrial) declares(version string) {
	w.T.Helper()
	require.NoError(w.T, w.source.Publish(w.T.Context(), "web", version, map[string]string{"web.yaml": w.manifestsOf(version)}))
}

func (w *fluxTrial) kustomize() {
	w.T.Helper()
	require.NoError(w.T, w.source.Kustomize(w.T.Context(), "web", map[string]any{"interval": "1s"}))
}

// awaitFlux waits until Flux has deployed a version, and its pods are ready.
func (w *fluxTrial) awaitFlux(version string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		k, err := w.kustomizations.Get(w.T.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		applied, _, _ := unstructured.NestedString(k.Object, "status", "lastAppliedRevision")
		pods := w.pods(w.production)
		return strings.HasPrefix(applied, version+"@") && len(pods) == 3, fmt.Sprint(k.Object["status"], pods)
	})
}

// endClaim ends the claim of Flux as docs/from-argocd-flux.md says: suspend, do not prune, delete.
func (w *fluxTrial) endClaim() {
	w.T.Helper()
	for _, patch := range []string{`{"spec":{"suspend":true}}`, `{"spec":{"prune":false}}`} {
		_, err := w.kustomizations.Patch(w.T.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "flux"})
		require.NoError(w.T, err)
	}
	require.NoError(w.T, w.kustomizations.Delete(w.T.Context(), "web", metav1.DeleteOptions{}))
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		_, err := w.kustomizations.Get(w.T.Context(), "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// A team follows docs/trial.md beside Flux as it is released: read-only, then one service is adopted, released by Converge, and returned.
// Until the adoption and after the return Flux deploys. No pod is restarted by either.
func TestTrialBesideFlux_A25(t *testing.T) {
	t.Parallel()
	w := newFluxTrial(t)
	w.mayAdopt()
	w.isReadOnly()
	w.declares("v1")
	w.kustomize()
	w.awaitFlux("v1")
	w.Publish()
	require.True(t, channelOf(w.Await("web", "staging CONVERGED v1, production CONVERGED v1"), "production").ReportOnly)
	w.Release("web", "v2")
	w.AwaitThat("web", "what would be applied", func(s protocol.Status) bool {
		return strings.Contains(objectOf(s, "production", "Deployment/web").Message, "(written by kustomize-controller)")
	})
	w.declares("v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Zero(t, requestsOf(w.credentials).writes())

	w.mayWrite()
	w.Publish()
	w.awaitFlux("v2")
	plan, code := w.prompt().Converge("plan", w.App+"/web", "v2")
	require.Zero(t, code, plan)
	require.Contains(t, plan, "it is adopted from kustomize-controller")
	before := w.pods(w.production)
	w.endClaim()
	w.Act("web", protocol.Adopt, `{"by":"alice","channel":"production","reason":"two weeks without a difference"}`)
	w.awaitAdoption("v2")
	require.Equal(t, before, w.pods(w.production), "nothing is restarted by the adoption")
	require.NotContains(t, w.managers(), "kustomize-controller")
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return len(w.pods(w.production)) == 3, fmt.Sprint(w.pods(w.production)) })
	before = w.pods(w.production)

	w.Act("web", protocol.Return, `{"by":"alice","channel":"production","reason":"after the migration"}`)
	w.awaitReturn("v3")
	w.declares("v3")
	w.kustomize()
	w.awaitFlux("v3")
	require.Equal(t, before, w.pods(w.production), "nothing is restarted by the return")
	require.Contains(t, w.managers(), "kustomize-controller")
	require.NotContains(t, w.managers(), "converge")
	w.declares("v4")
	w.Release("web", "v4")
	w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
}
