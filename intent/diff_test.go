package intent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffNamesWhatChanged_D7(t *testing.T) {
	before := shop(t).Incarnation
	text := shopText(t)
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
	after := compileText(t, text, "routes/rules.json", "{\"more\": 1}\n").Incarnation
	d, err := Diff(before, after)
	require.NoError(t, err)
	golden(t, "shop.diff.txt", []byte(d.String()))
	d.From, d.To = "", ""
	golden(t, "shop.diff.json", indented(t, d))

	back, err := Diff(after, before)
	require.NoError(t, err)
	require.Equal(t, strings.Count(d.String(), "+ "), strings.Count(back.String(), "- "))
	require.Equal(t, strings.Count(d.String(), "~ "), strings.Count(back.String(), "~ "))
}

func TestDiffOfTheSameIsEmpty_D7(t *testing.T) {
	d, err := Diff(shop(t).Incarnation, shop(t).Incarnation)
	require.NoError(t, err)
	require.True(t, d.Empty())
	require.Equal(t, "no difference\n", d.String())
}

// The first incarnation differs from nothing by all it has.
func TestDiffFromNothing_D7(t *testing.T) {
	d, err := Diff(nil, compileText(t, one("custom: {env: {A: b}}\n")).Incarnation)
	require.NoError(t, err)
	require.Equal(t, `release channels
  + prod  at place 2
  + prod.constants.empty  ""
  + prod.constants.port  "81"
  + prod.constants.zone  "p.com"
  + prod.labels.tier  "prod"
  + staging  at place 1
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
