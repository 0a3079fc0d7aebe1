package public

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each controller that is built is of the release whose kinds are fetched.
func TestControllersAreThoseOfTheirKinds(t *testing.T) {
	t.Parallel()
	for module, kinds := range map[string]Set{"rollouts": Rollouts(), "flux": Flux()[0]} {
		text, err := os.ReadFile("../../" + module + "/go.mod")
		require.NoError(t, err)
		require.Contains(t, string(text), "\n\t"+kinds.Module+" "+kinds.Version+" // indirect\n", module)
	}
}
