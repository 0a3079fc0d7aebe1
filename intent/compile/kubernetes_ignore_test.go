package compile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// What a service leaves to others is part of what is applied, and what a runtime leaves is not; a channel may say otherwise.
func TestIgnoredDifferences_H2_H5(t *testing.T) {
	compiled := intenttest.Text(t, strings.Replace(cluster(`
kubernetes:
  manifests: [a.yaml]
  removeClaims: true
  foreign: remove
  ignoreDifferences: [{group: apps, kind: Deployment, name: web, namespace: shop, jsonPointers: [/spec/replicas], managedFieldsManagers: [keda]}]
perReleaseChannel: [{releaseChannel: prod, kubernetes: {foreign: report, removeClaims: false, ignoreDifferences: []}}]
`), "kubernetes: {}", `kubernetes: {ignoreDifferences: [{group: "*", kind: "*", managedFieldsManagers: ["*-updater"]}]}`, 1), "a.yaml", configMap("a"))
	require.Equal(t, []entities.IgnoredDifference{{Group: "*", Kind: "*", Managers: []string{"*-updater"}}}, compiled.Runtimes[0].Kubernetes.Ignore)
	payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1"})
	require.NoError(t, err)
	staging, prod := payloads["staging"].Kubernetes, payloads["prod"].Kubernetes
	require.Equal(t, []bool{true, true, false, false}, []bool{staging.RemoveClaims, staging.RemoveForeign, prod.RemoveClaims, prod.RemoveForeign})
	require.Empty(t, prod.Ignore)
	require.Equal(t, []entities.IgnoredDifference{{
		Group: "apps", Kind: "Deployment", Name: "web", Namespace: "shop", JSONPointers: []string{"/spec/replicas"}, Managers: []string{"keda"},
	}}, staging.Ignore)

	web := entities.AllowedKind{Group: "apps", Kind: "Deployment"}
	require.True(t, staging.Ignore[0].Matches(web, "shop", "web"))
	require.False(t, staging.Ignore[0].Matches(web, "shop", "api"))
	require.False(t, staging.Ignore[0].Matches(web, "other", "web"))
	require.False(t, staging.Ignore[0].Matches(entities.AllowedKind{Kind: "Deployment"}, "shop", "web"))
	require.True(t, staging.Ignore[0].MatchesManager("keda"))
	require.True(t, compiled.Runtimes[0].Kubernetes.Ignore[0].MatchesManager("image-updater"))
	require.False(t, compiled.Runtimes[0].Kubernetes.Ignore[0].MatchesManager("kubectl"))
}
