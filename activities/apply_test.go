package activities

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// An apply that starts again observes first, and uses that reading.
func TestCurrent_A11(t *testing.T) {
	reading := entities.Reading{Objects: []entities.Object{{
		Name: "web", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: "v2", Active: true}},
	}}}
	require.True(t, current(reading, "v2").Stable)
	require.False(t, current(reading, "v3").Stable)
	require.False(t, current(entities.Reading{}, "v2").Stable, "no objects")
	reading.Err = &entities.ReadingError{Code: "timeout"}
	require.False(t, current(reading, "v2").Stable, "unknown state")
}

// blockingRuntime is a runtime whose applies block until a test releases them. It counts concurrent applies.
type blockingRuntime struct {
	began      chan string
	end        chan struct{}
	mu         sync.Mutex
	running    int
	maxRunning int
}

func (s *blockingRuntime) Observe(context.Context, runtimes.Request) ([]entities.Object, error) {
	return nil, nil
}

func (s *blockingRuntime) Apply(_ context.Context, in runtimes.Request) (runtimes.Output, error) {
	s.mu.Lock()
	s.running++
	s.maxRunning = max(s.maxRunning, s.running)
	s.mu.Unlock()
	s.began <- in.ID.String()
	<-s.end
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	return runtimes.Output{}, nil
}

// A worker that the server had given up may get the same apply again while the first one still runs. They do not overlap. Other instances
// are not delayed.
func TestAppliesOfOneInstanceDoNotOverlap(t *testing.T) {
	store, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	definition := entities.RuntimeDefinition{Name: "local", Kind: entities.RuntimeFake}
	digest, err := store.PutRuntime(t.Context(), definition)
	require.NoError(t, err)
	rt := &blockingRuntime{began: make(chan string), end: make(chan struct{})}
	a := New(store, nil, map[entities.RuntimeKind]Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return rt, nil },
	})
	defer a.Close()
	var all sync.WaitGroup
	apply := func(id entities.InstanceID) {
		all.Go(func() {
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			env.RegisterActivity(a.Apply)
			_, err := env.ExecuteActivity(a.Apply, protocol.ApplyRequest{
				Application: "shop", Service: "web", Runtime: "local", RuntimeDigest: digest,
				Instance: protocol.InstanceRef{ID: id, FullVersion: "v1"}, Timeout: 1e10, FetchTimeout: 1e10, Sequence: 1,
			})
			require.NoError(t, err)
		})
	}
	apply(entities.Only("staging"))
	require.Equal(t, "staging", <-rt.began)
	apply(entities.Only("staging"))
	apply(entities.InstanceID{Channel: "staging", Name: "eu-3"})
	require.Equal(t, "staging/eu-3", <-rt.began, "the second apply of an instance waits for the first one")
	rt.end <- struct{}{}
	rt.end <- struct{}{}
	require.Equal(t, "staging", <-rt.began)
	rt.end <- struct{}{}
	all.Wait()
	require.Empty(t, a.runningApplies)
}
