package incarnation_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

// Every name and form of a substitution.
func TestSubstitution(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"plain", "plain"},
		{"", ""},
		{"${{ version }}", "v7"},
		{"${{version}}", "v7"},
		{"${{ fullVersion }}", "v7-i3"},
		{"${{ service }}.${{ application }}.${{ channel }}", "web.shop.staging"},
		{"${{ labels.tier }}", "staging"},
		{"https://${{ constants.zone }}:${{ constants.port }}/", "https://s.dev:80/"},
		{"[${{ constants.empty }}]", "[]"},
		{"${{ params.image }}", "web:v7"},
		{"${{ params.replicas }}", "2"},
		{"x${{ params.replicas }}${{ params.debug }}", "x2true"},
		{"${{ params.ratio }}", "0.25"},
		{"${{ params.whole }}", "3"},
		{"${{ params.port }}", "80"},
		{"${{ params.asText }}", "2"},
		{"$HOME ${NAME} $(date) {{ x }} }} $${{ version }}", "$HOME ${NAME} $(date) {{ x }} }} $v7"},
		{"a: b\n- c # d", "a: b\n- c # d"},
	} {
		t.Run(row.text, func(t *testing.T) {
			quoted, err := json.Marshal(row.text)
			require.NoError(t, err)
			inc := intenttest.Text(t, intenttest.One(`
parameters:
- {name: image, type: string, default: "web:${{ version }}"}
- {name: replicas, type: int, default: 2}
- {name: ratio, type: float, default: 0.25}
- {name: whole, type: float, default: "${{ params.three }}"}
- {name: three, type: int, default: 3}
- {name: debug, type: bool, default: true}
- {name: port, type: int, default: "${{ constants.port }}"}
- {name: asText, type: string, default: "${{ params.replicas }}"}
custom: {env: {A: `+string(quoted)+`}}
`)).Incarnation
			payloads, err := incarnation.Render(inc, "web", incarnation.RenderInput{Version: "v7", FullVersion: "v7-i3"})
			require.NoError(t, err)
			require.Equal(t, entities.Value{Literal: row.want}, payloads["staging"].Custom.Env["A"])
		})
	}
}

// Merge order: default, perReleaseChannel in file order, the release for all, the release for one.
func TestMergeOrder(t *testing.T) {
	inc := intenttest.Text(t, intenttest.One(`
parameters: [{name: a, type: string, default: default}]
perReleaseChannel:
- {releaseChannel: prod, parameters: {a: first}, custom: {env: {B: first, C: first}, files: [x, y]}}
- {selector: {tier: prod}, parameters: {a: second}, custom: {env: {C: second}, files: [z]}}
custom: {env: {A: "${{ params.a }}", B: service}, files: [w]}
`), "w", "W", "x", "X", "y", "Y", "z", "Z").Incarnation
	for _, row := range []struct{ name, release, want string }{
		{
			"configuration alone", `{}`,
			`prod {"A":"second","B":"first","C":"second"} [z]; staging {"A":"default","B":"service"} [w]`,
		},
		{
			"for all channels", `{"Parameters":{"a":"all"}}`,
			`prod {"A":"all","B":"first","C":"second"} [z]; staging {"A":"all","B":"service"} [w]`,
		},
		{
			"for one channel", `{"Parameters":{"a":"all"},"ChannelParameters":{"prod":{"a":"one"}}}`,
			`prod {"A":"one","B":"first","C":"second"} [z]; staging {"A":"all","B":"service"} [w]`,
		},
		{
			"some channels", `{"Instances":["prod","gone"]}`,
			`prod {"A":"second","B":"first","C":"second"} [z]`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := incarnation.RenderInput{Version: "v1"}
			require.NoError(t, json.Unmarshal([]byte(row.release), &in))
			payloads, err := incarnation.Render(inc, "web", in)
			require.NoError(t, err)
			var got []string
			for _, channel := range strict.Keys(payloads) {
				env := map[string]string{}
				for name, v := range payloads[channel].Custom.Env {
					env[name] = v.Literal
				}
				got = append(got, channel+" "+string(intenttest.Line(t, env))+" ["+strings.Join(strict.Keys(payloads[channel].Custom.Files), " ")+"]")
			}
			require.Equal(t, row.want, strings.Join(got, "; "))
		})
	}
}

