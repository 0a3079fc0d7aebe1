package kubernetes_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/kubetest"
)

// The API server accepts every object of the chart, as the renderings of tests/chart have them, except the one whose kind it does not know.
func TestChartIsAcceptedByTheServer(t *testing.T) {
	t.Parallel()
	c := newServer(t, kubetest.Start(t))
	for _, name := range []string{"least", "all"} {
		text, err := os.ReadFile("../chart/testdata/" + name + ".yaml")
		require.NoError(t, err)
		inNamespace := strings.NewReplacer("namespace: releases", "namespace: "+c.namespace, "namespace: 'releases'", "namespace: "+c.namespace, "namespace: jobs", "namespace: "+c.namespace)
		accepted := 0
		for object := range strings.SplitSeq(inNamespace.Replace(string(text)), "\n---\n") {
			err := c.dryRun(t, object)
			if strings.Contains(object, "kind: PodMonitor") {
				require.ErrorContains(t, err, `no matches for kind "PodMonitor"`)
				continue
			}
			require.NoError(t, err, object)
			accepted++
		}
		require.GreaterOrEqual(t, accepted, 3)
	}
}
