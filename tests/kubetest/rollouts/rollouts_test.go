package rollouts

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/kubetest/public"
)

// The controller is of the release whose kinds are fetched.
func TestControllerIsThatOfItsKinds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../rollouts/go.mod")
	require.NoError(t, err)
	require.Contains(t, string(text), "\n\t"+public.Rollouts().Module+" "+public.Rollouts().Version+" // indirect\n")
}
