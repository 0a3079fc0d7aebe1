package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// If no service of a batch was reached, none is recorded as unreached, because the whole batch is sent again. Otherwise each unreached
// service is recorded once.
func TestResultsOfABatch(t *testing.T) {
	own, outage := error(&store.CorruptError{Key: "specs/1", Reason: "cut off"}), errors.New("no server")
	services := []string{"a", "b", "c"}
	r := &broadcast{}
	require.EqualError(t, r.recordResults(services, []error{own, outage, outage}), "notify b: no server")
	require.Zero(t, r.unreached)
	require.Empty(t, r.last)

	require.NoError(t, r.recordResults(services, []error{own, nil, outage}))
	require.Equal(t, protocol.Unreached{Services: []string{"a", "c"}, Why: "a: " + own.Error()}, r.unreached)
	require.Equal(t, "c", r.last)

	require.NoError(t, (&broadcast{}).recordResults(services, []error{own, own, own}), "all errors concern single services")
}

// A broadcast sends to a few services at a time, and continues when one of them has processed its message. It waits for a missing
// answer for a limited time.
func TestBroadcastWaitsBetweenBatches_I5(t *testing.T) {
	services := make([]string, 10*sendConcurrency)
	for n := range services {
		services[n] = fmt.Sprintf("s%03d", n)
	}
	for name, answers := range map[string]bool{"answering": true, "silent": false} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			sent, waited := 0, 0
			all := func(ctx context.Context) error {
				return (&broadcast{
					send: func(context.Context, string) error {
						mu.Lock()
						defer mu.Unlock()
						sent++
						return nil
					},
					awaitProcessed: func(_ context.Context, service string) error {
						mu.Lock()
						defer mu.Unlock()
						waited++
						require.Equal(t, waited*sendConcurrency, sent)
						require.Equal(t, services[sent-1], service)
						if !answers {
							return context.DeadlineExceeded
						}
						return nil
					},
				}).run(ctx, services)
			}
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			env.RegisterActivity(all)
			_, err := env.ExecuteActivity(all)
			require.NoError(t, err)
			require.Equal(t, len(services), sent)
			require.Equal(t, len(services)/sendConcurrency, waited)
		})
	}
}
