package temporaltest

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCLIReachesTheServer(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), CLI(t), "operator", "cluster", "health", "--address", Start(t).Address)
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "SERVING")
}

func TestWithoutCLI(t *testing.T) {
	t.Setenv(cliEnv, filepath.Join(t.TempDir(), "temporal"))
	skipped := false
	t.Run("skipped", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		CLI(t)
	})
	require.True(t, skipped)
	require.FileExists(t, filepath.Join(moduleRoot(t), "tests", "temporaltest", "cli.go"))
}
