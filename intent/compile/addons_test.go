package compile_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// An addon is part of an incarnation, and neither of what services decide by nor of what runs: another value is another incarnation
// that no service hears of (D1).
func TestUnusedAddonsAreNotInThePayload_D1_B9(t *testing.T) {
	text := intenttest.Oncall + intenttest.OncallService
	before, after := intenttest.Text(t, text), intenttest.Text(t, strings.Replace(text, "team: checkout", "team: payments", 1))
	require.NotEqual(t, before.Incarnation.Hash(), after.Incarnation.Hash())
	specs, err := before.Specs()
	require.NoError(t, err)
	otherSpecs, err := after.Specs()
	require.NoError(t, err)
	require.Equal(t, incarnation.ManifestOf(specs), incarnation.ManifestOf(otherSpecs))
	d, err := incarnation.Diff(before.Incarnation, after.Incarnation)
	require.NoError(t, err)
	require.Equal(t, "web changed\n  rules\n    ~ addons.oncall.team  \"checkout\" → \"payments\"\n", d.String())
	removed, err := incarnation.Diff(before.Incarnation, intenttest.Text(t, strings.Replace(text, "addons: [", "addons: [] #", 1)).Incarnation)
	require.NoError(t, err)
	require.Equal(t, "web changed\n  rules\n    - addons.oncall  example.com/oncall\n    - addons.oncall.level  2\n    - addons.oncall.team  \"checkout\"\n", removed.String())
}

func TestIncarnationWithAddons_D1(t *testing.T) {
	compiled := intenttest.Dir(t, "testdata/addons")
	intenttest.Golden(t, "addons.incarnation.json", intenttest.Indented(t, compiled.Incarnation.Bytes()))
	payload, err := compiled.Incarnation.Template("web", "staging")
	require.NoError(t, err)
	intenttest.Golden(t, "addons.template.json", intenttest.Indented(t, payload))
}

// Where a payload names a field of an addon, that is part of what runs, and the rest of it is not.
func TestPayloadsUseAddons_D1_B9(t *testing.T) {
	text := intenttest.Oncall + strings.Replace(intenttest.OncallService, `A: "1"`, `A: "team ${{ addons.oncall.team }}", B: "${{ addons.oncall.level }}"`, 1)
	template := func(text string) map[string]string {
		payload, err := intenttest.Text(t, text).Incarnation.Template("web", "prod")
		require.NoError(t, err)
		values := map[string]string{}
		for name, v := range payload.Custom.Env {
			values[name] = v.Literal
		}
		return values
	}
	require.Equal(t, map[string]string{"A": "team checkout", "B": "2"}, template(text))
	require.Equal(t, map[string]string{"A": "team payments", "B": "2"}, template(strings.Replace(text, "team: checkout", "team: payments", 1)))
	other := strings.Replace(text, "addons: [", "addons: [{name: other, type: example.com/oncall, value: {team: more}}, ", 1)
	require.Equal(t, template(text), template(other))
}

// A protection of all channels may name what each service carries.
func TestProtectionsUseAddons_D1(t *testing.T) {
	text := strings.Replace(intenttest.Oncall, "releaseChannels:", `protections:
- {name: busy, always: {verdict: PASS, reason: "${{ addons.oncall.team }} agrees"}}
releaseChannels:`, 1) + intenttest.OncallService
	checks := intenttest.Text(t, text).Checks("web")
	require.NotEmpty(t, checks)
	require.Equal(t, "checkout agrees", checks[0].Always.Reason)
}

// A library declares types for all that import it, and what an application declares again is refused where the library is imported.
func TestLibrariesDeclareTypesOfAddons_D1_G2(t *testing.T) {
	content, err := compile.Library(fstest.MapFS{"converge.yaml": {Data: []byte(libraryHead +
		"addonTypes: [{name: example.com/oncall, schema: {required: [team]}}]\nreleaseChannels: [{name: prod, runtimes: [{name: r}]}]\n")}})
	require.NoError(t, err)
	api := func(value string) string {
		return "imports: [{name: org, version: 3}]\n---\n{apiVersion: converge/v1, kind: Service, name: api, custom: {}, addons: [{name: a, type: example.com/oncall, value: " + value + "}]}\n"
	}
	compiled, err := importing(t, api("{team: x}"), content)
	require.NoError(t, err)
	s, _ := compiled.Incarnation.Service("api")
	require.Equal(t, map[string]entities.Addon{"a": {Type: "example.com/oncall", Value: map[string]any{"team": "x"}}}, s.Addons)
	_, err = importing(t, api("{}"), content)
	require.EqualError(t, err, `converge.yaml:6:117: addons[0].value: missing property 'team'; expected a value that the schema of example.com/oncall allows [against-schema]`)
	_, err = importing(t, "addonTypes: [{name: example.com/oncall}]\n"+api("{team: x}"), content)
	require.EqualError(t, err, `converge.yaml:5:11: imports[0]: library org 3 declares the addon type "example.com/oncall" at org@3/converge.yaml:5, and so does converge.yaml:4; expected another name for one of them [duplicate-name]`)
}

// What an addon may hold is bounded.
func TestAddonsAreBounded_D1(t *testing.T) {
	problem := func(values ...string) string {
		text := strings.Replace(intenttest.Oncall, "- name: example.com/oncall\n", "- name: example.com/any\n- name: example.com/oncall\n", 1) +
			"---\napiVersion: converge/v1\nkind: Service\nname: web\naddons:\n"
		for i, v := range values {
			text += "- {name: a" + strings.Repeat("a", i) + ", type: example.com/any, value: " + v + "}\n"
		}
		_, err := intenttest.Load(text)
		if err == nil {
			return ""
		}
		_, message, _ := strings.Cut(err.Error(), ": ")
		return message
	}
	require.Empty(t, problem("{a: {b: {c: {d: {e: {f: {g: 9007199254740991}}}}}}}", `{a: "`+strings.Repeat("x", 16_000)+`"}`))
	require.Equal(t, `addons[0].value.a.b.c.d.e.f.g.h: this is more than 8 levels deep; expected a flatter value [too-large]`, problem("{a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}}"))
	require.Equal(t, `addons: the addons of the service have 16433 bytes; expected at most 16384 [too-large]`, problem(`{a: "`+strings.Repeat("x", 16_384)+`"}`))
	require.Equal(t, `addons: the service has 21 addons; expected at most 20 [too-large]`, problem(strings.Fields(strings.Repeat("{} ", 21))...))
	_, err := intenttest.Load(strings.Replace(intenttest.Oncall, "maximum: 5", "items: {allOf: ["+strings.Repeat("false,", 2000)+"]}", 1) +
		strings.Replace(intenttest.OncallService, "level: 2", "level: ["+strings.Repeat("0,", 4000)+"]", 1))
	require.ErrorContains(t, err, "this has 4003 parts and its schema 2011, and their product is more than 1000000")
}
