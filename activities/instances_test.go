package activities

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
)

const fleet = `apiVersion: converge/v1
kind: Runtime
name: eu-1
labels: {tier: prod}
custom:
  apply: {command: [sh, -c, 'echo "$PVN_RELEASE_CHANNEL $PVN_INSTANCE"']}
---
apiVersion: converge/v1
kind: Runtime
name: eu-3
labels: {tier: prod}
custom:
  apply: {command: [sh, -c, 'echo "$PVN_RELEASE_CHANNEL $PVN_INSTANCE"']}
---
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- name: prod
  runtimes: [{selector: {tier: prod}}]
---
apiVersion: converge/v1
kind: Service
name: web
custom: {env: {VERSION: "${{ version }}"}}
`

// Each instance has its own payload, applies and logs. Instances that the channel does not have are omitted.
func TestInstancesOfAChannel(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.converge.yaml"), []byte(fleet), 0o600))
	config, err := compile.Load(dir)
	require.NoError(t, err)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	a := newActivities(t, &server{})
	a.Roots = Roots{"": t.TempDir()}
	a.Factories = map[entities.RuntimeKind]Factory{
		entities.RuntimeCustom: func(d entities.RuntimeDefinition) (runtimes.Runtime, error) { return custom.New(d) },
	}
	hash, err := a.Store.PutIncarnation(t.Context(), compiled.Incarnation)
	require.NoError(t, err)
	digests := map[string]string{}
	for _, definition := range compiled.Runtimes {
		digests[definition.Name], err = a.Store.PutRuntime(t.Context(), definition)
		require.NoError(t, err)
	}

	first, third := entities.InstanceID{Channel: "prod", Name: "eu-1"}, entities.InstanceID{Channel: "prod", Name: "eu-3"}
	prepare := protocol.PrepareRequest{
		Application: "shop", Service: "web", Version: "v1", FullVersion: "v1", Incarnation: 1, Hash: hash,
		Instances: []entities.InstanceID{first, third, entities.Only("gone")},
	}
	prepared, _, err := run[protocol.PrepareAnswer](t, a.Prepare, prepare)
	require.NoError(t, err)
	require.Zero(t, prepared.RecentlyPrepared, "no other release")
	v1 := prepared.Payloads
	require.Len(t, v1, 2)
	require.Equal(t, []string{"eu-1", "eu-3"}, []string{v1[first].Runtime, v1[third].Runtime})
	require.NotEqual(t, v1[first].Digest, v1[third].Digest)

	prepare.Version, prepare.FullVersion, prepare.CurrentVersions = "v2", "v2", map[entities.InstanceID]string{third: "v1"}
	prepared, _, err = run[protocol.PrepareAnswer](t, a.Prepare, prepare)
	require.NoError(t, err)
	require.Empty(t, prepared.Payloads[first].CurrentVersionDigest, "not requested")
	for range minReportedRate {
		_, _, err = run[protocol.PrepareAnswer](t, a.Prepare, prepare)
		require.NoError(t, err)
	}
	concurrent, _, err := run[protocol.PrepareAnswer](t, a.Prepare, prepare)
	require.NoError(t, err)
	require.GreaterOrEqual(t, concurrent.RecentlyPrepared, minReportedRate)
	require.Equal(t, v1[third].Digest, prepared.Payloads[third].CurrentVersionDigest)

	for _, id := range []entities.InstanceID{first, third} {
		answer, _, err := run[protocol.ApplyAnswer](t, a.Apply, protocol.ApplyRequest{
			Application: "shop", Service: "web", ServiceID: "shop.web", Runtime: id.Name, RuntimeDigest: digests[id.Name],
			Instance: protocol.InstanceRef{ID: id, FullVersion: "v1", Payload: v1[id].Digest}, Timeout: time.Minute, Sequence: 1,
		})
		require.NoError(t, err)
		require.Equal(t, protocol.ApplyAnswer{}, answer, "C1: without a fetch there is no reading")
	}
	logs, err := a.Store.Logs(t.Context(), "shop", "web", third.Key())
	require.NoError(t, err)
	require.Len(t, logs, 1)
	require.Equal(t, "prod eu-3\n", logs[0].Stdout)
	logs, err = a.Store.Logs(t.Context(), "shop", "web", "prod")
	require.NoError(t, err)
	require.Len(t, logs, 2, "the logs of a channel are those of its instances")
}
