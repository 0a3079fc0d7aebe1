package spelling

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClosest(t *testing.T) {
	names := []string{"blog/site", "shop/api", "shop/web", "shop/web-admin", "shop/worker"}
	for wrong, want := range map[string]string{
		"shop/wbe":   "shop/web",
		"shop/site":  "blog/site",
		"ship/web":   "shop/web",
		"shop/works": "shop/worker",
		"blog/stie":  "blog/site",
		"zzz/zzz":    "",
	} {
		require.Equal(t, want, strings.Join(Closest(wrong, names), ","), wrong)
	}
}
