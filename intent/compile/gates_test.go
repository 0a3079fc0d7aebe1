package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

// The whole configuration of gates: what a spec says of them, and how they are evaluated (A14, A19–A24,
// C10, D19–D22).
func TestGates(t *testing.T) {
	compiled := intenttest.Dir(t, "testdata/gates")
	specs, err := compiled.Specs()
	require.NoError(t, err)
	definitions := map[string]any{}
	for _, service := range strict.Keys(specs) {
		digests := map[string]bool{}
		for _, d := range compiled.Checks(service) {
			digests[entities.DigestOf(d)] = true
			if d.Command != nil {
				require.Equal(t, ".", d.Dir)
			}
			d.Dir = ""
			definitions[service+" "+d.Channel+" "+d.ID] = d
		}
		for _, d := range compiled.Extensions(service) {
			digests[entities.DigestOf(d)] = true
			require.Equal(t, ".", d.Dir)
			d.Dir = ""
			definitions[service+" "+d.Channel+" extension "+d.Name] = d
		}
		for _, channel := range specs[service].Channels {
			for i, check := range channel.Checks {
				require.True(t, digests[check.Definition], "%s %s %s: in the store before the spec", service, channel.Name, check.ID)
				channel.Checks[i].Definition = ""
			}
			for i, extension := range channel.Extensions {
				require.True(t, digests[extension.Definition], "%s %s %s", service, channel.Name, extension.Name)
				channel.Extensions[i].Definition = ""
			}
		}
	}
	intenttest.Golden(t, "gates.specs.json", intenttest.Indented(t, withoutDigests(specs)))
	intenttest.Golden(t, "gates.definitions.json", intenttest.Indented(t, definitions))
}

// Definitions are rules: a changed one gives another digest of the spec, and no other template.
func TestDefinitionsAreRules_B9(t *testing.T) {
	before := gatesOf(t)
	for _, change := range [][2]string{
		{"${{ service }}", "all"},
		{"max: 2", "max: 3"},
		{"by: [./approve]", "by: [./approve, --fast]"},
		{"minApprovers: 2", "minApprovers: 1"},
		{"to: [alice]", "to: [bob]"},
		{"verdict: WAIT", "verdict: PASS"},
	} {
		text := strings.Replace(smallGates, change[0], change[1], 1)
		if change[0] == "by: [./approve]" {
			text = strings.Replace(smallGates, "command: [./approve]", "command: [./approve, --fast]", 1)
		}
		require.NotEqual(t, smallGates, text, change[0])
		after, err := intenttest.Text(t, text).Specs()
		require.NoError(t, err)
		require.NotEqual(t, entities.DigestOf(before), entities.DigestOf(after["web"]), change[0])
		require.Equal(t, before.Channels[0].Instances[0].Template, after["web"].Channels[0].Instances[0].Template, change[0])
	}
}

const smallGates = `
apiVersion: converge/v1
kind: Application
name: shop
authorization: [{verbs: [release], to: [alice]}]
releaseChannels:
- name: prod
  runtimes: [{name: r}]
  preconditions: [{manualApproval: {minApprovers: 2}}]
  protections:
  - {ref: rate, parameters: {max: 2}}
  - {name: shut, always: {verdict: WAIT}}
  extensions: [{name: tell, command: [./approve], lifecycle: postApproval}]
---
{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}
---
{apiVersion: converge/v1, kind: Service, name: web}
---
apiVersion: converge/v1
kind: Protection
name: rate
parameters: [{name: max, type: float}]
prometheus: {url: "http://p:9090", query: "rate{s='${{ service }}'}", lessThan: "${{ params.max }}"}
`

func gatesOf(t *testing.T) entities.Spec {
	t.Helper()
	specs, err := intenttest.Text(t, smallGates).Specs()
	require.NoError(t, err)
	return specs["web"]
}

// Incarnations say the same wherever the directory lies, although commands start in it.
func TestGatesDoNotNameTheDirectory_D4(t *testing.T) {
	at := func(dir string) *compile.Compiled {
		config, err := compile.LoadFS(fstest.MapFS{"converge.yaml": {Data: []byte(smallGates)}}, dir, config.Options{AllowFake: true})
		require.NoError(t, err)
		compiled, err := compile.Compile(config)
		require.NoError(t, err)
		return compiled
	}
	one, other := at("/one"), at("/other")
	require.Equal(t, one.Incarnation.Bytes(), other.Incarnation.Bytes())
	require.Equal(t, ".", one.Extensions("web")[0].Dir)
	require.Equal(t, one.Extensions("web"), other.Extensions("web"))
	first := one.Incarnation.Bytes()
	for range 20 {
		require.Equal(t, string(first), string(at("/one").Incarnation.Bytes()))
	}
}

