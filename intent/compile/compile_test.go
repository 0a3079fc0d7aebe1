package compile_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

func TestIncarnationOfTheShop_D4(t *testing.T) {
	compiled := intenttest.Dir(t, "testdata/shop")
	intenttest.Golden(t, "shop.incarnation.json", intenttest.Indented(t, compiled.Incarnation.Bytes()))
	specs, err := compiled.Specs()
	require.NoError(t, err)
	intenttest.Golden(t, "shop.specs.json", intenttest.Indented(t, withoutDigests(specs)))
	runtimes := compiled.Runtimes
	for i := range runtimes {
		require.Equal(t, ".", runtimes[i].Dir)
		runtimes[i].Dir = ""
	}
	intenttest.Golden(t, "shop.runtimes.json", intenttest.Indented(t, runtimes))
}

// withoutDigests drops what depends on the directory that the test runs in.
func withoutDigests(specs map[string]entities.Spec) map[string]entities.Spec {
	for _, spec := range specs {
		for name, r := range spec.Runtimes {
			r.Digest = ""
			spec.Runtimes[name] = r
		}
	}
	return specs
}

func TestSameSourcesGiveSameBytes_D4(t *testing.T) {
	first := intenttest.Shop(t)
	for range 20 { // map order changes from run to run
		again := intenttest.Shop(t)
		require.Equal(t, first.Incarnation.Bytes(), again.Incarnation.Bytes())
		require.Equal(t, first.Incarnation.Hash(), again.Incarnation.Hash())
		require.Equal(t, first.Runtimes, again.Runtimes)
	}
	config, err := compile.LoadWith("testdata/shop", config.Options{})
	require.NoError(t, err)
	once, err := compile.Compile(config)
	require.NoError(t, err)
	twice, err := compile.Compile(config)
	require.NoError(t, err)
	require.Equal(t, once, twice)
}

// How documents are spread over files, and in which order, does not show.
func TestLayoutOfFilesDoesNotMatter_D4(t *testing.T) {
	together := intenttest.Text(t, strings.Replace(intenttest.ShopText(t), "initialVersion: r1\n", "", 1), "routes/rules.json", intenttest.ShopRules)
	docs := strings.Split(strings.Replace(intenttest.ShopText(t), "initialVersion: r1\n", "", 1), "---\n")
	apart := intenttest.Text(t, docs[4]+"---\n"+docs[1], "z/converge.yaml", docs[0], "b.converge.yaml", docs[3]+"---\n"+docs[2],
		"routes/rules.json", intenttest.ShopRules, "z/unread.yaml", ":::", "README.md", "x")
	require.Equal(t, together.Incarnation.Bytes(), apart.Incarnation.Bytes())
}

func TestDirectoryIsNotPartOfAnIncarnation_D4(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/shop")))
	require.Equal(t, intenttest.Dir(t, "testdata/shop").Incarnation.Bytes(), intenttest.Dir(t, dir).Incarnation.Bytes())
}

// Nor of anything else that has a digest: specs, runtimes, checks, what extensions run. The directory of a file in it is.
func TestDirectoryIsPartOfNoDigest_D4(t *testing.T) {
	for _, of := range []string{"testdata/shop", "testdata/gates"} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(of)))
		one, other := intenttest.Dir(t, of), intenttest.Dir(t, dir)
		require.Equal(t, one.Runtimes, other.Runtimes)
		specs, err := one.Specs()
		require.NoError(t, err)
		others, err := other.Specs()
		require.NoError(t, err)
		require.Equal(t, incarnation.ManifestOf(specs), incarnation.ManifestOf(others))
		for _, service := range one.Incarnation.Services() {
			require.Equal(t, one.Checks(service), other.Checks(service))
			require.Equal(t, one.Extensions(service), other.Extensions(service))
		}
	}
}

func TestIncarnationRoundTrips_D5(t *testing.T) {
	inc := intenttest.Shop(t).Incarnation
	again, err := incarnation.Parse(inc.Bytes())
	require.NoError(t, err)
	require.Equal(t, inc, again)
	_, err = incarnation.Parse([]byte(`{"schema":"converge.incarnation/v9"}`))
	require.EqualError(t, err, `read incarnation: its schema is "converge.incarnation/v9", this version of Converge reads converge.incarnation/v1`)
}