// What a release gives, as the CLI (text) and as JSON has it.
func TestReleaseParameters(t *testing.T) {
	inc := intenttest.Text(t, intenttest.One(intenttest.TypedService)).Incarnation
	for _, row := range []struct{ release, want string }{
		{`{"Parameters":{"count":3}}`, `a 3 1.5 false OLD`},
		{`{"Parameters":{"count":"3","ratio":"2","debug":"true","text":"3"}}`, `3 3 2 true OLD`},
		{`{"Parameters":{"count":3.0,"ratio":2,"text":"${{ version }}"}}`, `${{ version }} 3 2 false OLD`},
		{`{"Parameters":{"count":1,"secret":{"workerEnv":"NEW"}}}`, `a 1 1.5 false NEW`},
		{`{"ChannelParameters":{"staging":{"count":1},"prod":{"count":2}}}`, `a 1 1.5 false OLD`},
		{`{}`, `render web: parameter "count" has no value; expected a value from the release [missing-parameter]`},
		{`{"ChannelParameters":{"prod":{"count":2}}}`, `render web: parameter "count" has no value; expected a value from the release [missing-parameter]`},
		{`{"Parameters":{"count":"lots"}}`, `parameter "count" is the text "lots"; expected a whole number [wrong-type]`},
		{`{"Parameters":{"count":1.5}}`, `parameter "count" is the number 1.5; expected a whole number [wrong-type]`},
		{`{"Parameters":{"count":1e300}}`, "bad-value"},
		{`{"Parameters":{"count":true}}`, `parameter "count" is the boolean true; expected a whole number [wrong-type]`},
		{`{"Parameters":{"count":null}}`, `parameter "count" is empty; expected a whole number [wrong-type]`},
		{`{"Parameters":{"count":[1]}}`, `parameter "count" is a list; expected a whole number [wrong-type]`},
		{`{"Parameters":{"text":7}}`, `parameter "text" is the number 7; expected text (put it in quotes: "7") [wrong-type]`},
		{`{"Parameters":{"text":"a\u0000b"}}`, "wrong-type"},
		{`{"Parameters":{"debug":"yes"}}`, `parameter "debug" is the text "yes"; expected true or false [wrong-type]`},
		{`{"Parameters":{"secret":"hunter2"}}`, `parameter "secret" is the text "hunter2"; expected a reference to a secret: {workerEnv: NAME} [wrong-type]`},
		{`{"Parameters":{"cuont":1}}`, `service web has no parameter "cuont"; expected one of count, debug, ratio, secret, text; did you mean "count"? [unknown-parameter]`},
		{`{"ChannelParameters":{"prd":{"count":1}}}`, `service web is not deployed to release channel "prd"; expected one of staging, prod; did you mean "prod"? [unknown-channel]`},
		{`{"ChannelParameters":{"prod":{"count":"x"}}}`, `parameter "prod:count" is the text "x"; expected a whole number [wrong-type]`},
	} {
		t.Run(row.release, func(t *testing.T) {
			in := incarnation.RenderInput{Version: "v1", Instances: []string{"staging"}}
			require.NoError(t, json.Unmarshal([]byte(row.release), &in))
			payloads, err := incarnation.Render(inc, "web", in)
			if err != nil {
				require.Contains(t, err.Error(), row.want)
				var fault *strict.Fault
				require.ErrorAs(t, err, &fault)
				return
			}
			env := payloads["staging"].Custom.Env
			require.Equal(t, row.want, env["A"].Literal+" "+env["S"].WorkerEnv+env["S"].Literal)
		})
	}
}

