package compile_test

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/charts"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/charttest"
	"github.com/converge-engine/converge/tests/intenttest"
)

// lockedConfig is the directory of a configuration whose charts are from elsewhere.
type lockedConfig struct {
	*testing.T
	dir string
}

func newLocked(t *testing.T, body string) lockedConfig {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("NETRC", filepath.Join(t.TempDir(), "none"))
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	c := lockedConfig{t, t.TempDir()}
	c.write("converge.yaml", cluster(body))
	return c
}

func (c lockedConfig) write(name, text string) {
	c.Helper()
	require.NoError(c, os.MkdirAll(filepath.Dir(filepath.Join(c.dir, name)), 0o700))
	require.NoError(c, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

func (c lockedConfig) lock(update bool) compile.Locked {
	c.Helper()
	locked, err := compile.Lock(c.Context(), c.dir, config.Options{}, update)
	require.NoError(c, err)
	return locked
}

func (c lockedConfig) compiled() *compile.Compiled {
	c.Helper()
	loaded, err := compile.Load(c.dir)
	require.NoError(c, err)
	compiled, err := compile.Compile(loaded)
	require.NoError(c, err)
	return compiled
}

func (c lockedConfig) requireError(want string) {
	c.Helper()
	_, err := compile.Load(c.dir)
	require.ErrorContains(c, err, want)
}

// chartWithText is a chart of one ConfigMap that says something.
func chartWithText(t *testing.T, name, version, text string) []byte {
	t.Helper()
	return charttest.Pack(t, name, version, "templates/a.yaml",
		fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {says: %s, version: {{ .Chart.Version }}, image: \"{{ .Values.image }}\"}}", name, text))
}

// A chart of a repository and one of a registry are locked by a command, and compiled from the lock: the same bytes each time,
// without a network once they were fetched, and whatever newer versions there are.
func TestChartsAreLockedAndCompiledOffline_H6_D8(t *testing.T) {
	repository, registry := charttest.NewRepository(t), charttest.NewRegistry(t)
	c := newLocked(t, fmt.Sprintf(`kubernetes: {helm: {chart: web, repository: %q, version: ^1.4, values: {image: "web:${{ version }}"}}}
perReleaseChannel: [{releaseChannel: prod, kubernetes: {helm: {version: 1.4.2}}}]
---
{apiVersion: converge/v1, kind: Service, name: cache, kubernetes: {helm: {chart: "oci://%s/charts/cache", version: 2.x}}}
`, repository.URL, registry.Host))
	repository.Add("web", "1.4.2", chartWithText(t, "web", "1.4.2", "old"))
	repository.Add("web", "1.4.3", chartWithText(t, "web", "1.4.3", "new"))
	digest := registry.Push(t, "charts/cache", "2.1.0", chartWithText(t, "cache", "2.1.0", "cached"))
	c.requireError(`converge.yaml:14:28: kubernetes.helm.chart: chart web ^1.4 of ` + repository.URL + ` is not in converge.lock; expected an entry written by "converge config lock" [not-locked]`)
	require.Empty(t, repository.Asked()) // compiling resolves nothing

	locked := c.lock(false)
	require.True(t, locked.Written)
	require.Len(t, locked.Changes, 3)
	require.Equal(t, fmt.Sprintf("oci://%s/charts/cache 2.x: 2.1.0, %s", registry.Host, digest), locked.Changes[0])
	first := c.compiled()
	objects := objectsOf(t, first, "staging", incarnation.RenderInput{Version: "v7"})
	require.Contains(t, objects[0], `"image":"web:v7","says":"new","version":"1.4.3"`)
	require.Contains(t, objectsOf(t, first, "prod", incarnation.RenderInput{Version: "v7"})[0], `"says":"old","version":"1.4.2"`)

	repository.Add("web", "1.4.4", chartWithText(t, "web", "1.4.4", "newest"))
	require.False(t, c.lock(false).Written)
	repository.Close()
	registry.Close()
	require.Equal(t, first.Incarnation.Hash(), c.compiled().Incarnation.Hash())
	text, err := os.ReadFile(filepath.Join(c.dir, "converge.lock"))
	require.NoError(t, err)
	require.Contains(t, string(text), "    wanted: ^1.4\n    version: 1.4.3\n    url: "+repository.URL+"/web-1.4.3.tgz\n    digest: sha256:")
}

// What is looked up again is said, a version that has other bytes above all.
func TestUpdatingALock_H6(t *testing.T) {
	repository := charttest.NewRepository(t)
	c := newLocked(t, fmt.Sprintf("kubernetes: {helm: {chart: web, repository: %q, version: ^1.0}}\n---\n"+
		"{apiVersion: converge/v1, kind: Service, name: api, kubernetes: {helm: {chart: api, repository: %q, version: 1.0.0}}}\n", repository.URL, repository.URL))
	repository.Add("web", "1.0.0", chartWithText(t, "web", "1.0.0", "a"))
	was := chartWithText(t, "api", "1.0.0", "a")
	repository.Add("api", "1.0.0", was)
	c.lock(false)
	repository.Add("web", "1.1.0", chartWithText(t, "web", "1.1.0", "a"))
	is := chartWithText(t, "api", "1.0.0", "b")
	repository.Add("api", "1.0.0", is)
	require.False(t, c.lock(false).Written)
	require.Equal(t, []string{
		"api 1.0.0 of " + repository.URL + ": the same version has another digest, " + charts.Digest(is) + " instead of " + charts.Digest(was),
		"web ^1.0 of " + repository.URL + ": 1.1.0 instead of 1.0.0, " + charts.Digest(chartWithText(t, "web", "1.1.0", "a")),
	}, c.lock(true).Changes)
	c.write("converge.yaml", cluster(fmt.Sprintf("kubernetes: {helm: {chart: web, repository: %q, version: ^1.0}}\n", repository.URL)))
	require.Equal(t, []string{"api 1.0.0 of " + repository.URL + ": no longer used"}, c.lock(false).Changes)
}

// A chart whose bytes are others than those that were locked is refused, naming both digests and the command.
func TestSwappedChartIsRefused_H6_G4(t *testing.T) {
	repository := charttest.NewRepository(t)
	c := newLocked(t, fmt.Sprintf("kubernetes: {helm: {chart: web, repository: %q, version: 1.0.0}}\n", repository.URL))
	good, evil := chartWithText(t, "web", "1.0.0", "good"), chartWithText(t, "web", "1.0.0", "evil")
	repository.Add("web", "1.0.0", good)
	c.lock(false)
	repository.Add("web", "1.0.0", evil)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	c.requireError(fmt.Sprintf(`kubernetes.helm.chart: web 1.0.0 of %s has the digest %s, and in converge.lock it is %s; expected the locked chart; run "converge config lock --update" once you know why it changed [chart]`,
		repository.URL, charts.Digest(evil), charts.Digest(good)))
	text, err := os.ReadFile(filepath.Join(c.dir, "converge.lock"))
	require.NoError(t, err)
	c.write("converge.lock", strings.Replace(string(text), "lockVersion: converge/v1", "lockVersion: converge/v2", 1))
	c.requireError(`converge.lock cannot be used: its lockVersion is "converge/v2"; this Converge supports converge/v1; expected an entry written by "converge config lock" [lock]`)
}

// A chart is the one that it is said to be, whole, and no bomb; nothing is locked otherwise.
func TestHostileChartsAreNotLocked_H6_G4(t *testing.T) {
	repository := charttest.NewRepository(t)
	c := newLocked(t, fmt.Sprintf("kubernetes: {helm: {chart: web, repository: %q, version: 1.0.0}}\n", repository.URL))
	chart := "{apiVersion: v2, name: web, version: 1.0.0}"
	for want, data := range map[string][]byte{
		"the name of the chart is evil 1.0.0; expected web 1.0.0": charttest.Pack(t, "evil", "1.0.0"),
		"the name of the chart is web 9.0.0; expected web 1.0.0":  charttest.Pack(t, "web", "9.0.0"),
		"this is not a packed chart":                              []byte("no archive"),
		"chart illegally references parent":                       charttest.Archive(t, "", "web/Chart.yaml", chart, "web/../../../etc/cron.d/evil", "x"),
		"chart illegally references parent directory":             charttest.Archive(t, "", "web/Chart.yaml", chart, `web/..\..\evil`, "x"),
		"larger than": charttest.Pack(t, "web", "1.0.0", "values.yaml", "a: "+strings.Repeat("0", 120<<20)),
		"needs db, which is not in its charts directory":    charttest.Archive(t, "web", "Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0, dependencies: [{name: db, version: '1', repository: 'https://charts.example.org'}]}"),
		"web is a library, which has no objects of its own": charttest.Archive(t, "web", "Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0, type: library}"),
	} {
		repository.Add("web", "1.0.0", data)
		_, err := compile.Lock(t.Context(), c.dir, config.Options{}, true)
		require.ErrorContains(t, err, "kubernetes.helm: chart web 1.0.0 of "+repository.URL+" cannot be locked: ")
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, filepath.Join(c.dir, "converge.lock"))
	}
}

// Charts see the version and the APIs that the runtime of a channel says; two channels on two runtimes get what is theirs.
func TestCapabilitiesOfARuntime_H6_D8(t *testing.T) {
	text := strings.Replace(cluster("kubernetes: {helm: {chart: chart}}\n"), "{name: eks, namespace: shop}", "{name: old, namespace: shop}", 1)
	text = strings.Replace(text, "---\n{apiVersion: converge/v1, kind: Runtime", "---\n{apiVersion: converge/v1, kind: Runtime, name: old, kubernetes: {context: old, kubeVersion: v1.31.4, apiVersions: [monitoring.coreos.com/v1/ServiceMonitor, shop.dev/v1]}}\n---\n{apiVersion: converge/v1, kind: Runtime", 1)
	chart := chartFiles("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {kube: \"{{ .Capabilities.KubeVersion }}\", monitor: \"{{ .Capabilities.APIVersions.Has \"monitoring.coreos.com/v1/ServiceMonitor\" }}\", shop: \"{{ .Capabilities.APIVersions.Has \"shop.dev/v1\" }}\"}}")
	loaded, err := intenttest.Load(text, chart...)
	require.NoError(t, err)
	compiled, err := compile.Compile(loaded)
	require.NoError(t, err)
	in := incarnation.RenderInput{Version: "v1"}
	require.Contains(t, objectsOf(t, compiled, "prod", in)[0], `"kube":"v1.31.4","monitor":"true","shop":"true"`)
	require.Contains(t, objectsOf(t, compiled, "staging", in)[0], `"kube":"v1.36.0","monitor":"false","shop":"false"`)

	chart[1] = "{apiVersion: v2, name: web, version: 1.0.0, kubeVersion: '>=1.34.0-0'}"
	_, err = intenttest.Load(text, chart...)
	require.ErrorContains(t, err, "chart web is for Kubernetes >=1.34.0-0, and is rendered for v1.31.4 in release channel prod; expected the cluster's own version as kubernetes.kubeVersion of its runtime")
}

// capabilitiesOf answers what a cluster is, and notes which were asked.
func capabilitiesOf(version string, names *[]string, apis ...string) func([]entities.RuntimeDefinition) ([]charts.Capabilities, error) {
	return func(all []entities.RuntimeDefinition) (out []charts.Capabilities, err error) {
		served := map[string][]string{"v1": {"ConfigMap"}}
		for _, api := range apis {
			served[path.Dir(api)] = append(served[path.Dir(api)], path.Base(api))
		}
		for _, d := range all {
			*names = append(*names, d.Name)
			out = append(out, charts.CapabilitiesOf(d.Name, version, served))
		}
		return out, nil
	}
}

// payloadOf is the digest of the payload of a service in production.
func payloadOf(t *testing.T, compiled *compile.Compiled, service string) string {
	t.Helper()
	payloads, err := incarnation.Render(compiled.Incarnation, service, incarnation.RenderInput{Version: "v1"})
	require.NoError(t, err)
	return entities.DigestOf(payloads["prod"])
}

// What was captured of a cluster is what charts see of it, behind what its runtime declares; compiling asks nobody. What renders
// the same keeps its digest.
func TestCapturedCapabilitiesAreCompiled_H6_D8(t *testing.T) {
	c := newLocked(t, "kubernetes: {helm: {chart: chart}}\n---\n{apiVersion: converge/v1, kind: Service, name: plain, kubernetes: {helm: {chart: plain}}}\n")
	c.write("chart/Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0, kubeVersion: '<1.35.0-0'}")
	c.write("chart/templates/a.yaml", `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {kube: "{{ .Capabilities.KubeVersion }}", monitor: "{{ .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor" }}", apps: "{{ .Capabilities.APIVersions.Has "apps/v1" }}"}}`)
	c.write("plain/Chart.yaml", "{apiVersion: v2, name: plain, version: 1.0.0}")
	c.write("plain/templates/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}")
	c.requireError(`is for Kubernetes <1.35.0-0, and is rendered for v1.36.0 in release channels`)
	c.requireError(`or an entry written by "converge config lock --capabilities"`)

	var names []string
	locked := func(refresh bool, fetch func([]entities.RuntimeDefinition) ([]charts.Capabilities, error), only ...string) compile.Locked {
		t.Helper()
		names = nil
		got, err := compile.LockCapabilities(c.dir, config.Options{}, compile.Capture{Runtimes: only, Refresh: refresh, Fetch: fetch})
		require.NoError(t, err)
		return got
	}
	got := locked(false, capabilitiesOf("v1.33.1", &names, "monitoring.coreos.com/v1/ServiceMonitor"))
	require.Equal(t, []any{[]string{"eks"}, true, []string{"capabilities of eks: v1.33.1, 4 APIs"}}, []any{names, got.Written, got.Changes})
	first := c.compiled()
	in := incarnation.RenderInput{Version: "v1"}
	require.Contains(t, objectsOf(t, first, "prod", in)[0], `"apps":"false","kube":"v1.33.1","monitor":"true"`)

	require.False(t, locked(false, capabilitiesOf("v1.34.0", &names)).Written, "captured capabilities stay")
	require.Empty(t, names)
	got = locked(true, capabilitiesOf("v1.34.0", &names, "apps/v1/Deployment"), "eks")
	require.Equal(t, []string{"capabilities of eks: v1.34.0 instead of v1.33.1, 2 APIs added (apps/v1), 2 APIs removed (monitoring.coreos.com/v1)"}, got.Changes)
	second := c.compiled()
	require.Contains(t, objectsOf(t, second, "prod", in)[0], `"apps":"true","kube":"v1.34.0","monitor":"false"`)
	require.Equal(t, payloadOf(t, first, "plain"), payloadOf(t, second, "plain"), "an unchanged rendering keeps its digest")
	require.NotEqual(t, payloadOf(t, first, "web"), payloadOf(t, second, "web"))
	require.False(t, c.lock(true).Written, "charts are resolved, and clusters are not queried")

	file := filepath.Join(c.dir, "converge.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	c.write("converge.yaml", strings.Replace(string(text), "name: eks, kubernetes: {", "name: eks, kubernetes: {kubeVersion: v1.30.0", 1))
	require.Contains(t, objectsOf(t, c.compiled(), "prod", in)[0], `"apps":"true","kube":"v1.30.0"`, "declarations of the runtime have precedence")

	c.write("converge.yaml", strings.ReplaceAll(string(text), "eks", "gke"))
	require.Equal(t, []string{"capabilities of eks: no longer used"}, c.lock(false).Changes)
	remaining, err := os.ReadFile(filepath.Join(c.dir, "converge.lock"))
	require.NoError(t, err)
	require.NotContains(t, string(remaining), "capabilities:")
}

// A cluster that does not answer leaves the lock as it is, and so does one that says what makes no sense; a damaged lock is refused
// by the command and where it is compiled.
func TestCaptureIsAllOrNothing_H6(t *testing.T) {
	c := newLocked(t, "kubernetes: {helm: {chart: chart}}\n")
	c.write("chart/Chart.yaml", "{apiVersion: v2, name: web, version: 1.0.0}")
	c.write("chart/templates/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	var names []string
	capture := func(fetch func([]entities.RuntimeDefinition) ([]charts.Capabilities, error), only ...string) error {
		_, err := compile.LockCapabilities(c.dir, config.Options{}, compile.Capture{Runtimes: only, Fetch: fetch})
		return err
	}
	require.ErrorContains(t, capture(func([]entities.RuntimeDefinition) ([]charts.Capabilities, error) {
		return nil, errors.New("the server does not answer")
	}), "the server does not answer")
	require.ErrorContains(t, capture(capabilitiesOf("newest", &names)), `invalid Kubernetes version "newest"`)
	require.ErrorContains(t, capture(capabilitiesOf("v1.34.0", &names), "edge"), "the configuration has no runtime edge on Kubernetes; expected one of eks")
	require.NoFileExists(t, filepath.Join(c.dir, "converge.lock"))

	c.write("converge.lock", "lockVersion: converge/v1\ncharts: []\ncapabilities: [{runtime: eks, kubeVersion: x}]\n")
	require.ErrorContains(t, capture(capabilitiesOf("v1.34.0", &names)), `converge.lock cannot be used: capabilities of eks: invalid Kubernetes version "x"`)
	c.requireError(`kubernetes.helm: converge.lock cannot be used: capabilities of eks: invalid Kubernetes version "x"; expected an entry written by "converge config lock" [lock]`)
}

// Charts of a kustomization are those of the same lock, or lie there; they are rendered where those of services are, and
// patched by the kustomization. Hooks of theirs are hooks.
func TestChartsInAKustomization_H6_D8(t *testing.T) {
	repository := charttest.NewRepository(t)
	c := newLocked(t, "kubernetes: {kustomize: k/top}\n")
	c.write("k/top/kustomization.yaml", "resources: [../base]\nnameSuffix: -top\npatches: [{target: {name: web}, patch: '[{\"op\": \"add\", \"path\": \"/data/more\", \"value\": \"x\"}]'}]\n")
	c.write("k/base/kustomization.yaml", fmt.Sprintf(`
helmGlobals: {chartHome: mine}
helmCharts:
- {name: web, repo: %q, version: ^1.0, releaseName: shop, valuesFile: values.yaml, valuesInline: {image: "web:${{ version }}", count: 3}}
- {name: own, releaseName: own, namespace: there, includeCRDs: true, kubeVersion: v1.30.0, apiVersions: [shop.dev/v1]}
`, repository.URL))
	c.write("k/base/values.yaml", "image: none\nsays: hello\n")
	c.write("k/base/mine/own/Chart.yaml", "{apiVersion: v2, name: own, version: 1.0.0}")
	c.write("k/base/mine/own/templates/a.yaml", `{apiVersion: batch/v1, kind: Job, metadata: {name: own, annotations: {helm.sh/hook: pre-upgrade, k: "{{ .Capabilities.KubeVersion.Minor }}-{{ .Release.Namespace }}-{{ .Capabilities.APIVersions.Has "shop.dev/v1" }}"}}}`)
	repository.Add("web", "1.2.0", charttest.Pack(t, "web", "1.2.0", "templates/a.yaml",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {image: "{{ .Values.image }}", says: "{{ .Values.says }}", count: "{{ .Values.count }}", version: {{ .Chart.Version }}, release: {{ .Release.Name }}}}`))
	c.requireError("chart web ^1.0 of " + repository.URL + ` is not in converge.lock; expected an entry written by "converge config lock" [kustomize]`)
	require.Len(t, c.lock(false).Changes, 1)
	first := c.compiled()
	repository.Close()
	require.Equal(t, first.Incarnation.Hash(), c.compiled().Incarnation.Hash())
	all := strings.Join(objectsOf(t, first, "prod", incarnation.RenderInput{Version: "v7"}), "\n")
	require.Contains(t, all, `"data":{"count":"3","image":"web:v7","more":"x","release":"shop","says":"hello","version":"1.2.0"},"kind":"ConfigMap","metadata":{"name":"web-top"}`)
	require.Contains(t, all, `"kind":"Job","metadata":{"annotations":{"converge/hook":"pre-upgrade","k":"30-there-true"},"name":"own-top"}`)

	c.write("k/base/values.yaml", "says: ${{ params.a }}\n")
	c.requireError(`"${{ params.a }}" is not supported in the values of this chart`)
}

// Dependencies of a chart in a directory that are not in its charts directory are locked, at the version of Helm's lock if there is one.
// Those of another directory are read from there.
func TestDependenciesOfAChartDirectoryAreLocked_H6_D8(t *testing.T) {
	repository, registry := charttest.NewRepository(t), charttest.NewRegistry(t)
	c := newLocked(t, "kubernetes: {helm: {chart: charts/web, values: {db: {image: \"db:1\"}}}}\n")
	c.write("charts/web/Chart.yaml", fmt.Sprintf(`
apiVersion: v2
name: web
version: 1.0.0
dependencies:
- {name: db, version: ^1.0, repository: %q}
- {name: db, alias: replica, version: 2.x, repository: %q}
- {name: cache, version: 2.x, repository: "oci://%s/charts"}
- {name: shared, version: 1.0.0, repository: "file://../shared"}
- {name: here, version: 1.0.0, repository: %[1]q}
`, repository.URL, repository.URL, registry.Host))
	c.write("charts/web/Chart.lock", fmt.Sprintf("dependencies:\n- {name: db, version: 1.1.0, repository: %q}\n", repository.URL))
	c.write("charts/web/charts/here/Chart.yaml", "{apiVersion: v2, name: here, version: 1.0.0}")
	c.write("charts/web/charts/here/templates/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: here}}")
	c.write("charts/shared/Chart.yaml", fmt.Sprintf("{apiVersion: v2, name: shared, version: 1.0.0, dependencies: [{name: base, version: 1.x, repository: %q}]}", repository.URL))
	c.write("charts/shared/templates/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared}}")
	for _, version := range []string{"1.1.0", "1.2.0", "2.0.0"} {
		repository.Add("db", version, charttest.Pack(t, "db", version, "templates/a.yaml",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Chart.Name }}-{{ .Chart.Version }}"}, data: {image: "{{ .Values.image }}"}}`))
	}
	repository.Add("base", "1.0.0", chartWithText(t, "base", "1.0.0", "base"))
	registry.Push(t, "charts/cache", "2.1.0", chartWithText(t, "cache", "2.1.0", "cached"))
	c.requireError("charts/web is not a usable chart: charts/web/Chart.yaml: dependency db: chart db 1.1.0 of " + repository.URL +
		` is not in converge.lock; expected an entry written by "converge config lock" [chart]`)
	require.Empty(t, repository.Asked()) // compiling resolves nothing

	require.Len(t, c.lock(false).Changes, 4)
	first := c.compiled()
	all := strings.Join(objectsOf(t, first, "prod", incarnation.RenderInput{Version: "v7"}), "\n")
	for _, want := range []string{`"name":"here"`, `"name":"shared"`, `"name":"base"`, `"name":"cache"`, `"data":{"image":"db:1"},"kind":"ConfigMap","metadata":{"name":"db-1.1.0"}`, `"name":"replica-2.0.0"`} {
		require.Contains(t, all, want)
	}
	repository.Close()
	registry.Close()
	require.Equal(t, first.Incarnation.Hash(), c.compiled().Incarnation.Hash())
	require.False(t, c.lock(false).Written)
}

// A dependency reads nothing outside of the configuration, and nothing is fetched that is no repository.
func TestHostileDependenciesOfChartsAreRefused_H6_G4(t *testing.T) {
	for repository, want := range map[string]string{
		"file://../../outside":        `"../../outside" is not a path inside the configuration`,
		"file:///etc":                 `"/etc" is not a path inside the configuration`,
		"file://.":                    "it depends on more than 16 others",
		"@stable":                     `the repository "@stable" is a name in the settings of Helm`,
		"http://10.0.0.1/charts":      "http:// is not supported",
		"https://me:secret@shop.test": "a password or token that everybody could read",
	} {
		c := newLocked(t, "kubernetes: {helm: {chart: web}}\n")
		c.write("web/Chart.yaml", fmt.Sprintf("{apiVersion: v2, name: web, version: 1.0.0, dependencies: [{name: db, version: 1.x, repository: %q}]}", repository))
		require.Empty(t, c.lock(false).Changes, repository)
		c.requireError(want)
	}
}
