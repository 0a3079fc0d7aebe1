package kubernetes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/story"
	"github.com/converge-engine/converge/tests/kubetest"
)

// Stories of gates on a real Kubernetes API server, two of them the same as on a runtime in memory.
func TestKubernetesGates_A14_A19_A20_A22(t *testing.T) {
	t.Parallel()
	told := story.Load(t, "testdata/gates")
	elsewhere := story.Load(t, "../gates/testdata")
	told["approval"], told["window"] = elsewhere["approval"], elsewhere["window"]
	for name, archive := range told {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kubetest.Start(t)
			p := story.New(shared.World(t))
			p.Config = "kubernetes.yaml"
			p.Words["STAGING"], p.Words["PRODUCTION"] = cluster.Namespace(t), cluster.Namespace(t)
			p.Words["KUBECONFIG"], p.Words["CONTEXT"] = cluster.Kubeconfig, cluster.Name
			p.Words["RUNTIME"] = strings.NewReplacer("KUBECONFIG", cluster.Kubeconfig, "CONTEXT", cluster.Name).Replace(kubeRuntime)
			t.Cleanup(func() { p.Retire("web") }) // before the namespaces go: the service would want them back
			require.NotNil(t, archive)
			p.Play(archive)
		})
	}
}
