package compile_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/tests/intenttest"
)

// Whole renderings of a chart with manifests and of a kustomization, as a cluster gets them.
func TestChartAndKustomization_D8(t *testing.T) {
	compiled := intenttest.Dir(t, "testdata/kubernetes")
	for _, service := range []string{"web", "api"} {
		payloads, err := incarnation.Render(compiled.Incarnation, service, incarnation.RenderInput{Version: "v7", FullVersion: "v7-i3"})
		require.NoError(t, err)
		for _, channel := range []string{"staging", "prod"} {
			text := strings.Join(filled(t, compiled, payloads[channel]), "\n") + "\n"
			require.NotContains(t, text, "${{")
			intenttest.Golden(t, filepath.Join("kubernetes", service+"-"+channel+".golden"), []byte(text))
		}
	}
}

const fixing = `
parameters:
- {name: replicas, type: int, default: 1}
- {name: image, type: string, default: "web:${{ params.tag }}-${{ version }}"}
- {name: tag, type: string, default: a}
- {name: free, type: string, default: b}
kubernetes:
  manifests: [free.yaml]
  helm: {chart: chart, values: {image: "${{ params.image }}"}}
perReleaseChannel: [{releaseChannel: prod, kubernetes: {helm: {values: {replicas: "${{ params.replicas }}"}}}}]
`

// chartFiles is a chart of one template.
func chartFiles(template string) []string {
	return []string{"chart/Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}", "chart/templates/a.yaml", template}
}

