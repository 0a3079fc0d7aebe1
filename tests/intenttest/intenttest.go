// Package intenttest makes configurations and incarnations for the tests of the packages of intent. Only
// tests import it.
package intenttest

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

	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
)

// Update is the flag -update.
var Update = flag.Bool("update", false, "write the golden files anew")

// Golden compares with a file, or writes it with -update.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// Text compiles what Load reads.
func Text(t testing.TB, text string, others ...string) *compile.Compiled {
	t.Helper()
	config, err := Load(text, others...)
	require.NoError(t, err)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	return compiled
}

// Load reads one file, with others beside it as name, content pairs.
func Load(text string, others ...string) (*compile.Loaded, error) {
	files := fstest.MapFS{"shop.converge.yaml": {Data: []byte(text)}}
	for i := 0; i+1 < len(others); i += 2 {
		files[others[i]] = &fstest.MapFile{Data: []byte(others[i+1])}
	}
	return compile.LoadFS(files, "/config", config.Options{AllowFake: true})
}

// ShopText is the configuration of the shop.
func ShopText(t testing.TB) string {
	text, err := os.ReadFile("../compile/testdata/shop/converge.yaml")
	require.NoError(t, err)
	return string(text)
}

// ShopRules is the file beside it.
const ShopRules = "{}\n"

// Shop compiles the shop with replacements in its text: old, new pairs.
func Shop(t testing.TB, replacements ...string) *compile.Compiled {
	t.Helper()
	text := ShopText(t)
	for i := 0; i+1 < len(replacements); i += 2 {
		require.Contains(t, text, replacements[i])
		text = strings.Replace(text, replacements[i], replacements[i+1], 1)
	}
	return Text(t, text, "routes/rules.json", ShopRules)
}

// Indented is a value as JSON for people.
func Indented(t *testing.T, v any) []byte {
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

// Line is a value as JSON in one line.
func Line(t *testing.T, v any) []byte {
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// Dir compiles a directory.
func Dir(t testing.TB, dir string) *compile.Compiled {
	t.Helper()
	config, err := compile.Load(dir)
	require.NoError(t, err)
	compiled, err := compile.Compile(config)
	require.NoError(t, err)
	return compiled
}

// One is an application with one service whose body is given, and two channels.
func One(body string) string {
	return `
apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: staging, labels: {tier: staging}, runtimes: [{name: r}], constants: {zone: s.dev, port: "80", empty: ""}}
- {name: prod, labels: {tier: prod}, runtimes: [{name: r}], constants: {zone: p.com, port: "81", empty: ""}}
---
{apiVersion: converge/v1, kind: Runtime, name: r, custom: {apply: {command: [x]}}}
` + serviceHead + body
}

const serviceHead = `---
apiVersion: converge/v1
kind: Service
name: web
`

// TypedService is a body for One with a parameter of each type.
const TypedService = `
parameters:
- {name: text, type: string, default: a}
- {name: count, type: int}
- {name: ratio, type: float, default: 1.5}
- {name: debug, type: bool, default: false}
- {name: secret, type: secretRef, default: {workerEnv: OLD}}
custom: {env: {A: "${{ params.text }} ${{ params.count }} ${{ params.ratio }} ${{ params.debug }}", S: "${{ params.secret }}"}}
`

// Oncall declares a type of addons, and the rest of One but for a service.
var Oncall = strings.Replace(strings.TrimSuffix(One(""), serviceHead), "releaseChannels:", `addonTypes:
- name: example.com/oncall
  schema: {properties: {team: {type: string}, level: {type: integer, maximum: 5}}, required: [team], additionalProperties: false}
releaseChannels:`, 1)

// OncallService has an addon of that type, which nothing uses.
const OncallService = serviceHead + `
addons: [{name: oncall, type: example.com/oncall, value: {team: checkout, level: 2}}]
custom: {env: {A: "1"}}
`