// A release names no secrets but where the configuration lets it, and sets nothing that the configuration keeps.
func TestReleaseCannotSetSecrets_G5(t *testing.T) {
	for _, row := range []struct{ release, declared, wrong string }{
		{`{"Parameters":{"secret":{"workerEnv":"NEW"}}}`, "", "secret"},
		{`{"ChannelParameters":{"prod":{"secret":{"workerEnv":"NEW"}}}}`, "", "secret"},
		{`{"Parameters":{"secret":{"workerEnv":"NEW"}}}`, "overridable: true, ", ""},
		{`{"Parameters":{"secret":{"workerEnv":"NEW"}}}`, "overridable: false, ", "secret"},
		{`{"Parameters":{"text":"b"}}`, "", ""},
	} {
		declared := strings.Replace(intenttest.TypedService, "type: secretRef, ", "type: secretRef, "+row.declared, 1)
		inc := intenttest.Text(t, intenttest.One(declared)).Incarnation
		in := incarnation.RenderInput{Version: "v1"}
		require.NoError(t, json.Unmarshal([]byte(row.release), &in))
		err := incarnation.CheckSettable(inc, "web", in)
		carried := incarnation.CompatibleParameters(inc, "web", in)
		if row.wrong == "" {
			require.NoError(t, err, row)
			require.Equal(t, in.Parameters, carried.Parameters)
			continue
		}
		require.EqualError(t, err, "parameter "+row.wrong+" of web is set in the configuration only; expected its default, a value in perReleaseChannel, or overridable: true in its declaration [fixed-parameter]")
		require.Empty(t, carried.Parameters, "an earlier version does not carry it over")
		require.Empty(t, carried.ChannelParameters["prod"])
	}
}

func TestRenderRejectsUnknownNames(t *testing.T) {
	inc := intenttest.Shop(t).Incarnation
	_, err := incarnation.Render(inc, "wbe", incarnation.RenderInput{Version: "v1"})
	require.EqualError(t, err, `application shop has no service "wbe"; expected one of routes, web; did you mean "web"? [unknown-service]`)
	_, err = incarnation.Render(inc, "web", incarnation.RenderInput{})
	require.EqualError(t, err, `invalid version ""; expected 1 to 128 letters, digits and . _ + - : @ ~ =, beginning with a letter or digit [bad-version]`)
	_, err = inc.Template("routes", "canary")
	require.EqualError(t, err, `service routes is not deployed to release channel "canary" [unknown-channel]`)
}

// A payload holds what it uses and nothing else, and no secret but its name.
func TestPayloadOfTheShop(t *testing.T) {
	inc := intenttest.Dir(t, "../compile/testdata/shop").Incarnation
	payloads, err := incarnation.Render(inc, "web", incarnation.RenderInput{Version: "v7", Parameters: map[string]any{"region": "eu"}, Instances: []string{"staging", "prod-us"}})
	require.NoError(t, err)
	intenttest.Golden(t, "shop.web-v7.payloads.json", intenttest.Indented(t, payloads))
	template, err := inc.Template("web", "staging")
	require.NoError(t, err)
	intenttest.Golden(t, "shop.web.template.json", intenttest.Indented(t, template))
}

func TestParametersWithoutAValueInSomeChannelAreRequired(t *testing.T) {
	compiled := intenttest.Text(t, intenttest.One(`
parameters:
- {name: everywhere, type: string}
- {name: nowhere, type: int}
- {name: somewhere, type: bool}
- {name: defaulted, type: float, default: 1}
perReleaseChannel:
- {releaseChannel: prod, parameters: {everywhere: a, somewhere: true}}
- {releaseChannel: staging, parameters: {everywhere: b}}
`))
	specs, err := compiled.Specs()
	require.NoError(t, err)
	require.Equal(t, []entities.ParamSpec{
		{Name: "everywhere", Type: "string"},
		{Name: "nowhere", Type: "int", Required: true},
		{Name: "somewhere", Type: "bool", Required: true},
		{Name: "defaulted", Type: "float"},
	}, specs["web"].Parameters)
}

