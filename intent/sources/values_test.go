package sources

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// readValues reads a text as a file of values; nil with a problem.
func readValues(text []byte) (map[string]any, bool) {
	file := &valuesFile{Decoder: &strict.Decoder{File: "values.yaml"}}
	if err := file.read(text); err != nil || len(file.Problems) > 0 {
		return nil, false
	}
	if file.Values == nil {
		file.Values = map[string]any{}
	}
	return file.Values, true
}

// plain returns values in JSON with every number as an exact fraction, so that 1, 1.0 and 1e0 are equal and no digit counts less.
func plain(t *testing.T, values any) string {
	data, err := json.Marshal(replaced(values, func(v any) any {
		switch n := v.(type) {
		case int64:
			return "number " + new(big.Rat).SetInt64(n).String()
		case uint64:
			return "number " + new(big.Rat).SetUint64(n).String()
		case float64:
			return "number " + new(big.Rat).SetFloat64(n).String()
		}
		return v
	}))
	require.NoError(t, err)
	return string(data)
}

// rounded returns values with every number as float64, the only type of Helm's reader.
func rounded(values any) any {
	return replaced(values, func(v any) any {
		switch n := v.(type) {
		case int64:
			return float64(n)
		case uint64:
			return float64(n)
		}
		return v
	})
}

// valuesOfHelm are values that the readers of YAML 1.1 and 1.2 read differently, and their neighbors.
var valuesOfHelm = []string{
	"y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "true", "True", "TRUE", "false", "False", "FALSE",
	`"y"`, `'no'`, "!!str on", "yEs", "oN", "|\n  no", ">-\n  yes", "null", "Null", "~", `"null"`, "",
	"0777", "0o17", "0O17", "08", "0b101", "-0b11", "0x1F", "-0x1f", "1_000", "+5", "-0", "12e03", ".5", "5.", "-1.5e-3", "1:30", "190:20:30", "1.2.3", "0.10", "1e", "0x", "_1",
	"9007199254740993", "18446744073709551615", "123456789012345678901",
	"2026-11-28", "2001-12-14t21:59:43.10-05:00", ".inf", ".nan", "[y, n, 010]", "{y: n, on: off, 1: a, 1.5: b, 0x10: c, true: d, 2026-01-01: e}", "<<", "=",
	"&a {b: 1}", "{b: 1, <<: {b: 2, c: 3}, c: 4}", "{<<: [{b: 1}, {b: 2, c: 3}]}", "!!float 1", "!!int 7", "!!bool true", "!!binary aGk=",
}

// unusual are tags, which the two parsers show differently, and separators that only Helm splits at.
var unusual = regexp.MustCompile(`!|(?m:^---\S)`)

// FuzzHelmValues_D8: what is read from a file of values is what Helm's own reader reads from it. Only digits that Helm loses are kept.
func FuzzHelmValues_D8(f *testing.F) {
	for _, value := range valuesOfHelm {
		f.Add([]byte("a: " + value + "\n"))
		f.Add([]byte("a: {b: [" + value + "]}\n---\na: {c: " + value + "}\n"))
	}
	f.Add([]byte("x: &x {k: n, 1: 2}\ny: {k: 1, <<: *x}\nz: {<<: *x, k: 3}\n"))
	f.Add([]byte("a: {b: 1, c: 2}\n---\na: {b: null}\n---\n# none\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ours, ok := readValues(text)
		if !ok || unusual.Match(text) {
			t.Skip() // a problem is reported
		}
		helms, err := loader.LoadValues(bytes.NewReader(text))
		if err != nil {
			t.Skip() // it does not go on to render
		}
		require.Equal(t, plain(t, helms), plain(t, rounded(ours)))
	})
}

// Every value of the corpus that Helm reads is read, except those whose digits would be lost.
func TestHelmValuesAreReadAsHelmReadsThem(t *testing.T) {
	refused := map[string]bool{"123456789012345678901": true, "!!binary aGk=": true, "{y: n, on: off, 1: a, 1.5: b, 0x10: c, true: d, 2026-01-01: e}": true}
	for _, value := range valuesOfHelm {
		text := []byte("a: " + value + "\n")
		helms, err := loader.LoadValues(bytes.NewReader(text))
		ours, ok := readValues(text)
		require.Equal(t, err == nil && !refused[value], ok, "%s: %v", value, err)
		if ok {
			require.Equal(t, plain(t, helms), plain(t, rounded(ours)), value)
		}
	}
	ours, ok := readValues([]byte("a: 9007199254740993\nb: 18446744073709551615\nc: {8080: x, on: y}\n"))
	require.True(t, ok)
	require.Equal(t, map[string]any{"a": int64(9007199254740993), "b": uint64(18446744073709551615), "c": map[string]any{"8080": "x", "true": true}}, ours)
}
