package explain

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"v2 failed: apply shop/web to prod: exit status 1": "v2 failed: exit status 1",
		"apply shop/web to prod: exit status 1":            "exit status 1",
		"apply failed once: apply shop/web to prod: no":    "apply failed once: no",
		"apply shop/web to staging: exit status 1":         "apply shop/web to staging: exit status 1",
		"applying v2": "applying v2",
		"":            "",
	} {
		require.Equal(t, want, withoutPlace(text, "prod"), text)
	}
}
