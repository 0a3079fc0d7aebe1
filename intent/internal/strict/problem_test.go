package strict

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClip(t *testing.T) {
	require.Equal(t, strings.Repeat("é", 30), Clip(strings.Repeat("é", 30)))
	require.Equal(t, "x"+strings.Repeat("é", 29)+"…", Clip("x"+strings.Repeat("é", 30)))
}
