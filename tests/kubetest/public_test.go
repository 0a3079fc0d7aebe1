package kubetest

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// TestPublicManifestsComeUp applies a large set that others wrote, and an object of one of its own kinds.
func TestPublicManifestsComeUp(t *testing.T) {
	t.Parallel()
	file := filepath.Join(PublicManifests(t), "install.yaml")
	c := Start(t)
	ns := c.Namespace(t)
	objects := append(readObjects(t, file), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "shop"}, "spec": map[string]any{"description": "of a kind from the set"},
	}})
	require.Greater(t, len(objects), 50)
	createSecret(t, c, ns, "argocd-redis", "auth")
	applyAll(t, c, ns, objects)
	WaitFor(t, 2*soon, func() (bool, string) {
		deployments, err := c.Client.AppsV1().Deployments(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, d := range deployments.Items {
			if d.Status.AvailableReplicas < 1 {
				return false, d.Name + " " + d.Status.String()
			}
		}
		return len(deployments.Items) == 6, ""
	})
}

func TestPublicChartIsThere(t *testing.T) {
	t.Parallel()
	require.FileExists(t, filepath.Join(PublicChart(t), "Chart.yaml"))
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, object)
	}
}

func applyAll(t *testing.T, c *Cluster, ns string, objects []*unstructured.Unstructured) {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config)
	require.NoError(t, err)
	discovered, err := discovery.NewDiscoveryClientForConfig(c.Config)
	require.NoError(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovered))
	for _, object := range objects {
		kind := object.GroupVersionKind()
		var mapping *meta.RESTMapping
		WaitFor(t, soon, func() (bool, string) { // a kind of the set's own is served in a moment
			if mapping, err = mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
				mapper.Reset()
				return false, err.Error()
			}
			return true, ""
		})
		resource := client.Resource(mapping.Resource)
		var target dynamic.ResourceInterface = resource
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			target = resource.Namespace(ns)
		}
		_, err = target.Apply(t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "kubetest"})
		require.NoError(t, err, "%s %s", kind, object.GetName())
	}
}

func createSecret(t *testing.T, c *Cluster, ns, name, key string) {
	t.Helper()
	_, err := c.Client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{key: "of the test"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func certificateOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
