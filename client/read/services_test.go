package read

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSuggestion(t *testing.T) {
	names := []string{"blog/site", "shop/api", "shop/web", "shop/web-admin", "shop/worker"}
	require.Equal(t, "; none is declared yet: converge config publish DIR", Suggestion("a/b", nil))
	require.Equal(t, "; did you mean shop?", Suggestion("shpo", []string{"shop"}))
	require.Equal(t, "; there is shop", Suggestion("blog", []string{"shop"}))
	require.Equal(t, "; there are blog/site, shop/api, shop/web, shop/web-admin, shop/worker", Suggestion("zzz/zzz", names))
}
