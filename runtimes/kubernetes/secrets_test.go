package kubernetes

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// A key that is no longer declared is removed, and a changed one is restored, also when it is declared in plain text.
func TestPlainDataOfASecretIsDeclaredLikeAnyOther_A12(t *testing.T) {
	d := newTestCluster(t).recording()
	d.mustApply(d.instance("v1", "{apiVersion: v1, kind: Secret, metadata: {name: key}, data: {a: eA==}, stringData: {b: plain, c: gone}}"))
	require.Equal(t, map[string]any{"a": "eA==", "b": "cGxhaW4=", "c": "Z29uZQ=="}, d.liveObject("Secret", "key").Object["data"])
	v2 := d.instance("v2", "{apiVersion: v1, kind: Secret, metadata: {name: key}, data: {a: eA==}, stringData: {b: plain}}")
	d.mustApply(v2)
	require.Equal(t, map[string]any{"a": "eA==", "b": "cGxhaW4="}, d.liveObject("Secret", "key").Object["data"])
	d.patchAs("kubectl-edit", "Secret", "key", `{"data": {"b": "enp6"}}`)
	d.waitWatchedAs("Secret", "key")
	require.Equal(t, []string{"configured Secret/key (data.b)", "reverted data.b of Secret/key, written by kubectl-edit"}, d.mustApply(v2))
}

// What is wrong with a Secret is reported without its values.
func TestAWrongSecretIsReportedWithoutItsValues(t *testing.T) {
	for text, why := range map[string]string{
		"data: {a: 424242}":       "Secret key: data.a is not a string; put it in quotes",
		"stringData: {a: 424242}": "Secret key: stringData.a is not a string; put it in quotes",
		`data: {a: "424242!"}`:    "Secret key: data.a is not base64; stringData takes plain text",
		"data: [424242]":          "Secret key: data is not a mapping",
	} {
		raw, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: Secret, metadata: {name: key}, " + text + "}"))
		require.NoError(t, err)
		_, err = parse(json.RawMessage(raw))
		require.EqualError(t, err, why)
	}
}

// A field that a chart leaves empty is not declared, and stays with the controller that fills it in.
func TestNullIsNotDeclared_A12(t *testing.T) {
	for text, want := range map[string]string{
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: null}, data: {b: null, c: ''}, x: [{y: null}]}": `{"apiVersion":"v1","data":{"c":""},"kind":"ConfigMap","metadata":{"name":"a"},"x":[{}]}`,
		"{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: null}":                                        `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":null}`,
	} {
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		parsed, err := parse(json.RawMessage(raw))
		require.NoError(t, err)
		got, err := json.Marshal(parsed.Object)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
}
