package compile_test

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// switches11 has a boolean of YAML 1.1 in each spelling, half of them quoted or text of another kind.
const switches11 = `{a: y, b: Y, c: yes, d: on, e: On, f: n, g: N, h: no, i: off, j: OFF, k: "n", l: 'off', m: nO, o: 010, p: 0o17, q: 1_0}`

const switches = `{"a":true,"b":true,"c":true,"d":true,"e":true,"f":false,"g":false,"h":false,"i":false,"j":false,"k":"n","l":"off","m":"nO",` +
	`"o":8,"p":15,"q":10}`

// A switch that Helm reads as off is off, wherever its value is from.
func TestValuesOfChartsAreReadAsHelmReadsThem(t *testing.T) {
	for source, row := range map[string]struct {
		helm  string
		files []string
	}{
		"configuration": {"{chart: chart, values: {all: " + switches11 + "}}", nil},
		"file":          {"{chart: chart, valuesFiles: [prod.yaml]}", []string{"prod.yaml", "other: n\n---\nall: " + switches11}},
		"chart":         {"{chart: chart}", []string{"chart/values.yaml", "all: " + switches11}},
	} {
		files := append(chartFiles(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {all: {{ .Values.all | toJson | quote }}}}`), row.files...)
		compiled := intenttest.Text(t, cluster("kubernetes: {helm: "+row.helm+"}"), files...)
		require.Contains(t, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"})[0], quoted(switches), source)
	}
}

// quoted is JSON within JSON.
func quoted(text string) string {
	out := ""
	for _, r := range text {
		if r == '"' {
			out += `\`
		}
		out += string(r)
	}
	return out
}

// numbers are written in a YAML and in JSON.
var numbers = map[string]string{
	"9007199254740991": "9007199254740991", "9007199254740993": "9007199254740993", "-9007199254740993": "-9007199254740993",
	"9223372036854775807": "9223372036854775807", "-9223372036854775808": "-9223372036854775808", "1234567890123456789": "1234567890123456789",
	"0x7fffffffffffffff": "9223372036854775807", "1_234_567_890_123_456_789": "1234567890123456789",
}

// Whole numbers keep their digits through every source of objects.
func TestWholeNumbersKeepTheirDigits(t *testing.T) {
	for written, want := range numbers {
		object := "{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {big: " + written + ", all: [{id: " + written + "}]}}"
		template := "{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {big: {{ .Values.big }}, all: {{ .Values.all | toJson }}}}"
		for source, files := range map[string][]string{
			"manifests: [w.yaml]":  {"w.yaml", object},
			"kustomize: .":         {"w.yaml", object, "kustomization.yaml", "resources: [w.yaml]\nnamePrefix: ''\nlabels: [{pairs: {a: b}}]"},
			"helm: {chart: chart}": chartFiles(object),
			"helm: {chart: chart, values: {big: " + written + ", all: [{id: " + written + "}]}}": chartFiles(template),
			"helm: {chart: chart, valuesFiles: [v.yaml]}":                                        append(chartFiles(template), "v.yaml", "{big: "+written+", all: [{id: "+written+"}]}"),
			"manifests: [x.yaml], patches: [{path: p.yaml, target: {kind: Widget}}]":             {"x.yaml", "{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {}}", "p.yaml", "spec: {big: " + written + ", all: [{id: " + written + "}]}"},
			"manifests: [w.yaml], patches: [{path: p.yaml, target: {kind: Widget}}]":             {"w.yaml", object, "p.yaml", "metadata: {labels: {a: b}}"},
		} {
			compiled := intenttest.Text(t, cluster("kubernetes: {"+source+"}"), files...)
			got := objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"})[0]
			require.Contains(t, got, `"big":`+want, "%s: %s", written, source)
			require.Contains(t, got, `"all":[{"id":`+want+"}]", "%s: %s", written, source)
		}
	}
}

// numberText draws a number as a YAML may have it, and its exact value. Digits behind the point are not whole, and count as in a float64.
func numberText(t *rapid.T) (string, *big.Rat) {
	digits := rapid.StringMatching(`[1-9][0-9]{0,21}`).Draw(t, "digits")
	sign := rapid.SampledFrom([]string{"", "-", "+"}).Draw(t, "sign")
	whole, _ := new(big.Int).SetString(digits, 10)
	text := digits
	switch rapid.SampledFrom([]string{"plain", "underscores", "hexadecimal", "octal", "fraction", "exponent"}).Draw(t, "form") {
	case "underscores":
		text = digits[:1] + "_" + digits[1:]
	case "hexadecimal":
		text = "0x" + whole.Text(16)
	case "octal":
		text = "0o" + whole.Text(8)
	case "fraction":
		text += rapid.StringMatching(`\.[0-9]{0,20}`).Draw(t, "fraction")
		return sign + text, float(t, sign+text)
	case "exponent":
		text += rapid.StringMatching(`(\.[0-9]{1,5})?e[+-]?[0-9]{1,2}`).Draw(t, "exponent")
		return sign + text, float(t, sign+text)
	}
	if sign == "-" {
		whole.Neg(whole)
	}
	return sign + text, new(big.Rat).SetInt(whole)
}

func float(t *rapid.T, text string) *big.Rat {
	f, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return new(big.Rat).SetFloat64(f)
}

// What goes in comes out, as Kubernetes decodes it, for every number of a YAML, or it is refused.
func TestNumbersComeOutAsTheyWentIn_D8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, want := numberText(t)
		loaded, err := intenttest.Load(cluster("kubernetes: {manifests: [w.yaml]}"), "w.yaml",
			"{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {big: "+text+"}}")
		if err != nil {
			require.ErrorContains(t, err, "Widget/w spec.big: th")
			require.ErrorContains(t, err, `lose digits`)
			exact, _ := want.Float64()
			require.True(t, new(big.Rat).SetFloat64(exact).Cmp(want) != 0 && want.IsInt(), "%s is refused", text)
			return
		}
		compiled, err := compile.Compile(loaded)
		require.NoError(t, err)
		payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v1"})
		require.NoError(t, err)
		require.NotEmpty(t, payloads["prod"].Kubernetes.Bundle)
		var objects []map[string]any
		require.NoError(t, utiljson.Unmarshal(compiled.Bundles[0].Bytes(), &objects))
		switch got := objects[0]["spec"].(map[string]any)["big"].(type) {
		case int64:
			if strings.Contains(text, ".") || strings.Contains(text, "e") && !strings.Contains(text, "x") {
				require.Equal(t, want, new(big.Rat).SetFloat64(float64(got)), text)
				return
			}
			require.Equal(t, want, new(big.Rat).SetInt64(got), text)
		case float64:
			require.Equal(t, want, new(big.Rat).SetFloat64(got), text)
		default:
			require.Equal(t, any(text), got, "text keeps its digits: hexadecimal and octal numbers of more than 64 bits are text")
		}
	})
}

// A number that cannot keep its digits is refused, with the quotes that keep it.
func TestNumberThatLosesDigitsIsRefused(t *testing.T) {
	for written, want := range map[string]string{
		"123456789012345678901": `this number would lose digits; expected a whole number of at most 64 bits, or text (put it in quotes: "123456789012345678901")`,
		"-18446744073709551617": `this number would lose digits; expected a whole number of at most 64 bits, or text (put it in quotes: "-18446744073709551617")`,
		"18446744073709551615":  `the number 18446744073709551615 would lose digits in Kubernetes; expected a whole number of at most 9223372036854775807, or text (put it in quotes: "18446744073709551615")`,
	} {
		object := "{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {big: " + written + "}}"
		_, err := intenttest.Load(cluster("kubernetes: {manifests: [w.yaml]}"), "w.yaml", object)
		require.ErrorContains(t, err, "w.yaml:1:74: Widget/w spec.big: "+want+" [bad-value]", written)
		_, err = intenttest.Load(cluster("parameters: [{name: p, type: float, default: "+strings.TrimPrefix(written, "-")+"}]\nkubernetes: {manifests: [w.yaml]}"), "w.yaml", configMap("a"))
		require.ErrorContains(t, err, "parameters[0].default: this ", written)
	}
}

// Kustomize rounds whole numbers above 2^53 of an object that a JSON patch changes. This is refused.
func TestJSONPatchThatLosesDigitsIsRefused(t *testing.T) {
	object := "{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {big: 1234567890123456789}}"
	patch := `[{"op": "add", "path": "/spec/other", "value": 1}]`
	for source, files := range map[string][]string{
		"manifests: [w.yaml], patches: [{path: p.yaml, target: {kind: Widget}}]": {"w.yaml", object, "p.yaml", patch},
		"kustomize: .": {"w.yaml", object, "kustomization.yaml", "resources: [w.yaml]\npatches: [{target: {kind: Widget}, patch: '" + patch + "'}]"},
	} {
		_, err := intenttest.Load(cluster("kubernetes: {"+source+"}"), files...)
		require.ErrorContains(t, err, "Kustomize has rounded a number to 1234567890123456800", source)
		require.ErrorContains(t, err, "; expected a strategic merge patch in place of a JSON patch, or the number in quotes", source)
	}
}

// Values of charts in a kustomization keep their digits, or are refused.
func TestValuesInKustomizationsKeepTheirDigits(t *testing.T) {
	template := "{apiVersion: shop.dev/v1, kind: Widget, metadata: {name: w}, spec: {big: {{ .Values.big }}}}"
	files := append(prefixed("charts/", chartFiles(template)), "v.yaml", "{big: 1234567890123456789}")
	compiled := intenttest.Text(t, cluster("kubernetes: {kustomize: .}"), append(files, "kustomization.yaml", "helmCharts: [{name: chart, releaseName: a, valuesFile: v.yaml}]")...)
	require.Contains(t, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"})[0], `"big":1234567890123456789`)
	_, err := intenttest.Load(cluster("kubernetes: {kustomize: .}"), append(files, "kustomization.yaml", "helmCharts: [{name: chart, releaseName: a, valuesInline: {big: 1234567890123456789}}]")...)
	require.ErrorContains(t, err, "Kustomize rounds a number in valuesInline to 1234567890123456800; expected the number in quotes, or in a valuesFile")
}

// prefixed moves files to a directory.
func prefixed(dir string, files []string) []string {
	moved := slices.Clone(files)
	for i := 0; i < len(moved); i += 2 {
		moved[i] = dir + moved[i]
	}
	return moved
}

// Text that YAML 1.1 reads as a boolean stays text through Kustomize, which quotes it.
func TestQuotedBooleansStayText(t *testing.T) {
	object := `{apiVersion: v1, kind: ConfigMap, metadata: {name: "y"}, data: {a: "n", b: "off", c: 'YES', "y": "1e3"}}`
	for source, files := range map[string][]string{
		"kustomize: .": {"w.yaml", object, "kustomization.yaml", "resources: [w.yaml]\nlabels: [{pairs: {a: b}}]"},
		"manifests: [w.yaml], patches: [{path: p.yaml, target: {kind: ConfigMap}}]": {"w.yaml", object, "p.yaml", "[{op: add, path: /metadata/labels, value: {a: b}}]"},
	} {
		compiled := intenttest.Text(t, cluster("kubernetes: {"+source+"}"), files...)
		require.Equal(t, []string{
			`{"apiVersion":"v1","data":{"a":"n","b":"off","c":"YES","y":"1e3"},"kind":"ConfigMap","metadata":{"labels":{"a":"b"},"name":"y"}}`,
		}, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}), source)
	}
}
