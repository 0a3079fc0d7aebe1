package render

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/sources"
)

// Templates of ApplicationSets have the functions of Argo CD, and neither an environment, a network, a clock nor chance.
func TestTemplatesOfApplicationSets_H6_G4(t *testing.T) {
	parameters := map[string]any{
		"path":     map[string]any{"basename": "Shop.Web_UI", "segments": []any{"apps", "web"}},
		"replicas": 3, "enabled": false, "metadata": map[string]any{"labels": map[string]any{"app.io/tier": "front"}},
	}
	for text, want := range map[string]string{
		`{{ .path.basename | replace "." "-" | lower }}-{{ .replicas }}`:                            "shop-web_ui-3",
		`{{ index .path.segments 1 }}{{ default "none" .nothing }}`:                                 "webnone",
		`{{ .path.basename | trunc 4 | normalize }}`:                                                "shop",
		`{{ normalize .path.basename }} {{ slugify .path.basename }}`:                               "shop.web-ui shop-web_ui",
		`{{ slugify 8 true "one two three" }} {{ slugify 5 "one two" }}`:                            "one-two one-t",
		`{{ index .metadata.labels "app.io/tier" | quote }}`:                                        `"front"`,
		`{{ if .enabled }}yes{{ else }}no{{ end }}{{ range .path.segments }}/{{ . }}{{ end }}`:      "no/apps/web",
		`{{ toYaml .path.segments }} {{ (fromYaml "a: b").a }} {{ index (fromYamlArray "[x]") 0 }}`: "- apps\n- web b x",
	} {
		got, err := sources.Template{Text: text, Parameters: parameters}.Execute()
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for text, want := range map[string]string{
		`{{ env "HOME" }}`: `function "env" not defined`, `{{ expandenv "$HOME" }}`: `function "expandenv" not defined`,
		`{{ getHostByName "localhost" }}`: `function "getHostByName" not defined`,
		`{{ now }}`:                       "depends on the time", `{{ randAlphaNum 4 }}`: "random values", `{{ uuidv4 }}`: "random values",
		`{{ .nothing }}`: "no generator sets", `{{ slugify "ä" }}`: "expected ASCII", `{{ lower`: "unclosed action",
	} {
		_, err := sources.Template{Text: text, Parameters: parameters}.Execute()
		require.ErrorContains(t, err, want, text)
	}
	_, err := sources.Template{Text: `{{ repeat 1000000000 "0123456789" }}`, Parameters: parameters}.Execute()
	require.Error(t, err)
	require.Regexp(t, "MiB of memory|took longer than", err.Error(), "whichever limit it reaches first")
	_, err = sources.Template{Text: "{{ default 1 .nothing }}", Parameters: parameters, MissingKey: "error"}.Execute()
	require.ErrorContains(t, err, "nothing")
}