// A spec of fifty channels with five protections each still goes through a workflow's history.
func TestSpecsHoldManyProtections(t *testing.T) {
	text := "apiVersion: converge/v1\nkind: Application\nname: shop\nreleaseChannels:\n"
	for i := range 50 {
		text += fmt.Sprintf(`- name: production-%d
  labels: {tier: prod, region: r%d}
  runtimes: [{name: r}]
  preconditions: [{sharedManualApproval: {name: go-live, minApprovers: 2, approvers: ["group:sre"]}}]
  protections:
  - {name: office-hours, allowedTimes: {timeZone: Europe/Paris, windows: [{days: Mon-Thu, hours: "09:00-16:00"}]}}
  - {name: freeze, allowedTimes: {timeZone: Europe/Paris, freezes: [{from: "2026-12-20", to: "2027-01-03"}]}}
  - {name: pages, alertmanager: {url: "http://a:9093", matchers: {channel: "${{ channel }}"}}}
  - {name: error-rate, prometheus: {url: "http://p:9090", query: "rate{channel='${{ channel }}'}", lessThan: 1}, lifecycle: [preApproval: {}, postDeployment: {for: 15m}]}
  - {name: capacity, capacity: {url: "http://p:9090", use: u, capacity: c}}
`, i, i)
	}
	compiled := intenttest.Text(t, text+"---\n{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}\n---\n{apiVersion: converge/v1, kind: Service, name: web}\n")
	specs, err := compiled.Specs()
	require.NoError(t, err)
	packed, err := protocol.Pack(specs["web"])
	require.NoError(t, err)
	t.Logf("%d bytes packed", len(packed))
	require.Less(t, len(packed), incarnation.MaxSpec/2)
}

// What is declared is asked before repairs, too; what runs is not, since a repair is to bring it back.
func TestRepairsDoNotWaitForRunningChecks_D19(t *testing.T) {
	compiled := intenttest.Text(t, `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- name: prod
  runtimes: [{name: r}]
  protections:
  - {name: declared, capacity: {url: "http://p:9090", use: u, capacity: c}}
  - {name: runs, capacity: {url: "http://p:9090", use: u, object: web, per: 10}}
---
{apiVersion: converge/v1, kind: Runtime, name: r, fake: {}}
---
{apiVersion: converge/v1, kind: Service, name: web}
`)
	specs, err := compiled.Specs()
	require.NoError(t, err)
	repairs := map[string]bool{}
	for _, c := range specs["web"].Channels[0].Checks {
		repairs[c.ID] = c.Repairs
	}
	require.Equal(t, map[string]bool{"declared": true, "runs": false}, repairs)
}

// What of the rules differs is reported, path by path, and opens no release.
func TestDifferencesOfGates_D7(t *testing.T) {
	before := intenttest.Text(t, smallGates).Incarnation
	text := smallGates
	for _, change := range [][2]string{
		{"max: 2", "max: 3"},
		{"minApprovers: 2", `minApprovers: 1, approvers: ["group:sre"]`},
		{"to: [alice]", "to: [bob]"},
		{"lifecycle: postApproval", "lifecycle: postDeployment, timeout: 1m"},
		{"{name: shut, always: {verdict: WAIT}}", "{name: open, always: {verdict: PASS}, lifecycle: [postDeployment: {for: 1m}]}"},
		{"kind: Service, name: web", "kind: Service, name: web, onDelete: remove, autoRollback: false, noRollbackBelow: v10"},
	} {
		require.Contains(t, text, change[0])
		text = strings.Replace(text, change[0], change[1], 1)
	}
	d, err := incarnation.Diff(before, intenttest.Text(t, text).Incarnation)
	require.NoError(t, err)
	require.Empty(t, d.Services[0].Channels[0].Payload)
	d.From, d.To = "", ""
	intenttest.Golden(t, "gates.diff.json", intenttest.Indented(t, d))
}
