package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

// A worker whose SDK gave up ends with the remedy; a stopped worker ends without an error.
func TestWorkerEndsWhenItGetsNoMoreWork_F10(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, newWorkLoss().wait(stopped, Options{}))
	for _, row := range []struct {
		err  error
		next string
	}{
		{&serviceerror.NamespaceNotFound{Message: "gone"}, "the namespace was deleted"},
		{&serviceerror.ClientVersionNotSupported{Message: "old"}, "upgrade converge"},
		{&serviceerror.PermissionDenied{Message: "revoked"}, "check the API key"},
	} {
		l := newWorkLoss()
		l.fatal(row.err)
		l.fatal(row.err) // nothing receives the second error
		err := l.wait(t.Context(), Options{Namespace: "releases"})
		require.ErrorContains(t, err, "from the namespace releases: ")
		require.ErrorContains(t, err, row.next)
		require.ErrorIs(t, err, row.err)
	}
}
