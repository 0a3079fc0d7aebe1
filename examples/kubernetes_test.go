package examples

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/runtimes/kubernetes"
)

// rendered are the objects of a service in a channel, by kind and name.
func rendered(t *testing.T, c *compile.Compiled, service, channel, version string) map[string]*unstructured.Unstructured {
	t.Helper()
	payload := render(t, c, service, version)[channel].Kubernetes
	at := slices.IndexFunc(c.Bundles, func(b bundle.Bundle) bool { return b.Digest() == payload.Bundle })
	require.GreaterOrEqual(t, at, 0)
	raw, err := c.Bundles[at].Objects(payload.Values)
	require.NoError(t, err)
	objects := map[string]*unstructured.Unstructured{}
	for _, text := range raw {
		o := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(text, o))
		objects[o.GetKind()+"/"+o.GetName()] = o
	}
	return objects
}

// image and replicas of a workload.
func runs(t *testing.T, o *unstructured.Unstructured) (string, int64) {
	t.Helper()
	require.NotNil(t, o)
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	replicas, _, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	require.NoError(t, err)
	return containers[0].(map[string]any)["image"].(string), replicas
}

// Manifests, a kustomization and a chart, each different in production.
func TestKubernetesCompiles_D8(t *testing.T) {
	c := compiled(t, "kubernetes")
	for _, def := range c.Runtimes {
		clusters := &kubernetes.Clusters{}
		_, err := kubernetes.New(def, clusters)
		require.NoError(t, err)
		require.Equal(t, entities.RuntimeKubernetes, def.Kind)
		require.Equal(t, def.Name, def.Kubernetes.Context)
		clusters.Close()
	}
	type workload struct {
		service, channel, object, image string
		replicas                        int64
		all                             []string
	}
	for _, want := range []workload{
		{"web", "staging", "Deployment/web", "registry.shop.dev/web:v2", 2, []string{"ConfigMap/web-settings", "Deployment/web", "PodDisruptionBudget/web", "Service/web"}},
		{"web", "production", "Deployment/web", "registry.shop.dev/web:v2", 3, []string{"ConfigMap/web-settings", "Deployment/web", "PodDisruptionBudget/web", "Service/web"}},
		{"api", "staging", "Deployment/api", "ghcr.io/stefanprodan/podinfo:v2", 2, []string{"Deployment/api", "Job/api-migrate", "Service/api"}},
		{"api", "production", "Deployment/api", "ghcr.io/stefanprodan/podinfo:v2", 3, []string{"Deployment/api", "HorizontalPodAutoscaler/api", "Job/api-migrate", "PodDisruptionBudget/api", "Service/api"}},
		{"cache", "staging", "StatefulSet/cache", "docker.io/library/memcached:v2-alpine", 1, []string{"Job/cache-report", "Job/cache-warm", "Service/cache", "StatefulSet/cache"}},
		{"cache", "production", "StatefulSet/cache", "docker.io/library/memcached:v2-alpine", 2, []string{"Job/cache-report", "Job/cache-warm", "PodDisruptionBudget/cache", "Service/cache", "StatefulSet/cache"}},
	} {
		objects := rendered(t, c, want.service, want.channel, "v2")
		image, replicas := runs(t, objects[want.object])
		require.Equal(t, want, workload{want.service, want.channel, want.object, image, replicas, slices.Sorted(maps.Keys(objects))})
	}
	settings := rendered(t, c, "web", "production", "v2")["ConfigMap/web-settings"]
	require.Equal(t, map[string]any{"GREETING": "Hello", "API": "http://api.shop-production.svc"}, settings.Object["data"])
}

// What an operator looks after: a kind of its own, and how its health is read.
func TestOperatedCompiles_H3(t *testing.T) {
	c := compiled(t, "operated")
	require.Len(t, c.Runtimes, 1)
	require.Equal(t, "Database", c.Runtimes[0].Kubernetes.Health[0].Kind)
	_, err := kubernetes.New(c.Runtimes[0], &kubernetes.Clusters{})
	require.NoError(t, err)
	objects := rendered(t, c, "database", "staging", "17")
	require.Equal(t, "postgres:17", objects["Database/orders"].Object["spec"].(map[string]any)["engine"])
	require.Contains(t, objects, "CustomResourceDefinition/databases.db.shop.dev")
}
