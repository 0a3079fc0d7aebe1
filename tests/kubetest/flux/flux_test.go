package flux

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/kubetest/public"
)

// The controller is of the release whose kinds are fetched.
func TestControllerIsThatOfItsKinds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../flux/go.mod")
	require.NoError(t, err)
	kinds := public.Flux()[0]
	require.Contains(t, string(text), "\n\t"+kinds.Module+" "+kinds.Version+" // indirect\n")
}
