package entities

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Content is named by its whole digest. A digest that only distinguishes two readings is shorter.
func TestDigestLength(t *testing.T) {
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{64}$`), DigestOf("a", 1))
	require.NotEqual(t, DigestOf("a", 1), DigestOf("a", 2))
	require.Equal(t, DigestOf("a")[:16], ShortDigestOf("a"))
	require.Len(t, Reading{}.Digest(), 16)
}
