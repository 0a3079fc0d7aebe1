package render

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/sources"
)

// chartOf makes a chart of one template, and of other files as name, content pairs.
func chartOf(t *testing.T, template string, others ...string) *sources.Chart {
	t.Helper()
	files := fstest.MapFS{
		"web/Chart.yaml":       {Data: []byte("{apiVersion: v2, name: web, version: 1.0.0}")},
		"web/templates/a.yaml": {Data: []byte(template)},
	}
	for i := 0; i+1 < len(others); i += 2 {
		files["web/"+others[i]] = &fstest.MapFile{Data: []byte(others[i+1])}
	}
	chart, _, err := sources.ReadChart(files, "web", nil)
	require.NoError(t, err)
	return chart
}

func rendered(t *testing.T, chart *sources.Chart, values map[string]any) string {
	t.Helper()
	texts, err := chart.Render(sources.Release{Name: "web", Namespace: "shop", Values: values})
	require.NoError(t, err)
	var all []string
	for _, text := range texts {
		all = append(all, sources.RestoreSubstitutions(string(text.Data)))
	}
	return strings.Join(all, "\n")
}

// What templates make of a version, as far as it stays one (D4, D8).
func TestVersionsInCharts(t *testing.T) {
	for _, row := range []struct{ template, want string }{
		{`a: {{ .Values.tag }}`, `a: ${{ version }}`},
		{`a: {{ .Values.tag | quote }} {{ .Values.full }}`, `a: "${{ version }}" ${{ fullVersion }}`},
		{`a: {{ printf "%s-%s" .Release.Name .Values.tag | trunc 63 | trimSuffix "-" }}`, `a: web-${{ version }}`},
		{`a: {{ .Values | toJson | len | eq 0 }}`, `a: false`},
		{`a: {{ if eq .Values.tag "latest" }}always{{ else }}once{{ end }}`, `a: once`},
		{`a: {{ .Values.tag | trunc 4 }}`, "another form"},
		{`a: {{ .Values.tag | upper }}`, "another form"},
		{`a: {{ .Values.tag | b64enc }}`, "another form"},
		{`a: {{ .Values.tag | trimPrefix "q" }}`, "another form"},
		{`a: {{ .Values.tag | replace "z" "y" }}`, "another form"},
		{`a: {{ .Values.tag | sha256sum }}{{ .Values.tag | trunc 2 }}`, "another form"},
	} {
		t.Run(row.template, func(t *testing.T) {
			texts, err := chartOf(t, row.template).Render(sources.Release{Name: "web", Values: map[string]any{"tag": sources.Version, "full": sources.FullVersion}})
			if err != nil {
				require.NotContains(t, err.Error(), sources.Version)
				require.Contains(t, err.Error(), row.want)
				return
			}
			require.Equal(t, row.want, sources.RestoreSubstitutions(string(texts[0].Data)))
		})
	}
}

// A checksum of a text with a version stays that of the text as compiled: the same for all versions.
func TestChecksumsOfVersions(t *testing.T) {
	chart := chartOf(t, `sum: {{ .Values.tag | sha256sum | trunc 12 }}`)
	text := rendered(t, chart, map[string]any{"tag": sources.Version})
	require.Regexp(t, `^sum: [0-9a-f]{12}$`, text)
	require.Equal(t, text, rendered(t, chart, map[string]any{"tag": sources.Version}))
}

// Chance and the clock are found out wherever they show, and let be where they do not.
func TestNondeterministicChartsAreRejected(t *testing.T) {
	for _, template := range []string{
		`a: {{ randAlphaNum 4 }}`, `a: {{ randAlpha 4 | sha256sum }}`, `a: {{ randNumeric 4 | b64enc }}`, `a: {{ uuidv4 }}`, `a: {{ randInt 1 9 }}`,
		`a: {{ now }}`, `a: {{ now | date "2006" }}`, `a: {{ now | unixEpoch }}`, `a: {{ date "2006-01-02" "today" }}`, `a: {{ now | htmlDate }}`, `a: {{ now | ago }}`,
		`{{ $ca := genCA "web" 365 }}a: {{ $ca.Cert | b64enc }}`, `{{ $c := genSelfSignedCert "web" nil nil 365 }}a: {{ $c.Key }}`, `a: {{ genPrivateKey "rsa" }}`,
		`a: {{ htpasswd "a" "b" }}`, `a: {{ bcrypt "a" }}`, `a: {{ encryptAES "a" "b" }}`, `a: {{ shuffle "abcdef" }}`,
		`{{ if lt (now | unixEpoch | int64) 2000000000 }}a: b{{ end }}`,
	} {
		t.Run(template, func(t *testing.T) {
			_, err := chartOf(t, template).Render(sources.Release{Name: "web"})
			require.ErrorContains(t, err, "web/templates/a.yaml")
			require.ErrorContains(t, err, "depends on the time or on random values")
		})
	}
	for template, want := range map[string]string{
		`a: {{ .Values.password | default (randAlphaNum 8) }}`:                                      `a: s`,
		`a: {{ toDate "2006-01-02" "2024-05-06" | date "Jan 2" }}`:                                  `a: May 6`,
		`a: {{ dateInZone "15:04" (toDate "2006-01-02" "2024-05-06") "Asia/Tokyo" }}`:               `a: 09:00`,
		`a: {{ keys .Values.labels | join "," }} {{ values .Values.labels | join "," }}`:            `a: a,b,c,d 1,2,3,4`,
		`a: {{ lookup "v1" "Secret" "shop" "web" | len }}{{ getHostByName "localhost" }}`:           `a: 0`,
		`a: {{ .Capabilities.KubeVersion.Minor }} {{ .Release.Revision }} {{ .Release.IsInstall }}`: `a: 36 1 true`,
	} {
		require.Equal(t, want, rendered(t, chartOf(t, template), map[string]any{
			"password": "s", "labels": map[string]any{"d": 4, "b": 2, "a": 1, "c": 3},
		}), template)
	}
}

