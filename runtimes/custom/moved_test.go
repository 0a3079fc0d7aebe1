//go:build unix

package custom

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// An object with the same name that belonged to another service has no version, and is taken over by an apply (C7). The script is the
// one that the documentation gives.
func TestObjectThatMovedBetweenServices_C7(t *testing.T) {
	rt := newRuntime(t, t.TempDir(), entities.CustomRuntime{
		Apply: sh(`echo "$PVN_SERVICE_VERSION $PVN_SERVICE_ID" >function`),
		Fetch: new(sh(`read -r version id <function; [ "$id" = "$PVN_SERVICE_ID" ] || version=
			echo '{"objects": [{"name": "function", "objectType": "Function", "status": "SUCCEEDED", "versions": [{"version": "'$version'", "active": true}]}]}'`)),
		Mode: entities.FetchStructured,
	})
	before, after := web("v1"), web("v1")
	before.ServiceID, after.ServiceID = "hello/web", "hello/web-2"
	runs := func(in runtimes.Request) string {
		objects, err := rt.Observe(t.Context(), in)
		require.NoError(t, err)
		return objects[0].Versions[0].Version
	}
	_, err := rt.Apply(t.Context(), before)
	require.NoError(t, err)
	require.Equal(t, [2]string{"v1", ""}, [2]string{runs(before), runs(after)})
	_, err = rt.Apply(t.Context(), after)
	require.NoError(t, err)
	require.Equal(t, [2]string{"", "v1"}, [2]string{runs(before), runs(after)})
}
