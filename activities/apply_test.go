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

// An apply that begins again looks first, and what it then sees counts.
func TestStable_A11(t *testing.T) {
	seen := entities.Reading{Objects: []entities.Object{{
		Name: "web", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: "v2", Active: true}},
	}}}
	require.True(t, stable(seen, entities.Target{FullVersion: "v2"}))
	require.False(t, stable(seen, entities.Target{FullVersion: "v3"}))
	require.False(t, stable(entities.Reading{}, entities.Target{FullVersion: "v2"}), "nothing there")
	seen.Err = &entities.ReadingError{Code: "timeout"}
	require.False(t, stable(seen, entities.Target{FullVersion: "v2"}), "not known")
}

// slow is a runtime whose applies end when they are told, and that sees how many run at once.
type slow struct {
	began chan string
	end   chan struct{}
	mu    sync.Mutex
	now   int
	most  int
}

func (s *slow) Observe(context.Context, runtimes.Instance) ([]entities.Object, error) {
	return nil, nil
}

func (s *slow) Apply(_ context.Context, in runtimes.Instance) (runtimes.Output, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	s.began <- in.Channel
	<-s.end
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	return runtimes.Output{}, nil
}

// A worker that the server had given up may be given the same apply again while the first still
// runs: they must not overlap. Other instances are not held up.
func TestAppliesOfOneInstanceDoNotOverlap(t *testing.T) {
	store, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	definition := entities.RuntimeDefinition{Name: "local", Kind: entities.RuntimeFake}
	digest, err := store.PutRuntime(t.Context(), definition)
	require.NoError(t, err)
	rt := &slow{began: make(chan string), end: make(chan struct{})}
	a := New(store, nil, map[entities.RuntimeKind]Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return rt, nil },
	})
	defer a.Close()
	var all sync.WaitGroup
	apply := func(channel string) {
		all.Go(func() {
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			env.RegisterActivity(a.Apply)
			_, err := env.ExecuteActivity(a.Apply, protocol.ApplyRequest{
				Application: "shop", Service: "web", Runtime: "local", RuntimeDigest: digest,
				Instance: protocol.InstanceRef{Channel: channel, FullVersion: "v1"}, Timeout: 1e10, FetchTimeout: 1e10,
			})
			require.NoError(t, err)
		})
	}
	apply("staging")
	require.Equal(t, "staging", <-rt.began)
	apply("staging")
	apply("production")
	require.Equal(t, "production", <-rt.began, "the second apply to staging waits")
	rt.end <- struct{}{}
	rt.end <- struct{}{}
	require.Equal(t, "staging", <-rt.began)
	rt.end <- struct{}{}
	all.Wait()
	require.Empty(t, a.applies)
}
