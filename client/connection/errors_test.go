package connection

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

// An error of a worker about one workflow of many names the workflow.
func TestErrorsNameTheWorkflow(t *testing.T) {
	a := &Client{address: "127.0.0.1:7233", namespace: "default"}
	failed := serviceerror.NewQueryFailed("[TMPRL1100] lookup failed")
	require.EqualError(t, a.translate("service/shop/web", failed), "service/shop/web: [TMPRL1100] lookup failed")
	require.ErrorIs(t, a.translate("service/shop/web", failed), failed)
	stuck := serviceerror.NewWorkflowNotReady("Unable to query workflow due to Workflow Task in failed state.")
	require.EqualError(t, a.translate("service/shop/web", stuck), "no worker answers for service/shop/web: a worker failed on it; see the worker's log")
	require.ErrorIs(t, a.translate("service/shop/web", serviceerror.NewWorkflowNotReady("closing")), ErrLost, "it can be sent again")
	require.NoError(t, a.translate("service/shop/web", nil))
	other := errors.New("no such thing")
	require.Equal(t, other, a.translate("", other))
}
