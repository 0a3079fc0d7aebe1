package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
)

// The activity may notice the deadline before the SDK does. The workflow has to know that the store did not answer in time.
func TestErrorAtTheDeadlineIsATimeout_F5(t *testing.T) {
	ended, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	failed := errors.New("list rules/ in the store: canceled, context deadline exceeded")
	refused := temporal.NewNonRetryableApplicationError("no", protocol.ErrRefused, nil)

	var timeout *temporal.ApplicationError
	require.ErrorAs(t, timeoutError(ended, failed), &timeout)
	require.Equal(t, protocol.ErrTimeout, timeout.Type())
	require.Contains(t, timeout.Error(), failed.Error())

	require.Equal(t, failed, timeoutError(t.Context(), failed), "the store said so in time")
	require.Equal(t, failed, timeoutError(stopped, failed), "the worker stops")
	require.Equal(t, refused, timeoutError(ended, refused), "an answer")
	require.NoError(t, timeoutError(ended, nil))
}
