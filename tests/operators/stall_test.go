package operators

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// proxy stands between a worker and its server, and can hold back all that goes either way.
type proxy struct {
	address string
	gate    sync.RWMutex // held for writing: nothing passes

	mu      sync.Mutex
	servers []net.Conn // all connections to the server
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{address: listener.Addr().String()}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = from.Close()
				continue
			}
			p.mu.Lock()
			p.servers = append(p.servers, to)
			p.mu.Unlock()
			go p.carry(from, to)
			go p.carry(to, from)
		}
	}()
	return p
}

// carry passes bytes one way, until either side closes.
func (p *proxy) carry(from, to net.Conn) {
	_, _ = io.Copy(gated{to, &p.gate}, from)
	_ = from.Close()
	_ = to.Close()
}

// gated is a connection whose writes wait while the gate is held.
type gated struct {
	io.Writer
	gate *sync.RWMutex
}

func (g gated) Write(data []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Writer.Write(data)
}

// stall holds back everything for so long.
func (p *proxy) stall(d time.Duration) {
	p.gate.Lock()
	defer p.gate.Unlock()
	<-time.After(d) // this is what happens, not a wait for something else
}

// cut lets nothing pass any more, and has the server notice: what waits for tasks there is gone.
func (p *proxy) cut() {
	p.gate.Lock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.servers {
		_ = c.Close()
	}
}

// stalled is a service in the middle of an apply to staging, whose worker speaks through a proxy.
type stalled struct {
	*stage.World
	proxy *proxy
	letGo func()
}

func newStalled(t *testing.T) stalled {
	t.Helper()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	s := stalled{World: w, proxy: newProxy(t, w.Address)}
	w.StartWorkerAt(s.proxy.address)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	staging := w.Fake.At(w.App, "web", "staging")
	s.letGo = staging.HangApplies()
	w.Release("web", "v1")
	require.NoError(t, w.Fake.Await(t.Context(), staging.Applying))
	return s
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
func TestStallBelowTheHeartbeatTimeoutRestartsNothing(t *testing.T) {
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
	s.proxy.stall(d)
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
func TestStallAboveTheHeartbeatTimeoutOverlapsNothing(t *testing.T) {
	for _, d := range []time.Duration{15 * time.Second, time.Minute} {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			s := newStalled(t)
			s.proxy.stall(d)
			s.await("another attempt", func(a *workflowpb.PendingActivityInfo) bool { return a.Attempt > 1 })
			s.letGo()
			s.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			require.Empty(t, s.Fake.Overlaps())
		})
	}
}

// Nor does it where another worker takes over: the one that is cut off, for as long as that takes, has ended its apply
// by then.
func TestCutOffWorkerEndsItsApplyBeforeAnotherBegins(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	t.Cleanup(s.StopWorker)
	s.StartWorker() // that one is not cut off
	s.proxy.gate.Lock()
	defer s.proxy.gate.Unlock()
	staging := s.Fake.At(s.App, "web", "staging")
	limited, stop := context.WithTimeout(t.Context(), stage.Patience)
	defer stop()
	require.NoError(t, s.Fake.Await(limited, func() bool { return staging.Applies() == 2 }))
	s.letGo()
	s.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Empty(t, s.Fake.Overlaps())
}
