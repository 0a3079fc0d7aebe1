package intent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestManifestSince(t *testing.T) {
	changed, removed := Manifest{"d": "1", "b": "2", "a": "1"}.Since(Manifest{"a": "1", "b": "1", "c": "1"})
	require.Equal(t, []string{"b", "d"}, changed)
	require.Equal(t, []string{"c"}, removed)
}
