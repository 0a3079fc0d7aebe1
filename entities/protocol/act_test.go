package protocol

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The example of RFC 8785, 3.2.2, and what encoding/json does differently.
func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001], "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`: `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\ufb33": 1, "\ud83d\ude00": 2, "\u20ac": 3, "1": 4, "\r": 5}`: "{\"\\r\":5,\"1\":4,\"€\":3,\"😀\":2,\"\ufb33\":1}",
		`["<&>\u2028", -0.0, 1e21, 1e20]`:                                "[\"<&>\u2028\",0,1e+21,100000000000000000000]",
	} {
		got, err := canonicalJSON([]byte(in))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	_, err := canonicalJSON([]byte(`{`))
	require.Error(t, err)
}

// The vectors of docs/protocol.md: the nonce of each, computed by another program.
func TestNonceOfAnAct_G3(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	require.NoError(t, err)
	_, vectors, found := strings.Cut(string(page), "\n## A token for one act\n")
	require.True(t, found)
	_, vectors, _ = strings.Cut(vectors, "```text\n")
	vectors, _, _ = strings.Cut(vectors, "```")
	lines := strings.Split(strings.TrimSpace(vectors), "\n")
	require.Len(t, lines, 4)
	for n := 0; n < len(lines); n += 2 {
		var act Act
		require.NoError(t, json.Unmarshal([]byte(lines[n]), &act))
		nonce, err := act.Nonce()
		require.NoError(t, err)
		require.Equal(t, lines[n+1], nonce)

		with := act
		with.Request = json.RawMessage(strings.Replace(string(act.Request), "{", `{"Token": "x", `, 1))
		same, err := with.Nonce()
		require.NoError(t, err)
		require.Equal(t, nonce, same, "the token is no part of the act")

		for field, change := range map[string]func(*Act){
			"namespace": func(a *Act) { a.Namespace += "2" },
			"receiver":  func(a *Act) { a.Receiver += "2" },
			"verb":      func(a *Act) { a.Verb = Reject },
			"request":   func(a *Act) { a.Request = json.RawMessage(strings.Replace(string(a.Request), `"4a1`, `"4a2`, 1)) },
		} {
			other := act
			change(&other)
			changed, err := other.Nonce()
			require.NoError(t, err)
			require.NotEqual(t, nonce, changed, field)
		}
	}
}

func TestActWithoutANonce_G3(t *testing.T) {
	for payload, want := range map[string]string{
		`{"version": "v8"}`: `needs the field "requestId"`,
		`{"requestId": 7}`:  `needs the field "requestId"`,
		`[]`:                "no JSON object",
		`{"requestId": "a", "parameters": {"n": 9007199254740992}}`: "the number 9007199254740992 has no digest",
		`{"requestId": "a", "parameters": {"n": 1e400}}`:            "has no digest",
	} {
		_, err := Act{Namespace: "n", Receiver: "r", Verb: Approve, Request: json.RawMessage(payload)}.Nonce()
		require.ErrorContains(t, err, want, payload)
	}
}