// Hooks of tests do not run here, whatever their names: they are left out, and the lines of the rest stay where they are.
func TestHooksOfTestsAreLeftOut_H6(t *testing.T) {
	const hook = "name: t-{{ randAlphaNum 5 }}\nannotations: {helm.sh/hook: %s}"
	object := func(events string) string {
		return "metadata:\n  " + strings.ReplaceAll(fmt.Sprintf(hook, events), "\n", "\n  ")
	}
	for _, events := range []string{"test", "test-success", `"test,test-failure"`} {
		text := rendered(t, chartOf(t, object(events)+"\n---\na: b"), nil)
		require.Equal(t, "\n\n\n---\na: b", text, events)
	}
	for _, events := range []string{"pre-install", `"test, post-upgrade"`, "post-delete"} {
		_, err := chartOf(t, object(events)).Render(sources.Release{Name: "web"})
		require.ErrorContains(t, err, "depends on the time or on random values", events)
	}
}

// Objects stand apart as Helm has it, which is more than YAML does.
func TestObjectsInOneLineWithTheSeparator_H6(t *testing.T) {
	chart := chartOf(t, "--- # first\na: 1\n---b: 2\n\n---   \nc: |\n  ---\n  d")
	text := rendered(t, chart, nil)
	require.Equal(t, "\n---\n# first\na: 1\n---\nb: 2\n---\nc: |\n  ---\n  d", text)
}

// A schema is held, unless it would have to be fetched.
func TestSchemasOfCharts(t *testing.T) {
	schema := `{"properties": {"replicas": {"type": "integer"}, "tag": {"type": "string"}}}`
	chart := chartOf(t, "a: {{ .Values.replicas }}", "values.schema.json", schema)
	require.Equal(t, "a: 2", rendered(t, chart, map[string]any{"replicas": int64(2), "tag": sources.Version}))
	_, err := chart.Render(sources.Release{Name: "web", Values: map[string]any{"replicas": "two"}})
	require.ErrorContains(t, err, "/replicas")
	elsewhere := chartOf(t, "a: {{ .Values.replicas }}", "values.schema.json", strings.Replace(schema, `{"type": "integer"}`, `{"$ref": "https://nowhere.invalid/s.json"}`, 1))
	require.Equal(t, "a: two", rendered(t, elsewhere, map[string]any{"replicas": "two"}))
}

func TestIgnoredFilesOfCharts(t *testing.T) {
	chart := chartOf(t, "a: {{ .Files.Get \"keep.txt\" }}{{ .Files.Get \"notes/a.txt\" }}{{ .Files.Get \"x.bak\" }}{{ .Files.Get \"y.bak\" }}",
		".helmignore", "# comment\n*.bak\n!y.bak\nnotes/\n/deep/file\n", "keep.txt", "1", "notes/a.txt", "2", "x.bak", "3", "y.bak", "4", "templates/.hidden.yaml", "{{ fail \"no\" }}")
	require.Equal(t, "a: 14", rendered(t, chart, nil))
}

func TestTokensAreNamesWithoutHexDigits(t *testing.T) {
	for _, token := range []string{sources.Version, sources.FullVersion, secondToken(sources.Version), secondToken(sources.FullVersion)} {
		require.Regexp(t, `^[g-z]{18}$`, token)
	}
	for _, token := range []string{sources.Version, sources.FullVersion} {
		for i := range token {
			require.NotEqual(t, token[i], secondToken(token)[i])
		}
	}
}
