package verb

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A payload means the same to every reader, and can be read again from the state.
func TestCheckFormRejectsAmbiguousJSON(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	for _, c := range []struct{ name, payload, why string }{
		{"plain", `{"by":"ann","reason":"x"}`, ""},
		{"a scalar", `7`, ""},
		{"twice", `{"by":"alice","by":"mallory"}`, `payload of pause: field "by" occurs twice`},
		{"twice, in capitals", `{"by":"alice","BY":"mallory"}`, `"BY" occurs twice`},
		{"twice, as encoding/json folds", `{"token":"a","to\u212aen":"b"}`, "occurs twice"},
		{"twice, escaped", `{"by":"alice","\u0062y":"mallory"}`, `"by" occurs twice`},
		{"twice, below", `{"identity":{"issuer":"a","Issuer":"b"}}`, `"Issuer" occurs twice`},
		{"twice, in a list", `{"grants":[{"to":["a"]},{"to":["a"],"to":["b"]}]}`, `"to" occurs twice`},
		{"in two objects", `{"a":{"by":"x"},"b":{"by":"y"}}`, ""},
		{"parameters that differ by case", `{"parameters":{"Size":"1","size":"2"}}`, ""},
		{"a parameter twice", `{"channelParameters":{"staging":{"size":"1","size":"2"}}}`, `"size" occurs twice`},
		{"no UTF-8", "{\"by\":\"al\xffice\"}", "payload of pause: not UTF-8"},
		{"deep", deep(maxDepth - 1), ""},
		{"too deep", deep(maxDepth), "nested deeper than 100 levels"},
		{"far too deep", deep(9_990), "nested deeper than 100 levels"},
	} {
		require.True(t, json.Valid([]byte(c.payload)), c.name)
		err := CheckForm("pause", json.RawMessage(c.payload))
		if c.why == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorContains(t, err, c.why, c.name)
		}
	}
}

// The placeholder for a payload that is too large is rejected with that reason.
func TestTooLargePayloadIsRejected(t *testing.T) {
	require.EqualError(t, CheckRaw("pause", TooLarge(1<<20)), "payload of pause: too large: 1048576 bytes; at most 65536")
}
