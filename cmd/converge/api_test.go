package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

// What a worker says of one workflow among many says which it is.
func TestErrorsNameTheWorkflow(t *testing.T) {
	a := &temporalAPI{address: "127.0.0.1:7233", namespace: "default"}
	failed := serviceerror.NewQueryFailed("[TMPRL1100] lookup failed")
	require.EqualError(t, a.translate("service/shop/web", failed), "service/shop/web: [TMPRL1100] lookup failed")
	require.ErrorIs(t, a.translate("service/shop/web", failed), failed)
	require.NoError(t, a.translate("service/shop/web", nil))
	other := errors.New("no such thing")
	require.Equal(t, other, a.translate("", other))
}
