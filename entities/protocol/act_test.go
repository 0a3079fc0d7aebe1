package protocol

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The example of RFC 8785, 3.2.2, and what encoding/json does differently.
func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001], "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`: `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\ufb33": 1, "\ud83d\ude00": 2, "\u20ac": 3, "1": 4, "\r": 5}`: "{\"\\r\":5,\"1\":4,\"€\":3,\"😀\":2,\"\ufb33\":1}",
		`["<&>\u2028", -0.0, 1e21, 100000000000000000000]`:               "[\"<&>\u2028\",0,1e+21,100000000000000000000]",
	} {
		got, err := canonicalJSON([]byte(in))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	_, err := canonicalJSON([]byte(`{`))
	require.Error(t, err)
}

// The vectors of docs/protocol.md: the digest of each, computed by another program.
func TestDigestOfAnAct_G3(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "protocol.md"))
	require.NoError(t, err)
	_, vectors, found := strings.Cut(string(page), "\n## The digest of an act\n")
	require.True(t, found)
	_, vectors, _ = strings.Cut(vectors, "```\n")
	vectors, _, _ = strings.Cut(vectors, "```")
	lines := strings.Split(strings.TrimSpace(vectors), "\n")
	require.Len(t, lines, 4)
	for n := 0; n < len(lines); n += 2 {
		var act Act
		require.NoError(t, json.Unmarshal([]byte(lines[n]), &act))
		digest, err := act.Digest()
		require.NoError(t, err)
		require.Equal(t, lines[n+1], digest)
		other := act
		other.NotAfter = act.NotAfter.In(time.FixedZone("", 3600)).Add(time.Millisecond)
		same, err := other.Digest()
		require.NoError(t, err)
		require.Equal(t, digest, same, "whole seconds, UTC")
		other.Workflows = []string{"service/shop/web", "service/shop/db"}
		_, err = other.Digest()
		require.ErrorContains(t, err, "expected at least one, sorted")
		other.Workflows = []string{"service/shop/db"}
		changed, err := other.Digest()
		require.NoError(t, err)
		require.NotEqual(t, digest, changed)
	}
}
