package incarnation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/incarnation"
)

func TestManifestSince(t *testing.T) {
	changed, removed := incarnation.Manifest{"d": "1", "b": "2", "a": "1"}.Since(incarnation.Manifest{"a": "1", "b": "1", "c": "1"})
	require.Equal(t, []string{"b", "d"}, changed)
	require.Equal(t, []string{"c"}, removed)
}
