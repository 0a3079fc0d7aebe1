package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// labelled has two channels, a runtime with a label, and a service.
const labelled = `apiVersion: converge/v1
kind: Application
name: shop
addonTypes: [{name: example.com/oncall, schema: {required: [team]}}]
releaseChannels:
- {name: staging, labels: {tier: staging}, runtimes: [{name: edge}]}
- {name: prod, labels: {tier: prod}, runtimes: [{name: edge}]}
---
apiVersion: converge/v1
kind: Runtime
name: edge
labels: {region: eu}
custom: {apply: {command: ["true"]}}
---
apiVersion: converge/v1
kind: Service
name: web
initialVersion: v1
addons: [{name: oncall, type: example.com/oncall, value: {team: checkout}}]
custom: {env: {GREETING: hello}}
`

// listed is what get assets prints, as another program reads it.
type listed struct {
	Application string
	Incarnation int64
	Assets      []struct {
		ID, Kind string
		Labels   map[string]string
		Payload  struct {
			Env map[string]json.RawMessage
		}
		Addons map[string]entities.Addon
	}
}

// Another program reads the assets of an incarnation by kind and label, and is told of each newer one.
func TestAssetsAreReadByOthers_D1_D7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(text), 0o600))
	}
	write(labelled)
	d := shared.Dev(t, dir)
	d.Start()
	d.Await("shop/web", "staging CONVERGED v1, prod CONVERGED v1")
	read := func(args ...string) (l listed) {
		out, code := d.Converge(append([]string{"config", "get", "assets", "shop"}, args...)...)
		require.Zero(t, code, out)
		require.NoError(t, json.Unmarshal([]byte(out), &l))
		return l
	}
	ids := func(l listed) (out []string) {
		for _, a := range l.Assets {
			out = append(out, a.ID)
		}
		return out
	}
	require.Equal(t, []string{"ReleaseChannel/staging", "ReleaseChannel/prod", "Service/web", "Instance/web/staging/main", "Instance/web/prod/main"}, ids(read()))
	require.Equal(t, []string{"ReleaseChannel/prod", "Instance/web/prod/main"}, ids(read("--label", "tier=prod")))
	one := read("--kind", "Instance", "-l", "tier=prod", "-l", "region=eu")
	require.Equal(t, []string{"Instance/web/prod/main"}, ids(one))
	require.Equal(t, map[string]string{"tier": "prod", "region": "eu"}, one.Assets[0].Labels)
	require.Contains(t, string(one.Assets[0].Payload.Env["GREETING"]), "hello")
	require.Empty(t, ids(read("-l", "tier=none")))
	carrying := read("--addon", "example.com/oncall")
	require.Equal(t, []string{"Service/web"}, ids(carrying))
	require.Equal(t, map[string]entities.Addon{"oncall": {Type: "example.com/oncall", Value: map[string]any{"team": "checkout"}}}, carrying.Assets[0].Addons)
	require.Empty(t, ids(read("--addon", "example.com/slo")))
	d.RunPage(stage.Only(t, "../docs/sources.md", "What was published, for other programs"))
	for _, wrong := range [][]string{{"--kind", "Pod"}, {"-l", "tier"}, {"--watch", "--incarnation", "1"}, {"--incarnation", "99"}} {
		out, code := d.Converge(append([]string{"config", "get", "assets", "shop"}, wrong...)...)
		require.Equal(t, 1, code, out)
	}

	said := d.Background("config", "get", "assets", "shop", "--kind", "Instance", "-l", "tier=prod", "--watch")
	lines := func(n int) (all []listed) {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			whole := strings.SplitAfter(said(), "\n")
			return len(whole) == n+1, said()
		})
		for line := range strings.Lines(said()) {
			var l listed
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			all = append(all, l)
		}
		return all
	}
	lines(1)
	write(strings.Replace(labelled, "hello", "hi", 1))
	news := lines(2)
	require.Equal(t, int64(2), news[1].Incarnation)
	require.Contains(t, string(news[1].Assets[0].Payload.Env["GREETING"]), "hi")
	require.Contains(t, string(read("--incarnation", "1", "--kind", "Instance").Assets[0].Payload.Env["GREETING"]), "hello", "the first stays what it was")
}
