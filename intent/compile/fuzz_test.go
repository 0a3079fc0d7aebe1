package compile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

// FuzzLoad: loading never panics; whatever is wrong has a position, a code and a sentence; and what
// loads compiles, to the same bytes each time, and renders.
func FuzzLoad(f *testing.F) {
	archives, err := filepath.Glob("testdata/malformed/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data)
	}
	for _, name := range []string{"testdata/shop/converge.yaml", "../../examples/hello/hello.converge.yaml", "../../examples/exit-code/site.converge.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(intenttest.One(intenttest.TypedService)))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 20_000 {
			t.Skip()
		}
		files := fstest.MapFS{"a/x.converge.yaml": {Data: text}, "a/routes/rules.json": {Data: []byte("{}")}, "a/x": {Data: text}}
		config, err := compile.LoadFS(files, "/config", config.Options{AllowFake: true, Client: &http.Client{Transport: noNetwork{}}})
		if err != nil {
			wantPositions(t, err)
			return
		}
		wantSame(t, config)
	})
}

type noNetwork struct{}

func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no network in this test")
}

// FuzzManifest: the same of a manifest, which is also a chart's template and part of a kustomization;
// and what is filled in is JSON.
func FuzzManifest(f *testing.F) {
	archives, err := filepath.Glob("testdata/malformed/kubernetes-*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files[1:] {
			f.Add(file.Data)
		}
	}
	f.Add([]byte(deployment))
	sources := []string{"manifests: [a.yaml]", "kustomize: .", "helm: {chart: chart, values: {tag: '${{ version }}'}}"}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 20_000 {
			t.Skip()
		}
		for _, source := range sources {
			config, err := compile.LoadFS(fstest.MapFS{
				"converge.yaml": {Data: []byte(cluster("parameters: [{name: replicas, type: int, default: 2}]\nkubernetes: {" + source + "}"))},
				"a.yaml":        {Data: text}, "kustomization.yaml": {Data: []byte("resources: [a.yaml]")},
				"chart/Chart.yaml": {Data: []byte("{apiVersion: v2, name: web, version: 1.0.0}")}, "chart/templates/a.yaml": {Data: text},
			}, "/config", config.Options{})
			if err != nil {
				wantPositions(t, err)
				continue
			}
			wantSame(t, config)
			compiled, err := compile.Compile(config)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objectsOf(t, compiled, "prod", incarnation.RenderInput{Version: "v1"}) {
				if !json.Valid([]byte(o)) {
					t.Fatalf("no JSON: %s", o)
				}
			}
		}
	})
}

func wantPositions(t *testing.T, err error) {
	var problems strict.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("no problems: %v", err)
	}
	for _, p := range problems {
		if p.File == "" || p.Line < 1 || p.Column < 1 || p.Code == "" || p.Code == "internal" || p.Message == "" {
			t.Fatalf("no position or reason: %#v", p)
		}
	}
}

func wantSame(t *testing.T, config *compile.Loaded) {
	first, err := compile.Compile(config)
	if err != nil {
		t.Fatalf("loads but does not compile: %v", err)
	}
	second, err := compile.Compile(config)
	if err != nil || !bytes.Equal(first.Incarnation.Bytes(), second.Incarnation.Bytes()) {
		t.Fatalf("compiles differently: %v", err)
	}
	again, err := incarnation.Parse(first.Incarnation.Bytes())
	if err != nil || again.Hash() != first.Incarnation.Hash() {
		t.Fatalf("cannot be read back: %v", err)
	}
	if d, err := incarnation.Diff(first.Incarnation, second.Incarnation); err != nil || !d.Empty() {
		t.Fatalf("differs from itself: %v %v", d, err)
	}
	if _, err := first.Specs(); err != nil && !isFault(err, "spec-too-large") && !isFault(err, "too-many-channels") && !isFault(err, "too-many-checks") {
		t.Fatalf("no specs: %v", err)
	}
	for _, service := range first.Incarnation.Services() {
		_, err := incarnation.Render(first.Incarnation, service, incarnation.RenderInput{Version: "v1"})
		if err != nil && !isFault(err, "missing-parameter") {
			t.Fatalf("does not render: %v", err)
		}
	}
}

func isFault(err error, code string) bool {
	var fault *strict.Fault
	return errors.As(err, &fault) && fault.Code == code
}