const twoValues = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {image: "{{ .Values.image }}", replicas: "{{ .Values.replicas }}"}}`

// What shapes a chart is said in the configuration; a release sets the rest.
func TestParametersThatShapeAChart(t *testing.T) {
	inc := intenttest.Text(t, cluster(fixing), append(chartFiles(twoValues), "free.yaml", strings.Replace(configMap("free"), "}}", "}, data: {a: \"${{ params.free }}\"}}", 1))...)
	for _, row := range []struct {
		in   incarnation.RenderInput
		want string
	}{
		{incarnation.RenderInput{Parameters: map[string]any{"free": "c"}}, ""},
		{incarnation.RenderInput{Parameters: map[string]any{"replicas": 3}}, "parameter replicas shapes the chart of web, so it is set in the configuration only; expected its default, or a value in perReleaseChannel [fixed-parameter]"},
		{incarnation.RenderInput{Parameters: map[string]any{"tag": "x"}}, "parameter tag shapes the chart of web"},
		{incarnation.RenderInput{Parameters: map[string]any{"image": "x"}}, "parameter image shapes the chart of web"},
		{incarnation.RenderInput{ChannelParameters: map[string]map[string]any{"prod": {"replicas": 3}}}, "parameter prod:replicas shapes the chart of web"},
		{incarnation.RenderInput{ChannelParameters: map[string]map[string]any{"staging": {"replicas": 3}}}, ""}, // nothing there uses it
	} {
		row.in.Version = "v7"
		payloads, err := incarnation.Render(inc.Incarnation, "web", row.in)
		_, given := incarnation.NormalizeParameters(inc.Incarnation, "web", row.in)
		if row.want != "" {
			require.ErrorContains(t, err, row.want)
			require.ErrorContains(t, given, row.want)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, given)
		require.Contains(t, filled(t, inc, payloads["prod"])[0], `"data":{"image":"web:a-v7","replicas":"1"}`)
	}
	carried := incarnation.CompatibleParameters(inc.Incarnation, "web", incarnation.RenderInput{
		Parameters:        map[string]any{"free": "c", "replicas": 3},
		ChannelParameters: map[string]map[string]any{"prod": {"image": "x"}, "staging": {"replicas": 2}},
	})
	require.Equal(t, map[string]any{"free": "c"}, carried.Parameters)
	require.Equal(t, map[string]map[string]any{"prod": {}, "staging": {"replicas": 2}}, carried.ChannelParameters)
}

// A hook with a generated name gets one that its content determines: the same each time, and another one for another hook.
func TestGeneratedNamesOfHooks_D8(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: migrate-, annotations: {%s: pre-install}}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: \"%s:${{ version }}\"}]}}}\n"
	names := func(annotation, source string, files ...string) (all []string) {
		inc := intenttest.Text(t, cluster(source), files...)
		payloads, err := incarnation.Render(inc.Incarnation, "web", incarnation.RenderInput{Version: "v7"})
		require.NoError(t, err)
		for _, text := range filled(t, inc, payloads["prod"]) {
			require.NotContains(t, text, "generateName", annotation)
			var object struct{ Metadata struct{ Name string } }
			require.NoError(t, json.Unmarshal([]byte(text), &object))
			all = append(all, object.Metadata.Name)
		}
		return all
	}
	both := strings.Join([]string{fmt.Sprintf(job, "%[1]s", "a"), fmt.Sprintf(job, "%[1]s", "b")}, "---\n")
	own := fmt.Sprintf(both, "converge/hook")
	plain := names("converge/hook", "\nkubernetes: {manifests: [jobs.yaml]}\n", "jobs.yaml", own)
	require.Len(t, plain, 2)
	require.NotEqual(t, plain[0], plain[1])
	for _, name := range plain {
		require.Regexp(t, `^migrate-[0-9a-f]{5}$`, name)
	}
	require.Equal(t, plain, names("converge/hook", "\nkubernetes: {manifests: [jobs.yaml]}\n", "jobs.yaml", own))
	argo := strings.ReplaceAll(fmt.Sprintf(both, "argocd.argoproj.io/hook"), "pre-install", "PreSync")
	require.Len(t, names("argocd.argoproj.io/hook", "\nkubernetes: {manifests: [jobs.yaml], annotations: argocd}\n", "jobs.yaml", argo), 2)
	helm := strings.ReplaceAll(fmt.Sprintf(both, "helm.sh/hook"), "${{ version }}", "v1")
	require.Len(t, names("helm.sh/hook", "\nkubernetes: {helm: {chart: chart}}\n", chartFiles(helm)...), 2)
}

// The same sources give the same bytes, however often they are read and compiled (D4).
func TestObjectsAreCompiledTheSame_D4(t *testing.T) {
	first := intenttest.Dir(t, "testdata/kubernetes")
	for range 5 {
		config, err := compile.Load("testdata/kubernetes")
		require.NoError(t, err)
		for range 2 {
			again, err := compile.Compile(config)
			require.NoError(t, err)
			require.Equal(t, string(first.Incarnation.Bytes()), string(again.Incarnation.Bytes()))
			require.Equal(t, first.Bundles, again.Bundles)
		}
	}
}

// Every bundle that the incarnation names is made, and none that it does not.
func TestBundlesOfAnIncarnation(t *testing.T) {
	compiled := intenttest.Dir(t, "testdata/kubernetes")
	named := map[string]bool{}
	for _, service := range written(t, compiled).Services {
		for _, instance := range service.Channels {
			named[instance.Kubernetes.Bundle] = true
		}
	}
	made := map[string]bool{}
	for _, bundle := range compiled.Bundles {
		made[bundle.Digest()] = true
	}
	require.Equal(t, named, made)
	require.Len(t, made, 3) // both channels of api have the same objects
}

// What a watcher has to watch: every file that an object comes from.
func TestFilesOfObjects(t *testing.T) {
	config, err := compile.Load("testdata/kubernetes")
	require.NoError(t, err)
	require.Equal(t, strings.Fields(`base/deployment.yaml base/kustomization.yaml chart/.helmignore chart/Chart.yaml
		chart/charts/cache/Chart.yaml chart/charts/cache/templates/cache.yaml chart/crds/crd.yaml chart/templates/NOTES.txt
		chart/templates/_helpers.tpl chart/templates/config.yaml chart/templates/deployment.yaml chart/templates/hooks.yaml
		chart/values.yaml config.yaml converge.yaml overlay/kustomization.yaml overlay/rules.json values.yaml`), config.Files)
}

// Objects and charts lie in the directory, and links do not lead out of it.
func TestSymlinksOfObjectsOutsideAreRejected(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write(outside, "secret.yaml", configMap("s3cret"))
	write(dir, "converge.yaml", cluster("kubernetes: {manifests: [a.yaml], kustomize: k, helm: {chart: chart}}"))
	write(dir, "k/kustomization.yaml", "resources: [a.yaml]\n")
	write(dir, "chart/Chart.yaml", chartFiles("")[1])
	for _, name := range []string{"a.yaml", "k/a.yaml", "chart/values.yaml"} {
		require.NoError(t, os.Symlink(filepath.Join(outside, "secret.yaml"), filepath.Join(dir, name)))
	}
	_, err := compile.Load(dir)
	require.ErrorContains(t, err, "kubernetes.manifests[0]: a.yaml cannot be read: path escapes from parent")
	require.ErrorContains(t, err, `kubernetes.kustomize: the kustomization cannot be built: k/kustomization.yaml: resources: there is no "a.yaml"`)
	require.ErrorContains(t, err, "kubernetes.helm.chart: chart is not a usable chart: path escapes from parent")
	require.NotContains(t, err.Error(), "s3cret")
}

// A chart from elsewhere is fetched once, and is the one that its digest names.
func TestChartByURL(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	packed := pack(t, chartFiles(twoValues)...)
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if r.URL.Path != "/web.tgz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(packed)
	}))
	defer server.Close()
	load := func(path, digest string) (*compile.Loaded, error) {
		text := cluster(fmt.Sprintf("kubernetes: {helm: {chart: %q, digest: %q, values: {image: a}}}\n", server.URL+path, "sha256:"+digest))
		return compile.LoadFS(fstest.MapFS{"converge.yaml": {Data: []byte(text)}}, "/config", config.Options{Client: server.Client()})
	}
	for range 2 {
		config, err := load("/web.tgz", canonical.Hash(packed))
		require.NoError(t, err)
		compiled, err := compile.Compile(config)
		require.NoError(t, err)
		require.Contains(t, objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"})[0], `"image":"a"`)
	}
	require.Equal(t, 1, requests)
	_, err := load("/web.tgz", strings.Repeat("0", 64))
	require.ErrorContains(t, err, "kubernetes.helm.chart: web.tgz cannot be used: its digest is sha256:"+canonical.Hash(packed))
	_, err = load("/gone.tgz", strings.Repeat("1", 64))
	require.ErrorContains(t, err, "kubernetes.helm.chart: gone.tgz cannot be used: the server answered 404 Not Found")
}

// pack makes a chart's archive of name, content pairs.
func pack(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for i := 0; i+1 < len(files); i += 2 {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1]))}))
		_, err := archive.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	return b.Bytes()
}

// Whatever stands in an object, nothing is left open once it is filled in, and text is text.
func TestAllSubstitutionsAreResolved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{
			"${{ version }}", "${{ fullVersion }}", "${{params.count}}", "${{ params.text }}", "${{ constants.zone }}", "${{ labels.tier }}", "${{ channel }}",
			"a", " ", ": ", "\"", "'", "#", "{", "}}", "\n", "<&>", "1", "é",
		})
		text := func(label string) string { return strings.Join(rapid.SliceOfN(part, 0, 5).Draw(t, label), "") }
		object := map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"d": text("data")},
			"metadata": map[string]any{
				"name": "a", "annotations": map[string]any{"l": text("annotation")},
				"finalizers": []any{text("item")}, "ownerReferences": []any{map[string]any{"name": text("deep")}},
			},
		}
		manifest, err := json.Marshal(object)
		require.NoError(t, err)
		config, err := intenttest.Load(cluster("parameters: [{name: count, type: int, default: 2}, {name: text, type: string, default: \"<\\\"\"}]\nkubernetes: {manifests: [a.json]}\n"), "a.json", string(manifest))
		require.NoError(t, err)
		compiled, err := compile.Compile(config)
		require.NoError(t, err)
		payloads, err := incarnation.Render(compiled.Incarnation, "web", incarnation.RenderInput{Version: "v7"})
		require.NoError(t, err)
		for channel, payload := range payloads {
			objects, err := compiled.Bundles[0].Objects(payload.Kubernetes.Values)
			require.NoError(t, err)
			require.NotContains(t, string(objects[0]), "${{")
			var got map[string]any
			require.NoError(t, json.Unmarshal(objects[0], &got))
			want := strings.NewReplacer("${{ version }}", "v7", "${{ fullVersion }}", "v7", "${{params.count}}", "2", "${{ params.text }}", "<\"",
				"${{ constants.zone }}", map[string]string{"staging": "s.dev", "prod": "p.com"}[channel], "${{ labels.tier }}", channel, "${{ channel }}", channel).
				Replace(object["data"].(map[string]any)["d"].(string))
			require.Equal(t, want, got["data"].(map[string]any)["d"])
		}
	})
}

// Of a cluster whose version is not known, a kind or a field that only some supported versions have is a warning.
func TestFieldsOfSomeVersionsAreWarnings(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  hostnameOverride: web\n  containers: [{name: web, image: web}]\n"
	compiled := intenttest.Text(t, cluster("kubernetes: {manifests: [a.yaml]}"), "a.yaml",
		pod+"---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: web}, spec: {}}\n---\n{apiVersion: resource.k8s.io/v1beta2, kind: ResourceClaim, metadata: {name: b}, spec: {}}\n")
	require.Equal(t, []string{
		`a.yaml:5: Pod/web spec.hostnameOverride: only Kubernetes 1.34 and later have the field "hostnameOverride"`,
		`a.yaml:8: ResourceClaim/web apiVersion: only Kubernetes 1.34 and later have resource.k8s.io/v1 ResourceClaim`,
	}, compiled.Warnings)
}

// A thousand services are compiled while one waits: each file and each chart is read once.
func BenchmarkThousandServices(b *testing.B) {
	text := strings.Builder{}
	text.WriteString(strings.Split(cluster(""), "---\napiVersion: converge/v1\nkind: Service")[0])
	files := fstest.MapFS{}
	for i := range 1000 {
		fmt.Fprintf(&text, "---\n{apiVersion: converge/v1, kind: Service, name: s%d, parameters: [{name: replicas, type: int, default: 2}], kubernetes: {manifests: [s%d.yaml]}}\n", i, i)
		files[fmt.Sprintf("s%d.yaml", i)] = &fstest.MapFile{Data: []byte(strings.Replace(deployment, "name: web, c", fmt.Sprintf("name: s%d, c", i), 1))}
	}
	files["converge.yaml"] = &fstest.MapFile{Data: []byte(text.String())}
	for b.Loop() {
		config, err := compile.LoadFS(files, "/config", config.Options{})
		require.NoError(b, err)
		compiled, err := compile.Compile(config)
		require.NoError(b, err)
		require.Len(b, compiled.Bundles, 1000)
	}
}

// Many services of one chart, each with a release name and values of its own.
func BenchmarkHundredCharts(b *testing.B) {
	text := strings.Builder{}
	text.WriteString(strings.Split(cluster(""), "---\napiVersion: converge/v1\nkind: Service")[0])
	files := fstest.MapFS{}
	require.NoError(b, filepath.WalkDir("testdata/kubernetes/chart", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.Contains(name, "hooks") && !strings.Contains(name, "crds") {
			data, err := os.ReadFile(name)
			require.NoError(b, err)
			files[strings.TrimPrefix(name, "testdata/kubernetes/")] = &fstest.MapFile{Data: data}
		}
		return err
	}))
	for i := range 100 {
		fmt.Fprintf(&text, "---\n{apiVersion: converge/v1, kind: Service, name: s%d, kubernetes: {helm: {chart: chart, values: {image: {tag: \"${{ version }}\"}}}}}\n", i)
	}
	files["converge.yaml"] = &fstest.MapFile{Data: []byte(text.String())}
	for b.Loop() {
		config, err := compile.LoadFS(files, "/config", config.Options{})
		require.NoError(b, err)
		_, err = compile.Compile(config)
		require.NoError(b, err)
	}
}
