package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/charttest"
)

// Charts that Argo CD and Flux fetch from a repository or a registry are locked by the import, and compile from the lock.
func TestInitImportsChartsOfRepositories_H6(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("NETRC", filepath.Join(t.TempDir(), "none"))
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	repository, registry := charttest.NewRepository(t), charttest.NewRegistry(t)
	for _, version := range []string{"1.2.3", "1.3.0", "2.0.0"} {
		chart := charttest.Pack(t, "web", version, "templates/a.yaml",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {version: "{{ .Chart.Version }}", a: "{{ .Values.a }}"}}`)
		repository.Add("web", version, chart)
		registry.Push(t, "charts/web", version, chart)
	}
	argo := func(source string) string {
		return "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: web}, spec: {destination: {namespace: web}, syncPolicy: {automated: {}}, source: " + source + "}}"
	}
	flux := func(url, rest string) string {
		return fmt.Sprintf("{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: charts, namespace: web}, spec: {url: %q}}\n---\n"+
			"{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: web, namespace: web}, spec: {%s, values: {a: b}}}", url, rest)
	}
	byName := `chart: {spec: {chart: web, version: "1.x", sourceRef: {kind: HelmRepository, name: charts}}}`
	for name, row := range map[string]struct{ from, text, version string }{
		"argocd, a repository": {"argocd", argo(fmt.Sprintf(`{repoURL: %q, chart: web, targetRevision: 1.2.3, helm: {valuesObject: {a: b}}}`, repository.URL)), "1.2.3"},
		"argocd, a registry":   {"argocd", argo(fmt.Sprintf(`{repoURL: "%s/charts", chart: web, targetRevision: 1.*, helm: {valuesObject: {a: b}}}`, registry.Host)), "1.3.0"},
		"flux, a repository":   {"flux", flux(repository.URL, byName), "1.3.0"},
		"flux, a registry":     {"flux", flux("oci://"+registry.Host+"/charts", byName), "1.3.0"},
		"flux, a reference": {"flux", flux("unused", `chartRef: {kind: OCIRepository, name: web}`) + fmt.Sprintf(
			"\n---\n{apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, metadata: {name: web, namespace: web}, spec: {url: %q, ref: {tag: 1.2.3}}}", "oci://"+registry.Host+"/charts/web"), "1.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "shop")
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(row.text), 0o600))
			code, output := newConsole(t, nil).run(t, "config init "+dir+" --from "+row.from)
			require.Zero(t, code, output)
			require.NotContains(t, output, "! ", "something is omitted")
			lock, err := os.ReadFile(filepath.Join(dir, "converge.lock"))
			require.NoError(t, err)
			require.Contains(t, string(lock), row.version)
			code, output = newConsole(t, nil).run(t, "config validate "+dir)
			require.Zero(t, code, output)
			text, err := os.ReadFile(filepath.Join(dir, "converge.yaml"))
			require.NoError(t, err)
			require.Contains(t, string(text), "a: b")
		})
	}
}