// Two ways to say the same release are the same.
func TestGivenParametersAreComparable(t *testing.T) {
	inc := intenttest.Text(t, intenttest.One(intenttest.TypedService)).Incarnation
	asText, err := incarnation.NormalizeParameters(inc, "web", incarnation.RenderInput{Parameters: map[string]any{"count": "3"}, ChannelParameters: map[string]map[string]any{"prod": {"ratio": "2"}}})
	require.NoError(t, err)
	asJSON, err := incarnation.NormalizeParameters(inc, "web", incarnation.RenderInput{Parameters: map[string]any{"count": 3.0}, ChannelParameters: map[string]map[string]any{"prod": {"ratio": 2}}})
	require.NoError(t, err)
	require.Equal(t, asJSON, asText)
	_, err = incarnation.NormalizeParameters(inc, "web", incarnation.RenderInput{Parameters: map[string]any{"count": "x"}})
	require.Error(t, err)
}

// A parameter that is no longer declared does not stand in the way of the change that removed it (B9).
func TestCompatibleParametersOmitsRemovedParameters_B9(t *testing.T) {
	inc := intenttest.Text(t, intenttest.One(`parameters: [{name: kept, type: int, default: 1}, {name: retyped, type: int, default: 1}]
releaseChannels: [prod]
`)).Incarnation
	released := incarnation.RenderInput{
		Version: "v1", FullVersion: "v1-i2",
		Parameters:        map[string]any{"kept": "2", "retyped": "text", "gone": true},
		ChannelParameters: map[string]map[string]any{"prod": {"kept": 3, "gone": 1}, "staging": {"kept": 4}},
	}
	_, err := incarnation.Render(inc, "web", released)
	require.Error(t, err)
	carried := incarnation.CompatibleParameters(inc, "web", released)
	require.Equal(t, incarnation.RenderInput{
		Version: "v1", FullVersion: "v1-i2", Parameters: map[string]any{"kept": "2"},
		ChannelParameters: map[string]map[string]any{"prod": {"kept": 3}},
	}, carried)
	_, err = incarnation.Render(inc, "web", carried)
	require.NoError(t, err)
}

// Whatever text a release gives, the payload has exactly the same fields and that text as it is: a
// value never changes the structure of a document.
func TestValuesNeverChangeStructure(t *testing.T) {
	inc := intenttest.Text(t, intenttest.One(`
parameters: [{name: a, type: string}]
custom: {env: {A: "x-${{ params.a }}", B: "${{ params.a }}"}}
`)).Incarnation
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~\n\t]{0,40}`),
			rapid.SampledFrom([]string{"${{ version }}", "}}", "\": {", "\n- a: b", "${{ params.a }}", "*x", "!!int 1"})).Draw(t, "text")
		payloads, err := incarnation.Render(inc, "web", incarnation.RenderInput{Version: "v1", Parameters: map[string]any{"a": text}, Instances: []string{"prod"}})
		require.NoError(t, err)
		require.Equal(t, entities.Payload{
			Application: "shop", Service: "web", Channel: "prod", Runtime: "r", Kind: "custom",
			Parameters: map[string]any{"a": text},
			Custom:     &entities.CustomPayload{Env: map[string]entities.Value{"A": {Literal: "x-" + text}, "B": {Literal: text}}},
		}, payloads["prod"])
	})
}

// Payloads read back from JSON have the same digest.
func TestPayloadDigestSurvivesJSON(t *testing.T) {
	inc := intenttest.Text(t, intenttest.One(intenttest.TypedService)).Incarnation
	rapid.Check(t, func(t *rapid.T) {
		payloads, err := incarnation.Render(inc, "web", incarnation.RenderInput{Version: "v1", Parameters: map[string]any{
			"count": rapid.Int64Range(-config.MaxInt, config.MaxInt).Draw(t, "count"),
			"ratio": rapid.Float64().Draw(t, "ratio"),
			"text":  rapid.String().Draw(t, "text") + "<>&\u2028",
		}})
		if err != nil {
			t.Skip(err) // text with NUL
		}
		data, err := json.Marshal(payloads["prod"])
		require.NoError(t, err)
		var again entities.Payload
		require.NoError(t, json.Unmarshal(data, &again))
		require.Equal(t, entities.DigestOf(payloads["prod"]), entities.DigestOf(again))
	})
}
