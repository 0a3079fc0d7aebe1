package kubernetes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// In one incarnation one service hands an object over, and another one declares it: it has another owner in both channels and was never
// deleted, though the services prune. Then the earlier service drops it. Or it drops it at once, without any annotation.
func TestAnObjectMovesToAnotherServiceInOneIncarnation_D11(t *testing.T) {
	t.Parallel()
	for name, annotated := range map[string]bool{"annotated": true, "only dropped": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testMoveToAnotherService(t, annotated)
		})
	}
}

func testMoveToAnotherService(t *testing.T, annotated bool) {
	t.Helper()
	w := newKubeWorld(t, "web", "keeper")
	w.save(configFile, w.read(configFile)+"\n---\n{apiVersion: converge/v1, kind: Service, name: keeper, initialVersion: v1, kubernetes: {manifests: [keeper/], prune: true}}\n")
	w.edit(configFile, "manifests: [web], ", "manifests: [web], prune: true, ")
	require.NoError(t, os.Mkdir(filepath.Join(w.Dir, "keeper"), 0o700))
	w.save("keeper/own.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: own}}\n")
	shared := "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}, data: {a: b}}\n"
	w.save("web/shared.yaml", shared)
	w.Publish()
	await := func(version string) {
		t.Helper()
		for _, service := range []string{"web", "keeper"} {
			w.Await(service, "staging CONVERGED "+version+", production CONVERGED "+version)
		}
	}
	await("v1")
	uids := map[string]types.UID{}
	owner := func(namespace string) string {
		t.Helper()
		o, err := w.cluster.Client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "shared", metav1.GetOptions{})
		require.NoError(t, err)
		if uids[namespace] == "" {
			uids[namespace] = o.UID
		}
		require.Equal(t, uids[namespace], o.UID, "it was deleted")
		return o.Labels["converge/service"]
	}
	namespaces := []string{w.staging, w.production}
	for _, namespace := range namespaces {
		require.Equal(t, "web", owner(namespace))
	}

	if !annotated {
		require.NoError(t, os.Remove(filepath.Join(w.Dir, "web/shared.yaml")))
		w.save("keeper/shared.yaml", shared)
		w.Publish()
		await("v1-i2")
		for _, namespace := range namespaces {
			require.Equal(t, "keeper", owner(namespace))
		}
		return
	}
	w.save("web/shared.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, annotations: {converge/moved-to: keeper}}, data: {a: b}}\n")
	w.save("keeper/shared.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, annotations: {converge/moved-from: web}}, data: {a: b}}\n")
	w.Publish()
	await("v1-i2")
	for _, namespace := range namespaces {
		require.Equal(t, "keeper", owner(namespace))
	}

	require.NoError(t, os.Remove(filepath.Join(w.Dir, "web/shared.yaml")))
	w.Publish()
	w.Await("web", "staging CONVERGED v1-i3, production CONVERGED v1-i3")
	for _, namespace := range namespaces {
		require.Equal(t, "keeper", owner(namespace))
	}
}
