package entities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rules that no compiler checked cannot allow more than a day.
func TestTokenAgeIsAtMostADay_G3(t *testing.T) {
	require.Equal(t, time.Hour, (&Identity{}).Age())
	require.Equal(t, 30*time.Minute, (&Identity{MaxAge: 30 * time.Minute}).Age())
	require.Equal(t, 24*time.Hour, (&Identity{MaxAge: 1000 * time.Hour}).Age())
}
