package activities

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/intenttest"
)

const siblingServices = `
apiVersion: converge/v1
kind: Runtime
name: eks
kubernetes: {}
---
apiVersion: converge/v1
kind: Runtime
name: other
kubernetes: {}
---
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: staging, runtimes: [{name: other, namespace: shop}]}, {name: prod, runtimes: [{name: eks, namespace: shop}]}]
---
{apiVersion: converge/v1, kind: Service, name: web, kubernetes: {manifests: [web.yaml]}}
---
{apiVersion: converge/v1, kind: Service, name: api, kubernetes: {manifests: [api.yaml]}}
`

// The siblings of a service are the other services with an instance at its place, with their objects, as the newest notice or a planned
// incarnation has them. Only values of a release are still placeholders.
func TestSiblings_D11(t *testing.T) {
	a := newActivities(t, &server{})
	compile := func(name string) string {
		t.Helper()
		dir := t.TempDir()
		for file, content := range map[string]string{
			"shop.converge.yaml": siblingServices,
			"web.yaml":           "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}\n",
			"api.yaml":           "{apiVersion: v1, kind: ConfigMap, metadata: {name: '" + name + "', labels: {version: '${{ version }}'}}}\n",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
		}
		compiled := intenttest.Dir(t, dir)
		for _, b := range compiled.Bundles {
			require.NoError(t, a.Store.PutBundle(t.Context(), b))
		}
		hash, err := a.Store.PutIncarnation(t.Context(), compiled.Incarnation)
		require.NoError(t, err)
		return hash
	}
	read := func(channel, service, runtime, hash string) string {
		t.Helper()
		owner := runtimes.Owner{Application: "shop", Service: service, ID: entities.Only(channel)}
		all, err := a.siblings(owner, runtime, hash)(t.Context())
		require.NoError(t, err)
		var found []string
		for _, p := range all.Payloads {
			require.Len(t, p.Kubernetes.Objects, 1)
			found = append(found, p.Service+" "+string(p.Kubernetes.Objects[0]))
		}
		return strings.Join(found, "\n")
	}
	require.Empty(t, read("prod", "web", "eks", ""), "nothing was published")
	published, planned := compile("api-${{ channel }}"), compile("next")
	_, err := a.Store.PutNotice(t.Context(), "shop", protocol.Notice{
		Incarnation: protocol.Incarnation{Number: 1, Hash: published, At: time.Unix(1, 0).UTC()}, Order: noticeOrder(1, 1),
	})
	require.NoError(t, err)
	object := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"version":"${{ version }}"},"name":"` + name + `"}}`
	}
	require.Equal(t, "api "+object("api-prod"), read("prod", "web", "eks", ""))
	require.Equal(t, "api "+object("api-staging"), read("staging", "web", "other", ""))
	require.Equal(t, "api "+object("next"), read("prod", "web", "eks", planned))
	require.Contains(t, read("prod", "api", "eks", ""), "web ")
	require.Contains(t, read("prod", "dropped", "eks", ""), "web ")
	require.Empty(t, read("prod", "web", "other", ""), "another cluster")
	require.Empty(t, read("gone", "web", "eks", ""))
}
