package intent

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// compileText compiles one file, with others beside it as name, content pairs.
func compileText(t testing.TB, text string, others ...string) *Compiled {
	t.Helper()
	config, err := loadText(text, others...)
	require.NoError(t, err)
	compiled, err := Compile(config)
	require.NoError(t, err)
	return compiled
}

func loadText(text string, others ...string) (*Loaded, error) {
	files := fstest.MapFS{"shop.converge.yaml": {Data: []byte(text)}}
	for i := 0; i+1 < len(others); i += 2 {
		files[others[i]] = &fstest.MapFile{Data: []byte(others[i+1])}
	}
	return LoadFS(files, "/config", Options{AllowFake: true})
}

func shopText(t testing.TB) string {
	text, err := os.ReadFile("testdata/shop/converge.yaml")
	require.NoError(t, err)
	return string(text)
}

const shopRules = "{}\n"

func shop(t testing.TB, replacements ...string) *Compiled {
	t.Helper()
	text := shopText(t)
	for i := 0; i+1 < len(replacements); i += 2 {
		require.Contains(t, text, replacements[i])
		text = strings.Replace(text, replacements[i], replacements[i+1], 1)
	}
	return compileText(t, text, "routes/rules.json", shopRules)
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	data, ok := v.([]byte)
	if !ok {
		var err error
		data, err = json.Marshal(v)
		require.NoError(t, err)
	}
	var b bytes.Buffer
	require.NoError(t, json.Indent(&b, data, "", "  "))
	return append(bytes.TrimSpace(b.Bytes()), '\n')
}

func line(t *testing.T, v any) []byte {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

func compileDir(t testing.TB, dir string) *Compiled {
	t.Helper()
	config, err := Load(dir)
	require.NoError(t, err)
	compiled, err := Compile(config)
	require.NoError(t, err)
	return compiled
}

// one is an application with one service whose body is given, and two channels.
func one(body string) string {
	return `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: staging, labels: {tier: staging}, runtimes: [{name: r}], constants: {zone: s.dev, port: "80", empty: ""}}
- {name: prod, labels: {tier: prod}, runtimes: [{name: r}], constants: {zone: p.com, port: "81", empty: ""}}
---
{apiVersion: converge/v1, kind: Runtime, name: r, custom: {apply: {command: [x]}}}
---
apiVersion: converge/v1
kind: Service
name: web
` + body
}

const typedService = `
parameters:
- {name: text, type: string, default: a}
- {name: count, type: int}
- {name: ratio, type: float, default: 1.5}
- {name: debug, type: bool, default: false}
- {name: secret, type: secretRef, default: {workerEnv: OLD}}
custom: {env: {A: "${{ params.text }} ${{ params.count }} ${{ params.ratio }} ${{ params.debug }}", S: "${{ params.secret }}"}}
`
