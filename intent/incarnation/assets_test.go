package incarnation_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// Every part of an incarnation is an asset with an id of its own, and is found by its kind and its labels.
func TestAssets_D1_D2(t *testing.T) {
	inc := intenttest.Dir(t, "../compile/testdata/shop").Incarnation
	all, err := inc.Assets()
	require.NoError(t, err)
	seen := map[string]bool{}
	of := map[string]int{}
	for _, a := range all {
		require.False(t, seen[a.ID], a.ID)
		seen[a.ID] = true
		of[string(a.Kind)]++
		text, err := json.Marshal(a.Payload)
		require.NoError(t, err)
		require.True(t, json.Valid(text))
		if a.Kind == "Service" {
			require.NotContains(t, string(text), `"channels"`, "its instances are separate assets")
		}
		require.True(t, a.Has(nil))
		require.False(t, a.Has(map[string]string{"none": ""}))
	}
	require.Equal(t, len(inc.Channels()), of["ReleaseChannel"])
	require.Equal(t, len(inc.Services()), of["Service"])
	require.GreaterOrEqual(t, of["Instance"], len(inc.Services()))
}

// What a service carries stands beside its payload, and is found by its type.
func TestAddonsOfAssets_D1(t *testing.T) {
	all, err := intenttest.Text(t, intenttest.Oncall+intenttest.OncallService).Incarnation.Assets()
	require.NoError(t, err)
	for _, a := range all {
		require.Equal(t, a.Kind == incarnation.AssetService, a.HasAddon("example.com/oncall"), a.ID)
		require.False(t, a.HasAddon("example.com/slo"))
		text, err := json.Marshal(a.Payload)
		require.NoError(t, err)
		require.NotContains(t, string(text), "addons")
		if a.Kind == incarnation.AssetService {
			require.Equal(t, map[string]entities.Addon{"oncall": {Type: "example.com/oncall", Value: map[string]any{"team": "checkout", "level": 2.0}}}, a.Addons)
		}
	}
}