// What is rules and what is payload: only a change of payload changes a template (B9).
func TestTemplatesSeparatePayloadFromRules_B9(t *testing.T) {
	templates := func(c *compile.Compiled) map[string]string {
		specs, err := c.Specs()
		require.NoError(t, err)
		all := map[string]string{}
		for _, service := range strict.Keys(specs) {
			for _, channel := range specs[service].Channels {
				all[service+"/"+channel.Name] = channel.Instances[0].Template
			}
		}
		return all
	}
	before := templates(intenttest.Shop(t))
	for _, row := range []struct {
		name, old, now string
		changed        string
	}{
		{"description", "A shop, reduced", "A shop, much reduced", ""},
		{"description of a parameter", "given by the release", "the region", ""},
		{"deadline", "progressDeadline: 10m", "progressDeadline: 11m", ""},
		{"drift", "drift: enforce", "drift: observe", ""},
		{"config changes", "configChanges: release", "configChanges: hold", ""},
		{"poll interval", "pollInterval: 10s", "pollInterval: 20s", ""},
		{"environment of the runtime", "{workerEnv: EDGE_TOKEN}", "{workerEnv: EDGE_TOKEN_2}", ""},
		{"apply command", "[box, up]", "[box, up, --now]", ""},
		{"initial version", "initialVersion: r1", "initialVersion: r2", ""},
		{"precondition", "releaseChannel: canary}\n", "releaseChannel: staging}\n", ""},
		{"a label that nothing uses", "labels: {tier: staging}", "labels: {tier: staging, team: web}", ""},
		{"a constant that nothing uses", "{zone: staging.shop.dev}", "{zone: staging.shop.dev, more: x}", ""},
		{"a parameter that nothing uses", "parameters:\n", "parameters:\n- {name: unused, type: int, default: 1}\n", ""},
		{"a default that every channel overrides but staging", "default: 2", "default: 3", "web/staging"},
		{"the override of a channel", "{replicas: 1}", "{replicas: 3}", "web/canary"},
		{"the override of a selector", "{replicas: 12}", "{replicas: 13}", "web/prod-eu web/prod-us"},
		{"a default with the version in it", "web:${{ version }}", "web2:${{ version }}", "web/canary web/prod-eu web/prod-us web/staging"},
		{"a label that is used", "labels: {tier: canary}", "labels: {tier: early}", "web/canary"},
		{"a constant that is used", "zone: us.shop.com", "zone: usa.shop.com", "routes/prod-us web/prod-us"},
		{"an address", "namespace: shop-canary", "namespace: canary", "web/canary"},
		{"a reference to a secret", "WEB_DB_PASSWORD}", "WEB_DB_PASSWORD_2}", "web/canary web/prod-eu web/prod-us web/staging"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var changed []string
			after := templates(intenttest.Shop(t, row.old, row.now))
			for _, key := range strict.Keys(after) {
				if after[key] != before[key] {
					changed = append(changed, key)
				}
			}
			require.Equal(t, row.changed, strings.Join(changed, " "))
		})
	}
	files := intenttest.Text(t, intenttest.ShopText(t), "routes/rules.json", "{\"changed\": true}\n")
	require.NotEqual(t, before["routes/staging"], templates(files)["routes/staging"])
	require.Equal(t, before["web/staging"], templates(files)["web/staging"])
}

func TestChannelsAreOrderedByTheirConditions_A8(t *testing.T) {
	inc := intenttest.Text(t, `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: last, runtimes: [{name: r}], preconditions: [{releaseChannelStable: {selector: {tier: prod}}}]}
- {name: week, runtimes: [{name: r}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {releaseChannelStable: {releaseChannel: prod-a, for: 168h}}, {releaseChannelStable: {releaseChannel: prod-b, sticky: false}}]}
- {name: prod-b, runtimes: [{name: r}], labels: {tier: prod}, preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
- {name: free, runtimes: [{name: r}]}
- {name: prod-a, runtimes: [{name: r}], labels: {tier: prod}, preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}
- {name: staging, runtimes: [{name: r}]}
---
{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}
---
{apiVersion: converge/v1, kind: Service, name: all}
---
{apiVersion: converge/v1, kind: Service, name: some, releaseChannels: [staging, prod-b, last, week]}
---
{apiVersion: converge/v1, kind: Service, name: ends, releaseChannels: [staging, last, week]}
---
{apiVersion: converge/v1, kind: Service, name: alone, releaseChannels: [last]}
`)
	require.Equal(t, []string{"free", "staging", "prod-b", "prod-a", "last", "week"}, inc.Incarnation.Channels())
	specs, err := inc.Specs()
	require.NoError(t, err)
	in := func(name, service string) string {
		spec := specs[service]
		channel, ok := spec.Channel(name)
		require.True(t, ok)
		return string(intenttest.Line(t, channel.Conditions))
	}
	last := func(service string) string { return in("last", service) }
	require.Equal(t, `[{"id":"channel-stable/tier=prod","kind":"channel-stable","channels":["prod-b","prod-a"]}]`, last("all"))
	require.Equal(t, `[{"id":"channel-stable/tier=prod","kind":"channel-stable","channels":["prod-b","staging"]}]`, last("some"))
	require.Equal(t, `[{"id":"channel-stable/tier=prod","kind":"channel-stable","channels":["staging"]}]`, last("ends"))
	require.Equal(t, `null`, last("alone"))
	// What a service leaves out asks of the channels before it what was asked of itself; of two the stricter.
	require.Equal(t, `[{"id":"channel-stable/staging","kind":"channel-stable","channels":["staging"]},`+
		`{"id":"channel-stable/prod-a","kind":"channel-stable-for","channels":["prod-a"],"for":604800000000000},`+
		`{"id":"channel-stable/prod-b","kind":"channel-healthy","channels":["prod-b"]}]`, in("week", "all"))
	require.Equal(t, `[{"id":"channel-stable/staging","kind":"channel-stable-for","channels":["staging"],"for":604800000000000},`+
		`{"id":"channel-stable/prod-b","kind":"channel-healthy","channels":["prod-b"]}]`, in("week", "some"))
	require.Equal(t, `[{"id":"channel-stable/staging","kind":"channel-healthy","channels":["staging"],"for":604800000000000}]`, in("week", "ends"))
}

