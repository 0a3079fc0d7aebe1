package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/intent/sources"
)

// values are what the readers of YAML 1.1 and 1.2 read differently, and their neighbors.
var values = []string{
	"y", "Y", "yes", "on", "On", "n", "N", "no", "off", "OFF", "true", "FALSE", `"y"`, `'no'`, "!!str on", "yEs", "|\n    no\n", "null", "~", `"null"`, `""`,
	"0777", "0o17", "08", "0b101", "0x1F", "1_000", "+5", "-0", "12e03", ".5", "5.", "1.0", "1e6", "-1.5e-3", "1:30", "1.2.3", "0.10", "0x", `"0777"`, `"1e3"`,
	"9007199254740993", "18446744073709551615", "2026-11-28", "2001-12-14t21:59:43.10-05:00", "[y, n, 010]", "{on: off, 1: a, 8080: d}",
	`"<<"`, "=", "&a {b: 1}", "{b: 1, <<: {b: 2, c: 3}, c: 4}", "{}", "[]", `"a: b"`, `"# no"`,
}

// written returns the values of the service that an import writes.
func written(t *rapid.T, tool Tool, text string) any {
	dir, err := os.MkdirTemp("", "values")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	for name, content := range map[string]string{"app.yaml": text, "charts/web/Chart.yaml": "{apiVersion: v2, name: web, version: 1.0.0}"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	result, err := FromFiles(context.Background(), Target{Dir: dir, Application: "shop"}, tool, func(context.Context, string) error { return nil })
	require.NoError(t, err, text)
	require.Equal(t, 1, result.Services, result.Omitted)
	data, err := os.ReadFile(filepath.Join(dir, "converge.yaml"))
	require.NoError(t, err)
	for document, err := range sources.Documents(data) {
		require.NoError(t, err)
		if textAt(document, "kind") == "Service" {
			found := field(document, "kubernetes", "helm", "values")
			if found == nil {
				found = map[string]any{}
			}
			return found
		}
	}
	return nil
}

// canonical returns values as Helm has them: every number is a float.
func canonical(t *rapid.T, v any) string {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	var again any
	require.NoError(t, json.Unmarshal(data, &again))
	data, err = json.Marshal(again)
	require.NoError(t, err)
	return string(data)
}

// Values of a chart arrive as Helm reads them, from every place where Argo CD and Flux have some.
func TestImportedValuesAreReadAsHelmReadsThem_D8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := ""
		for i, value := range rapid.SliceOfN(rapid.SampledFrom(values), 1, 4).Draw(t, "values") {
			text += fmt.Sprintf("k%d:\n  %s\n", i, strings.ReplaceAll(value, "&a", fmt.Sprintf("&a%d", i)))
		}
		text += "x: {k: {f: " + rapid.StringMatching(`[-+]?[0-9oxbe_.:]{1,8}`).Filter(readable).Draw(t, "number") + "}}\n"
		helms, err := loader.LoadValues(strings.NewReader(text))
		require.NoError(t, err, text)
		indented := func(by string) string { return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) }
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		const argo = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: web}\nspec:\n  destination: {namespace: web}\n  source:\n    path: charts/web\n    helm:\n"
		const flux = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web, namespace: web}\nspec:\n  chart: {spec: {chart: ./charts/web, sourceRef: {kind: GitRepository, name: a}}}\n"
		for name, file := range map[string][2]string{
			"helm.values":       {"argocd", argo + "      values: " + string(quoted)},
			"helm.valuesObject": {"argocd", argo + "      valuesObject:\n" + indented("        ")},
			"values":            {"flux", flux + "  values:\n" + indented("    ")},
			"valuesFrom":        {"flux", flux + "  valuesFrom: [{kind: ConfigMap, name: v}]\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: v, namespace: web}\ndata: {values.yaml: " + string(quoted) + "}\n"},
		} {
			require.Equal(t, canonical(t, helms), canonical(t, written(t, Tool(file[0]), file[1])), "%s of\n%s", name, text)
		}
	})
}

// readable reports whether a plain scalar is read by Helm and by us: a number that loses digits is a problem. A zero with a minus is written
// as the integer 0.
func readable(text string) bool {
	helms, err := loader.LoadValues(strings.NewReader("a: " + text + "\n"))
	_, ours := sources.HelmValues([]byte("a: " + text + "\n"))
	var node yaml.Node
	if number, ok := helms["a"].(float64); ok && number == 0 && math.Signbit(number) {
		return false
	}
	return err == nil && ours == nil && yaml.Unmarshal([]byte("a: {f: "+text+"}\n"), &node) == nil && !strings.HasSuffix(text, ":")
}

// A value of a parameter is what --set of Helm makes of it.
func TestParametersAreReadAsHelmReadsThem_D8(t *testing.T) {
	for text, want := range map[string]any{
		"true": true, "False": false, "null": nil, "0": int64(0), "12": int64(12), "-3": int64(-3), "007": "007", "1.10": "1.10", "y": "y", "1e3": "1e3", "": "",
		"a,b": "a,b", "{a,1,true}": []any{"a", int64(1), true}, "2026-11-28": "2026-11-28", "0x10": "0x10", "a: b": "a: b", "[1]": "[1]",
	} {
		require.Equal(t, want, setValue(text), text)
	}
}
