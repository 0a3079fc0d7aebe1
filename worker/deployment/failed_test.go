package deployment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The identity of a worker says at which version a workflow is stuck.
func TestFailureNamesTheWorkerVersion_F10(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^converge-worker v1\.5\.0 \d+@.+$`, Identity("v1.5.0"))
	require.Regexp(t, `^stuck by a bug in version v1\.5\.0 \(\d+@.+\): index out of range$`, Failure{Identity("v1.5.0"), "index out of range"}.Text())
	require.Regexp(t, `^stuck by a bug in version build-7 \(`, Failure{Identity("build 7"), ""}.Text())
	require.Equal(t, "stuck by a bug in the worker 4711@edge: panic", Failure{"4711@edge", "panic"}.Text(), "of another program")
}
