package kubernetes

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/kubetest"
)

// A kubeconfig that leads to another server, under the same name, is another cluster: what was watched in the first says nothing of
// it (D17). A recreated cluster is another one too.
func TestAnotherServerIsListedAgain_D17(t *testing.T) {
	t.Parallel()
	two := kubetest.Own(t, "staging", "production")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	pointTo := func(name string) {
		file, err := clientcmd.LoadFromFile(two[0].Kubeconfig)
		require.NoError(t, err)
		file.CurrentContext = name
		require.NoError(t, clientcmd.WriteToFile(*file, path))
	}
	pointTo("staging")
	b := &testCluster{TB: t, namespace: "default", clusters: &Clusters{}}
	t.Cleanup(b.clusters.Close)
	var err error
	b.Runtime, err = New(definition(path), b.clusters)
	require.NoError(t, err)
	in := b.instance("v1", config)
	_, err = b.Apply(t.Context(), in)
	require.NoError(t, err)
	b.until(in, "v1", settled("v1"))

	two[0].StopAPIServer(t)
	pointTo("production")
	b.wait("the missing object in production", func() bool {
		objects, err := b.Observe(t.Context(), in)
		return err == nil && len(objects) == 1 && objects[0].Message == "does not exist"
	}, func() any {
		objects, err := b.Observe(t.Context(), in)
		return []any{objects, err}
	})
	_, err = b.Apply(t.Context(), in)
	require.NoError(t, err)
	objects := b.until(in, "v1 there too", settled("v1"))
	require.Equal(t, entities.ObjectSucceeded, objects[0].Status)
}
