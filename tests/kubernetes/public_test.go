package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/tests/kubetest"
)

// What others wrote, definitions of kinds and an object of one of them, goes out whole, converges without drift, and
// moves to another version.
func TestKubernetesPublicManifests_D8(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile(filepath.Join(kubetest.PublicManifests(t), "install.yaml"))
	require.NoError(t, err)
	declared := strings.Count("\n"+string(manifest), "\nkind: ")
	require.Greater(t, declared, 30)
	w := newKubeWorld(t, "web")
	require.NoError(t, os.RemoveAll(filepath.Join(w.Dir, "web")))
	require.NoError(t, os.Mkdir(filepath.Join(w.Dir, "web"), 0o700))
	w.save("web/install.yaml", string(manifest))
	w.save("web/project.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {description: of a kind that the set defines}\n")
	_, err = w.cluster.Client.CoreV1().Secrets(w.staging).Create(t.Context(), &corev1.Secret{ // its own job makes it elsewhere
		ObjectMeta: metav1.ObjectMeta{Name: "argocd-redis"}, StringData: map[string]string{"auth": "secret"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.pattern(configFile, `(?s)- name: production\n.*?\n---\n`, "---\n") // its objects without a namespace are one set
	w.pattern(configFile, `(?s)\nperReleaseChannel:.*`, "\n")
	w.Publish()
	s := w.Await("web", "staging CONVERGED v1")
	require.Equal(t, declared+1, len(channelOf(s, "staging").Objects)+channelOf(s, "staging").Omitted)
	deployments, err := w.cluster.Client.AppsV1().Deployments(w.staging).List(t.Context(), metav1.ListOptions{LabelSelector: "converge/service=web"})
	require.NoError(t, err)
	require.Greater(t, len(deployments.Items), 3)

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2")
}
