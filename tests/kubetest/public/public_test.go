package public

import (
	"os"
	"regexp"
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

// The helm command is of the release of the library that Converge renders charts with.
func TestHelmIsTheLibrarysRelease(t *testing.T) {
	t.Parallel()
	ours, err := os.ReadFile("../../../go.mod")
	require.NoError(t, err)
	command, err := os.ReadFile("../../helm/go.mod")
	require.NoError(t, err)
	release := regexp.MustCompile(`\thelm\.sh/helm/v4 v\S+`)
	require.Equal(t, release.FindString(string(ours)), release.FindString(string(command)))
	require.NotEmpty(t, release.FindString(string(ours)))
}
