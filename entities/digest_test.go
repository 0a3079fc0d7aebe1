package entities

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Content is named by the whole of its digest; what only tells two readings apart by the beginning.
func TestDigestsAreWhole(t *testing.T) {
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{64}$`), DigestOf("a", 1))
	require.NotEqual(t, DigestOf("a", 1), DigestOf("a", 2))
	require.Equal(t, DigestOf("a")[:16], ShortDigestOf("a"))
	require.Len(t, Reading{}.Digest(), 16)
}

// What a version before named by the beginning of a digest is the same as what is named in whole, and nothing else is.
func TestSameDigest(t *testing.T) {
	whole, other := DigestOf("a"), DigestOf("b")
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"equal":                  {whole, whole, true},
		"of a version before":    {whole[:16], whole, true},
		"the other way round":    {whole, whole[:16], true},
		"both before":            {whole[:16], whole[:16], true},
		"other":                  {whole, other, false},
		"other before":           {whole[:16], other, false},
		"shorter than any was":   {whole[:12], whole, false},
		"longer than it was":     {whole[:32], whole, false},
		"nothing":                {"", whole, false},
		"one whole, another end": {whole, whole[:16] + other[16:], false},
	} {
		require.Equal(t, c.same, SameDigest(c.a, c.b), name)
		require.Equal(t, c.same, Target{FullVersion: "v1", Payload: c.a}.Same(Target{FullVersion: "v1", Payload: c.b}), name)
	}
}
