package ecsfake_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/mototest"
)

// moto starts moto_server, which `make moto` installs, and returns a client for it; without it the test is skipped.
func moto(t *testing.T) *ecs.Client {
	t.Helper()
	endpoint := mototest.Start(t)
	nowhere, err := ecsfake.New(ecsfake.Options{})
	require.NoError(t, err)
	require.NoError(t, nowhere.Close())
	return nowhere.Client(once, func(o *ecs.Options) { o.BaseEndpoint = aws.String(endpoint) })
}
