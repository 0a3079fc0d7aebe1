package upgrade

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/upgrade/scene"
)

// The upgrade of `make upgrade-demo`, of few services: two builds of the worker as processes, one decides otherwise; no
// history fails to replay, where all do when workers are replaced in place.
func TestUpgradeDemo_F3(t *testing.T) {
	t.Parallel()
	report, err := scene.Play(t.Context(), t.TempDir(), 30, t.Logf)
	require.NoError(t, err)
	t.Logf("\n%s", report)
	require.Empty(t, report.Wrong())
}