func TestDefaults_C10(t *testing.T) {
	compiled := intenttest.Text(t, `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: staging, runtimes: [{name: slow}]}]
---
{apiVersion: converge/v1, kind: Service, name: web}
---
apiVersion: converge/v1
kind: Runtime
name: slow
custom: {apply: {command: [x]}, fetch: {command: [y], mode: exitCode}, pollInterval: 20m, retry: {backoff: 30m}}
---
{apiVersion: converge/v1, kind: Runtime, name: plain, worker: remote, custom: {apply: {command: [x]}}}
`)
	specs, err := compiled.Specs()
	require.NoError(t, err)
	intenttest.Golden(t, "defaults.json", intenttest.Indented(t, map[string]any{"spec": withoutDigests(specs)["web"], "runtimes": compiled.Runtimes}))
}

func TestAssetsAreBounded_D1(t *testing.T) {
	long := strings.Repeat("x", 90_000)
	_, err := intenttest.Load(intenttest.ShopText(t), "routes/rules.json", strings.Repeat("x", config.MaxAsset+1))
	require.EqualError(t, err, `shop.converge.yaml:57:56: custom.files[0]: routes/rules.json has 150001 bytes; expected at most 150000 [too-large]`)
	_, err = intenttest.Load(strings.Replace(intenttest.ShopText(t), "[./routes/rules.json]", "[./routes/rules.json, ./routes/more.json]", 1),
		"routes/rules.json", long, "routes/more.json", long)
	require.EqualError(t, err, `shop.converge.yaml:53:7: name: service routes has 180025 bytes, 180000 of them files, in release channels staging, prod-eu, prod-us; expected at most 150000; refer to larger content instead of including it [too-large]`)
	_, err = intenttest.Load(strings.Replace(intenttest.ShopText(t), "A shop, reduced to what works.", long+long, 1), "routes/rules.json", "")
	require.ErrorContains(t, err, "name: application shop has 18")
}

func TestSpecsAreBounded(t *testing.T) {
	withChannels := func(n int, label func(i int) string) error {
		text := "apiVersion: converge/v1\nkind: Application\nname: shop\nreleaseChannels:\n"
		for i := range n {
			text += fmt.Sprintf("- {name: c%d, labels: {team: %q}, runtimes: [{name: r}]}\n", i, label(i))
		}
		_, err := intenttest.Load(text + "---\n{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}\n---\n{apiVersion: converge/v1, kind: Service, name: web}\n")
		return err
	}
	err := withChannels(300, func(i int) string {
		return canonical.Hash([]byte{byte(i), byte(i >> 8)}) + canonical.Hash([]byte{byte(i)}) + canonical.Hash([]byte{byte(i), 7}) + canonical.Hash([]byte{byte(i), 9, byte(i >> 8)})
	})
	require.ErrorContains(t, err, "shop.converge.yaml:308:48: name: the rules of service web have ")
	require.ErrorContains(t, err, "; expected at most 32768: fewer release channels, labels, preconditions or protections [spec-too-large]")
	err = withChannels(501, func(int) string { return "" })
	require.EqualError(t, err, "shop.converge.yaml:509:48: name: service web has 501 release channels; expected at most 500 [too-many-channels]")
	require.NoError(t, withChannels(500, func(int) string { return "" }))
}

