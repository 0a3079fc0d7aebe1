package charts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// However a server lists its APIs, the bytes are the same, and read again they say the same.
func TestCapturedCapabilitiesAreCanonical_H6(t *testing.T) {
	a := CapabilitiesOf("eks", "v1.34.2", map[string][]string{"v1": {"Pod", "ConfigMap", "Pod"}, "apps/v1": {"Deployment"}, "shop.dev/v1alpha1": {}})
	b := CapabilitiesOf("old", "v1.31.0-eks-1a2b", map[string][]string{"v1": {"Pod"}})
	one, other := Lock{Capabilities: []Capabilities{b, a}}.Bytes(), Lock{Capabilities: []Capabilities{a, b}}.Bytes()
	require.Equal(t, string(one), string(other))
	require.Contains(t, string(one), `capabilities:
  - runtime: eks
    kubeVersion: v1.34.2
    apis:
      - groupVersion: apps/v1
        kinds: [Deployment]
      - groupVersion: shop.dev/v1alpha1
        kinds: []
      - groupVersion: v1
        kinds: [ConfigMap, Pod]
`)
	read, err := ParseLock(one)
	require.NoError(t, err)
	require.Equal(t, string(one), string(read.Bytes()))
	eks, ok := read.CapabilitiesOf("eks")
	require.True(t, ok)
	require.Equal(t, []string{"apps/v1", "apps/v1/Deployment", "shop.dev/v1alpha1", "v1", "v1/ConfigMap", "v1/Pod"}, eks.APIVersions())
	_, ok = read.CapabilitiesOf("edge")
	require.False(t, ok)
	require.NotContains(t, string(Lock{Charts: []Entry{}}.Bytes()), "capabilities", "a lock with charts only does not change")

	now := CapabilitiesOf("eks", "v1.35.0", map[string][]string{"v1": {"Pod", "ConfigMap"}, "batch/v1": {"Job"}})
	require.Equal(t, "v1.35.0 instead of v1.34.2, 2 APIs added (batch/v1), 3 APIs removed (apps/v1)", now.Difference(a))
	require.Empty(t, a.Difference(a))
}

// What a hand, or somebody hostile, has written there is refused, and it is said what.
func TestDamagedCapabilitiesAreRefused_H6_G4(t *testing.T) {
	lock := func(text string) string {
		_, err := ParseLock([]byte("lockVersion: converge/v1\ncharts: []\ncapabilities:\n" + text))
		require.Error(t, err, text)
		require.Less(t, len(err.Error()), 300)
		return err.Error()
	}
	const apis = "apis: [{groupVersion: v1, kinds: [Pod]}]"
	require.Equal(t, `capabilities: invalid runtime name "../x"`, lock("- {runtime: ../x, kubeVersion: v1.34.0, "+apis+"}"))
	require.Equal(t, `capabilities of eks: invalid Kubernetes version "latest"`, lock("- {runtime: eks, kubeVersion: latest, "+apis+"}"))
	require.Contains(t, lock("- {runtime: eks, kubeVersion: "+strings.Repeat("9", 5000)+", "+apis+"}"), "invalid Kubernetes version")
	require.Equal(t, "capabilities of eks: it has no APIs", lock("- {runtime: eks, kubeVersion: v1.34.0}"))
	require.Equal(t, `capabilities of eks: invalid GROUP/VERSION "{{ evil }}"`, lock("- {runtime: eks, kubeVersion: v1.34.0, apis: [{groupVersion: '{{ evil }}', kinds: []}]}"))
	require.Equal(t, `capabilities of eks: invalid kind "a b" of v1`, lock("- {runtime: eks, kubeVersion: v1.34.0, apis: [{groupVersion: v1, kinds: [a b]}]}"))
	require.Equal(t, "capabilities of eks: v1 is listed twice", lock("- {runtime: eks, kubeVersion: v1.34.0, apis: [{groupVersion: v1, kinds: []}, {groupVersion: v1, kinds: []}]}"))
	require.Equal(t, "capabilities of eks: they are listed twice", lock("- {runtime: eks, kubeVersion: v1.34.0, "+apis+"}\n- {runtime: eks, kubeVersion: v1.34.0, "+apis+"}"))
	require.Contains(t, lock("- {runtime: eks, kubeVersion: v1.34.0, more: 1, "+apis+"}"), "more")
	require.Contains(t, lock("<<<<<<< ours\n"), "yaml")
}
