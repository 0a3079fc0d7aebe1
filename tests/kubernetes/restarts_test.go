package kubernetes_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Changed configuration is released as ever, and restarts what it concerns: a PodDisruptionBudget nothing, the settings of the pods the
// pods. A Job without a word about versions, as charts have them, is in the way of neither.
func TestChangedConfigurationRestartsWhatItConcerns_H1_B9(t *testing.T) {
	t.Parallel()
	w := newKubeWorld(t, "web")
	w.edit("web/web.yaml", `        env: [{name: VERSION, value: "${{ fullVersion }}"}]`+"\n", "")
	w.save("web/job.yaml", `{apiVersion: batch/v1, kind: Job, metadata: {name: web-setup}, spec: {template: {spec: {restartPolicy: Never,
		containers: [{name: setup, image: "tools:1", command: ["true"]}]}}}}`)
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	first := w.pods(w.staging)

	w.edit("web/web.yaml", "maxUnavailable: 1\n  selector", "maxUnavailable: 2\n  selector")
	w.Publish()
	s := w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	require.Equal(t, []string{"v1-i2"}, active(objectOf(s, "staging", "Deployment/web")))
	require.Equal(t, first, w.pods(w.staging))

	w.edit("web/settings.yaml", "GREETING:", "COLOUR: red\n  GREETING:")
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i3, production CONVERGED v1-i3")
	for _, pod := range w.pods(w.staging) {
		require.NotContains(t, first, pod)
	}
}

// pods are those of the Deployment web that are not being deleted.
func (w *kubeWorld) pods(namespace string) (all []types.UID) {
	w.T.Helper()
	list, err := w.cluster.Client.CoreV1().Pods(namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=web"})
	require.NoError(w.T, err)
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			all = append(all, pod.UID)
		}
	}
	slices.Sort(all)
	return all
}