// More checks of a channel than are asked at once are refused where they are declared; those of all channels are bounded by what they take.
func TestChecksAreBounded_F8(t *testing.T) {
	withChecks := func(channels, checks int) error {
		protections, documents := make([]string, checks), ""
		for n := range protections {
			protections[n] = fmt.Sprintf("{ref: p%d}", n)
			documents += fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Protection, name: p%d, allowedTimes: {timeZone: UTC, freezes: [{from: %q, to: %q, reason: no}]}}\n", n, "2026-12-31", "2027-01-01")
		}
		text := "apiVersion: converge/v1\nkind: Application\nname: shop\nreleaseChannels:\n"
		for n := range channels {
			text += fmt.Sprintf("- {name: c%d, runtimes: [{name: r}], protections: [%s]}\n", n, strings.Join(protections, ", "))
		}
		_, err := intenttest.Load(text + "---\n{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}\n---\n{apiVersion: converge/v1, kind: Service, name: web}\n" + documents)
		return err
	}
	require.EqualError(t, withChecks(1, 41),
		"shop.converge.yaml:9:48: name: release channel c0 has 41 checks of service web; expected at most 40: fewer protections, preconditions or dependencies [too-many-checks]")
	require.NoError(t, withChecks(15, 40))
	require.ErrorContains(t, withChecks(50, 40), "fewer release channels, labels, preconditions or protections [spec-too-large]")
}

// A runtime that another application defines may be named (Options.Runtimes).
func TestRuntimesOfOtherApplicationsCanBeReferenced_D11(t *testing.T) {
	files := fstest.MapFS{"converge.yaml": {Data: []byte(strings.Split(intenttest.ShopText(t), "---\n")[0])}}
	_, err := compile.LoadFS(files, "/config", config.Options{})
	require.ErrorContains(t, err, `there is no runtime "edge"`)
	known := []entities.RuntimeDefinition{{Name: "edge", Kind: entities.RuntimeCustom, Owner: "net"}, {Name: "box", Kind: entities.RuntimeCustom, Owner: "net"}}
	config, err := compile.LoadFS(files, "/config", config.Options{Runtimes: known})
	require.NoError(t, err)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	require.Empty(t, compiled.Runtimes, "only the owner publishes them")
	_, err = compiled.Specs()
	require.NoError(t, err)
}

// Variables that the runtime of another application does not allow are reported at their place; the worker checks again.
func TestEnvOfOtherApplicationsRuntimes_G5(t *testing.T) {
	const service = "---\napiVersion: converge/v1\nkind: Service\nname: web\nruntime: edge\ncustom: {env: {SERVICE_COLOR: red, GOFLAGS: -v, APP_PORT: '80'}}\n"
	load := func(owner string, allow *entities.RuntimeAllow) error {
		known := []entities.RuntimeDefinition{
			{Name: "edge", Kind: entities.RuntimeCustom, Owner: owner, Allow: allow}, {Name: "box", Kind: entities.RuntimeCustom, Owner: "shop"},
		}
		config, err := compile.LoadFS(fstest.MapFS{"converge.yaml": {Data: []byte(strings.Split(intenttest.ShopText(t), "---\n")[0] + service)}}, "/config", config.Options{Runtimes: known})
		if err == nil {
			_, err = compile.Compile(config)
		}
		return err
	}
	require.NoError(t, load("shop", nil), "its own")
	require.NoError(t, load("net", &entities.RuntimeAllow{Env: []string{"GOFLAGS", "APP_*"}}))
	err := load("net", &entities.RuntimeAllow{Env: []string{"APP_*"}})
	require.ErrorContains(t, err, "custom.env.GOFLAGS: runtime edge of application net does not let it set GOFLAGS; it allows SERVICE_*, APP_* (allow.env)")
	require.NotContains(t, err.Error(), "SERVICE_COLOR")
}

// An observation that is a Job costs seconds and objects, so it is rarer unless the file says otherwise.
func TestCommandsAsJobs_C10(t *testing.T) {
	const text = `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: edge}]}]
---
apiVersion: converge/v1
kind: Runtime
name: edge
custom:
  apply: {command: [edge, apply]}
  job: {kubeconfig: ./kube, context: eu, namespace: tools, image: "edge:3", serviceAccount: edge, wrapper: /converge-wrapper}
`
	definition := intenttest.Text(t, text).Runtimes[0]
	require.Equal(t, &entities.CommandJob{
		Cluster: entities.KubernetesRuntime{Kubeconfig: "./kube", Context: "eu"}, Namespace: "tools", Image: "edge:3",
		ServiceAccount: "edge", Wrapper: "/converge-wrapper",
	}, definition.Custom.Job)
	require.Equal(t, 30*time.Second, definition.Timing.PollInterval)
	require.Equal(t, 5*time.Minute, definition.Timing.SteadyPollInterval)
	require.Equal(t, 7*time.Second, intenttest.Text(t, text+"  pollInterval: 7s\n").Runtimes[0].Timing.PollInterval)
}

// written is the incarnation as it is written.
func written(t require.TestingT, compiled *compile.Compiled) incarnation.Document {
	var doc incarnation.Document
	require.NoError(t, json.Unmarshal(compiled.Incarnation.Bytes(), &doc))
	return doc
}
