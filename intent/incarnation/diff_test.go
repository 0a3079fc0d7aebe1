package incarnation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

func TestDiffNamesWhatChanged_D7(t *testing.T) {
	before := intenttest.Shop(t).Incarnation
	text := intenttest.ShopText(t)
	for _, r := range [][2]string{
		{"default: 2", "default: 3"},
		{"    REGION: \"${{ params.region }}\"\n", ""},
		{"    URL:", "    HOST: \"${{ constants.zone }}\"\n    URL:"},
		{"drift: enforce", "drift: observe"},
		{"progressDeadline: 30m", "progressDeadline: 40m"},
		{"WEB_DB_PASSWORD", "DB_PASSWORD"},
		{"namespace: shop-canary", "namespace: canary"},
		{"initialVersion: r1", "version: r2"},
		{"[staging, prod-eu, prod-us]", "[staging, prod-eu]"},
		{"{releaseChannel: canary}", "{releaseChannel: staging}"},
		{"zone: canary.shop.com", "zone: canary.shop.dev"},
	} {
		require.Contains(t, text, r[0])
		text = strings.Replace(text, r[0], r[1], 1)
	}
	text += "---\n{apiVersion: converge/v1, kind: Service, name: api, runtime: box, custom: {env: {A: b}}}\n"
	after := intenttest.Text(t, text, "routes/rules.json", "{\"more\": 1}\n").Incarnation
	d, err := incarnation.Diff(before, after)
	require.NoError(t, err)
	intenttest.Golden(t, "shop.diff.txt", []byte(d.String()))
	d.From, d.To = "", ""
	intenttest.Golden(t, "shop.diff.json", intenttest.Indented(t, d))

	back, err := incarnation.Diff(after, before)
	require.NoError(t, err)
	require.Equal(t, strings.Count(d.String(), "+ "), strings.Count(back.String(), "- "))
	require.Equal(t, strings.Count(d.String(), "~ "), strings.Count(back.String(), "~ "))
}

func TestDiffOfTheSameIsEmpty_D7(t *testing.T) {
	d, err := incarnation.Diff(intenttest.Shop(t).Incarnation, intenttest.Shop(t).Incarnation)
	require.NoError(t, err)
	require.True(t, d.Empty())
	require.Equal(t, "no difference\n", d.String())
}

// A change of how services are fitted together is a change of rules, and of nothing that runs.
func TestDiffOfPlans_D7_E15(t *testing.T) {
	const text = `apiVersion: converge/v1
kind: Application
name: home
plan: {before: [{name: prepare, command: [./prepare]}]}
releaseChannels: [{name: live, runtimes: [{name: host}]}]
---
{apiVersion: converge/v1, kind: Runtime, name: host, maxConcurrentApplies: 1, custom: {apply: {command: [./apply]}}}
---
{apiVersion: converge/v1, kind: Service, name: db}
---
{apiVersion: converge/v1, kind: Service, name: edge, aggregator: {sync: {strategy: dir, command: [./sync]}}}
---
{apiVersion: converge/v1, kind: Service, name: web, requires: [db], feeds: [{aggregator: edge, content: a}], reconcilers: [{name: register, command: [./register]}]}
`
	before := intenttest.Text(t, text).Incarnation
	for from, want := range map[string]string{
		"before: [{name: prepare, command: [./prepare]}]": "live.plan.before[0].prepare", "requires: [db], ": "live.plan.services.web",
		"[./register]": "live.plan.RECONCILE.web.register", "content: a": "live.plan.feeds[0].web.edge", "maxConcurrentApplies: 1, ": "live.plan.targets.host",
	} {
		to := map[string]string{"[./register]": "[./registers]", "content: a": "content: b"}[from]
		require.Contains(t, text, from)
		d, err := incarnation.Diff(before, intenttest.Text(t, strings.Replace(text, from, to, 1)).Incarnation)
		require.NoError(t, err)
		require.Len(t, d.Rules, 1, from)
		require.Equal(t, want, d.Rules[0].Path)
		require.Empty(t, d.Services)
	}
}

// The first incarnation differs from nothing by all it has.
func TestDiffFromNothing_D7(t *testing.T) {
	d, err := incarnation.Diff(nil, intenttest.Text(t, intenttest.One("custom: {env: {A: b}}\n")).Incarnation)
	require.NoError(t, err)
	require.Equal(t, `release channels
  + prod  at position 2
  + prod.constants.empty  ""
  + prod.constants.port  "81"
  + prod.constants.zone  "p.com"
  + prod.labels.tier  "prod"
  + staging  at position 1
  + staging.constants.empty  ""
  + staging.constants.port  "80"
  + staging.constants.zone  "s.dev"
  + staging.labels.tier  "staging"
web added
  staging added
    payload
      + env.A  "b"
      + kind  custom
      + runtime  r
  prod added
    payload
      + env.A  "b"
      + kind  custom
      + runtime  r
`, d.String())
}
