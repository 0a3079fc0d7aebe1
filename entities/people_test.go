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

// The address of the board is in links that people click, and in messages of a chat.
func TestAddressOfTheBoard(t *testing.T) {
	for _, good := range []string{"https://converge.shop.dev", "https://converge.shop.dev:8443/", "http://127.0.0.1:8234", "http://[::1]:8234"} {
		require.NoError(t, CheckBoard(good), good)
	}
	for _, bad := range []string{
		"converge.shop.dev", "javascript:alert(1)", "ftp://shop.dev", "https://", "https://:8234", "https://alice@shop.dev", "https://shop.dev/board",
		"https://shop.dev?a", "https://shop.dev#a", "https://shop.dev|approve>", "https://shop.dev\n", "https://shop dev", "https://shop.dev)",
	} {
		require.ErrorContains(t, CheckBoard(bad), "expected https://HOST", bad)
	}
	require.Equal(t, "https://converge.shop.dev/services/shop/web", BoardLink("https://converge.shop.dev/", "shop", "web"))
	require.Empty(t, BoardLink("", "shop", "web"))
}
