package operators

import (
	"context"
	"fmt"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/proxy"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// stalled is a service in the middle of an apply to staging, whose worker speaks through a proxy.
type stalled struct {
	*stage.World
	proxy *proxy.Proxy
	letGo func()
}

func newStalled(t *testing.T) stalled {
	t.Helper()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	toServer, err := proxy.New(w.Address)
	require.NoError(t, err)
	t.Cleanup(toServer.Close)
	s := stalled{World: w, proxy: toServer}
	w.StartWorkerAt(toServer.Address())
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	staging := w.Fake.At(w.App, "web", "staging")
	s.letGo = staging.HangApplies()
	w.Release("web", "v1")
	require.NoError(t, w.Fake.Await(t.Context(), staging.Applying))
	return s
}

// stall holds back everything for so long.
func (s stalled) stall(d time.Duration) {
	s.proxy.Hold()
	defer s.proxy.Resume()
	<-time.After(d) // this is what happens, not a wait for something else
}

// apply is what the server says of the apply under way, or nil.
func (s stalled) apply() *workflowpb.PendingActivityInfo {
	s.T.Helper()
	d, err := s.Client.DescribeWorkflowExecution(s.T.Context(), s.ID("web"), "")
	require.NoError(s.T, err)
	for _, a := range d.PendingActivities {
		if a.ActivityType.Name == protocol.ActivityApply {
			return a
		}
	}
	return nil
}

// await waits until something is so of the apply under way.
func (s stalled) await(what string, so func(*workflowpb.PendingActivityInfo) bool) {
	s.T.Helper()
	require.Eventually(s.T, func() bool {
		a := s.apply()
		return a != nil && so(a)
	}, stage.Patience, 100*time.Millisecond, what)
}

// A stall below the heartbeat timeout restarts nothing, not even when it begins where a worker that sends one heartbeat
// in eight seconds, as the SDK does by itself, would lose the only one that still came in time.
func TestStallBelowTheHeartbeatTimeoutRestartsNothing_F7(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			stallBelow(t, d)
		})
	}
}

func stallBelow(t *testing.T, d time.Duration) {
	s := newStalled(t)
	var beat time.Time
	s.await("a heartbeat", func(a *workflowpb.PendingActivityInfo) bool {
		beat = a.LastHeartbeatTime.AsTime()
		return a.LastHeartbeatTime != nil
	})
	s.await("six seconds later", func(*workflowpb.PendingActivityInfo) bool { return time.Since(beat) > 6*time.Second })
	s.stall(d)
	over := time.Now()
	var attempt int32
	s.await("a heartbeat after the stall, or another attempt", func(a *workflowpb.PendingActivityInfo) bool {
		attempt = a.Attempt
		return attempt > 1 || a.LastHeartbeatTime.AsTime().After(over)
	})
	require.EqualValues(t, 1, attempt, "the apply was begun again")
	s.letGo()
	s.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, 1, s.Fake.At(s.App, "web", "staging").Applies())
}

// A longer one does, and the apply that was cut off ends before the next one begins.
func TestStallAboveTheHeartbeatTimeoutOverlapsNothing_F2(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{15 * time.Second, time.Minute} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := newStalled(t)
			s.stall(d)
			s.await("another attempt", func(a *workflowpb.PendingActivityInfo) bool { return a.Attempt > 1 })
			s.letGo()
			s.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			require.Empty(t, s.Fake.Overlaps())
		})
	}
}

// Nor does it where another worker takes over: the one that is cut off, for as long as that takes, has ended its apply
// by then.
func TestCutOffWorkerEndsItsApplyBeforeAnotherBegins_F2(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	s.StartWorker() // that one is not cut off
	s.proxy.Hold()
	defer s.proxy.Resume()
	s.proxy.Cut() // what waits for tasks at the server is gone
	staging := s.Fake.At(s.App, "web", "staging")
	limited, stop := context.WithTimeout(t.Context(), stage.Patience)
	defer stop()
	require.NoError(t, s.Fake.Await(limited, func() bool { return staging.Applies() == 2 }))
	s.letGo()
	s.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Empty(t, s.Fake.Overlaps())
}

// An apply that came at once with what started it waits for no heartbeat, and ends before one is due; one that a worker
// polled for shows the server first that it is alive.
func TestPromptApplyWaitsForNoHeartbeat_F7(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	var beats atomic.Int64
	w.StartWorkerOver(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if path.Base(method) == "RecordActivityTaskHeartbeat" {
			beats.Add(1)
		}
		return invoke(ctx, method, req, reply, c, o...)
	})
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	beats.Store(0) // of publishing
	eager, polled := 0, 0
	for n := range 10 {
		before := beats.Load()
		version := fmt.Sprintf("v%d", n)
		w.Release("web", version)
		w.Await("web", "staging CONVERGED "+version+", production CONVERGED "+version)
		if beats.Load() == before {
			eager++
		} else {
			polled++
		}
	}
	t.Logf("%d releases without a heartbeat, %d with", eager, polled)
	require.NotZero(t, eager)
}
