package render

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/converge-engine/converge/intent/sources"
)

func TestMain(m *testing.M) {
	Serve()
	inSubprocess()
	os.Exit(m.Run())
}

// inSubprocess has everything rendered by this test program, started once more, which has less time for it.
func inSubprocess() { sources.RenderInSubprocess(self, 3*time.Second) }

// outsideDirectory is what a hostile source would reach: a command that leaves a mark, a `git` that leaves one too, a file that
// is not its own, and a server that counts.
type outsideDirectory struct {
	dir      string
	requests atomic.Int32
	names    *strings.Replacer
}

func newOutside(t testing.TB) *outsideDirectory {
	t.Helper()
	o := &outsideDirectory{dir: t.TempDir()}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o.requests.Add(1)
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	o.names = strings.NewReplacer("@MARK@", filepath.Join(o.dir, "mark"), "@ROOT@", o.dir, "@SERVER@", server.URL, "@SERVERHOST@", strings.TrimPrefix(server.URL, "http://"))
	require.NoError(t, os.WriteFile(filepath.Join(o.dir, "git"), []byte("#!/bin/sh\necho \"$@\" >>"+filepath.Join(o.dir, "mark")+"\n"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(o.dir, "secret.json"), []byte("{}"), 0o600))
	t.Setenv("PATH", o.dir)
	return o
}

// requireUntouched says that nothing outside was reached.
func (o *outsideDirectory) requireUntouched(t testing.TB) {
	t.Helper()
	mark, _ := os.ReadFile(filepath.Join(o.dir, "mark"))
	require.Empty(t, string(mark), "a command was run")
	require.Zero(t, o.requests.Load(), "the network was reached")
}

// renderedFrom renders what an archive holds, a chart or a kustomization.
func renderedFrom(t testing.TB, fsys fs.FS) (string, error) {
	t.Helper()
	if _, err := fs.Stat(fsys, "Chart.yaml"); err != nil {
		text, _, err := sources.Kustomize(fsys, ".", nil)
		return string(text.Data), err
	}
	chart, _, err := sources.ReadChart(fsys, ".", nil)
	if err != nil {
		return "", err
	}
	texts, err := chart.Render(sources.Release{Name: "web", Namespace: "shop"})
	var all strings.Builder
	for _, text := range texts {
		all.Write(text.Data)
	}
	return all.String(), err
}

// Each archive of testdata/hostile is a kustomization or a chart that would run, read or fetch something, or that never
// ends. Its first line says what it is refused with, or that it renders all the same.
func TestHostileSources_G4(t *testing.T) {
	for name, archive := range hostile(t, "*") {
		t.Run(name, func(t *testing.T) {
			o := newOutside(t)
			for i := range archive.Files {
				archive.Files[i].Data = []byte(o.names.Replace(string(archive.Files[i].Data)))
			}
			dir := t.TempDir()
			require.NoError(t, txtar.Write(archive, dir))
			if name == "kustomize-link" {
				require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "link")))
			}
			root, err := os.OpenRoot(dir)
			require.NoError(t, err)
			defer root.Close()
			_, err = renderedFrom(t, root.FS())
			o.requireUntouched(t)
			line, _, _ := strings.Cut(string(archive.Comment), "\n")
			if want, refused := strings.CutPrefix(line, "want: "); refused {
				require.ErrorContains(t, err, o.names.Replace(want))
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// Of each field of a kustomization it is known what it is: one that a later version of Kustomize adds is looked at first.
func TestFieldsOfKustomizations_G4(t *testing.T) {
	known := map[string]string{
		"paths":   "Resources Components Crds Bases Configurations OpenAPI Patches PatchesJson6902 PatchesStrategicMerge Replacements ConfigMapGenerator SecretGenerator",
		"plugins": "Generators Transformers Validators",
		"refused": "HelmChartInflationGenerator",
		"charts":  "HelmGlobals HelmCharts",
		"values": "TypeMeta MetaData NamePrefix NameSuffix Namespace CommonLabels Labels CommonAnnotations Images ImageTags Replicas Vars " +
			"SortOptions GeneratorOptions BuildMetadata",
	}
	var want, got []string
	for _, names := range known {
		want = append(want, strings.Fields(names)...)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[types.Kustomization]()) {
		if len(field.Index) == 1 {
			got = append(got, field.Name)
		}
	}
	require.ElementsMatch(t, want, got)
}

// FuzzKustomization: whatever stands in a kustomization, or in one that it names, nothing outside is reached. It is built
// here and not apart, where much could not be reached anyway.
func FuzzKustomization(f *testing.F) {
	for _, archive := range hostile(f, "kustomize-[^l]*") {
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	o := newOutside(f)
	InProcess()
	f.Cleanup(inSubprocess)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 10_000 || bytes.Count(text, []byte("*")) > 3 {
			t.Skip()
		}
		text = []byte(o.names.Replace(string(text)))
		files := fstest.MapFS{
			"kustomization.yaml": {Data: text}, "base/kustomization.yaml": {Data: text}, "a.yaml": {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")},
			"top/kustomization.yaml": {Data: []byte("resources: [../base]")}, "base/a.yaml": {Data: text},
		}
		for _, dir := range []string{".", "top"} {
			_, _, _ = sources.Kustomize(files, dir, nil)
		}
		o.requireUntouched(t)
	})
}

// FuzzChart: whatever stands in a chart's schema, template or values, nothing outside is reached, and it comes to an end.
func FuzzChart(f *testing.F) {
	for _, archive := range hostile(f, "helm-[^em]*") {
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	o := newOutside(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 10_000 {
			t.Skip()
		}
		text = []byte(o.names.Replace(string(text)))
		chart := []byte("{apiVersion: v2, name: web, version: 1.0.0}")
		for _, files := range []fstest.MapFS{
			{"Chart.yaml": {Data: chart}, "values.schema.json": {Data: text}, "templates/a.yaml": {Data: text}},
			{"Chart.yaml": {Data: chart}, "values.yaml": {Data: text}, "templates/a.yaml": {Data: []byte("{{ toYaml .Values }}")}},
			{"Chart.yaml": {Data: text}, "charts/web/Chart.yaml": {Data: chart}, "charts/web/templates/a.yaml": {Data: text}},
		} {
			_, _ = renderedFrom(t, files)
		}
		o.requireUntouched(t)
	})
}

// hostile are the archives of testdata/hostile of such names.
func hostile(tb testing.TB, pattern string) map[string]*txtar.Archive {
	tb.Helper()
	names, err := filepath.Glob("testdata/hostile/" + pattern + ".txtar")
	require.NoError(tb, err)
	require.NotEmpty(tb, names)
	all := map[string]*txtar.Archive{}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		require.NoError(tb, err)
		all[strings.TrimSuffix(filepath.Base(name), ".txtar")] = archive
	}
	return all
}

// Where the program that renders is missing, that is what is wrong with the source, in one line.
func TestMissingRendererIsReported(t *testing.T) {
	sources.RenderInSubprocess(func() (string, error) {
		return "", errors.New("find converge-render: install it with\n\tgo install it")
	}, time.Second)
	t.Cleanup(inSubprocess)
	_, err := renderedFrom(t, fstest.MapFS{"Chart.yaml": {Data: []byte("{apiVersion: v2, name: web, version: 1.0.0}")}})
	require.EqualError(t, err, "rendering failed: find converge-render: install it with go install it")
}
