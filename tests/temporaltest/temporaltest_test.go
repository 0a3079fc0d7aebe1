package temporaltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"

	"github.com/converge-engine/converge/worker"
)

func TestStart(t *testing.T) {
	t.Parallel()
	first, second := Start(t), Start(t)
	require.Equal(t, first.Address, second.Address, "one server for all")

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	attributes, err := first.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Equal(t, worker.SearchAttributes(), attributes.CustomAttributes)
}

func TestUnique(t *testing.T) {
	t.Parallel()
	t.Run("With a long name & signs, more than fits", func(t *testing.T) {
		first, second := Unique(t), Unique(t)
		require.NotEqual(t, first, second)
		require.Regexp(t, `^testunique-with-a-long-name-si-\d+$`, first)
	})
}

func TestPoll(t *testing.T) {
	t.Parallel()
	calls := 0
	_, ok := poll(time.Minute, func() (bool, string) { calls++; return calls == 3, "" })
	require.True(t, ok)
	require.Equal(t, 3, calls)

	calls = 0
	message, ok := poll(20*time.Millisecond, func() (bool, string) { calls++; return false, fmt.Sprint("call ", calls) })
	require.False(t, ok)
	require.Equal(t, fmt.Sprint("call ", calls), message)
}
