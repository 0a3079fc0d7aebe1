package workflows

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// registerDrain simulates services that leave at the second poll, and return at the second; it records the requests.
func (s *runtimeTest) registerDrain(alone string) {
	polls := 0
	s.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.AloneRequest) (protocol.AloneAnswer, error) {
		require.Equal(s, "edge", r.Runtime)
		return protocol.AloneAnswer{Alone: alone}, nil
	}, activity.RegisterOptions{Name: protocol.ActivityAlone})
	s.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.AnnouncePause) (protocol.DrainAnswer, error) {
		polls++
		d, action := *r.Pause.Drain, "leave"
		if d.Restoring {
			action = "come back"
		}
		if d.Force {
			action += " by force"
		}
		s.pauses = append(s.pauses, r.Runtime+" "+r.Scope+" "+action)
		d.Permits = []entities.DrainPermit{{Service: "service/shop/web", Allowed: true}}
		d.Done = polls%2 == 0
		return protocol.DrainAnswer{Drain: d}, nil
	}, activity.RegisterOptions{Name: protocol.ActivityDrain})
}

// A drain is announced as a pause, then services leave. After a restore and the return of all services the drain is over, which is announced
// too. Leases are granted from the start of the restore.
func TestDrainOfRuntime_A16(t *testing.T) {
	s := newRuntimeTest(t)
	s.registerDrain("")
	by := protocol.RequestMeta{By: "alice", Reason: "new nodes"}
	s.sendUpdate(0, protocol.Restore, by, "runtime edge is not drained")
	s.sendUpdate(1*second, protocol.Drain, by, "runtime edge is being drained: its services leave one by one")
	s.requestLease(2*second, "a", "a", 1)
	s.sendUpdate(3*second, protocol.Drain, protocol.RequestMeta{By: "bob"}, "runtime edge is already drained by alice; services that came there since leave too")
	s.sendUpdate(3*second, protocol.Resume, by, "runtime edge is drained by alice: its services return with restore")
	s.sendUpdate(3*second, protocol.Pause, by, "runtime edge is drained already, by alice")
	s.at(5*second, func() {
		require.True(t, s.status().Pause.Drain.Done)
		require.Equal(t, "alice", s.status().Pause.By)
		require.Empty(t, s.status().Held)
	})
	s.sendUpdate(6*second, protocol.Restore, protocol.RequestMeta{By: "bob"}, "runtime edge is being restored: its services return one by one")
	next := s.run(nil, second)
	require.Equal(t, []string{
		"edge runtime/edge paused by alice", "edge runtime/edge leave", "edge runtime/edge leave",
		"edge runtime/edge paused by alice", "edge runtime/edge leave", "edge runtime/edge leave",
		"edge runtime/edge paused by alice", "edge runtime/edge come back", "edge runtime/edge come back", "edge runtime/edge over",
	}, s.pauses)
	require.Nil(t, next.Pause)
	require.False(t, next.Paused)
	require.Equal(t, []string{"6s granted service/shop/a a"}, s.signals())
	var texts []string
	for _, l := range next.Recent {
		if l.Kind == entities.EventPause {
			texts = append(texts, l.Text)
		}
	}
	require.Equal(t, []string{
		"runtime edge drained", "runtime edge is drained: no service is left that can leave", "runtime edge is drained: no service is left that can leave",
		"runtime edge restored", "runtime edge is restored: its services may return",
	}, texts)
}

// A drain that leaves a channel without instances is refused, unless it is forced, which is recorded. A paused runtime must be resumed
// first.
func TestDrainIsRefused_A16(t *testing.T) {
	s := newRuntimeTest(t)
	s.registerDrain("shop/web prod")
	s.sendUpdate(0, protocol.Drain, protocol.RequestMeta{By: "alice"}, "no instance of shop/web prod would be left; to drain it anyway: --force")
	s.sendUpdate(1*second, protocol.Pause, protocol.RequestMeta{By: "alice"}, "runtime edge is paused; applies in flight will finish")
	s.sendUpdate(2*second, protocol.Drain, protocol.DrainRequest{RequestMeta: protocol.RequestMeta{By: "alice"}, Force: true}, "runtime edge is paused by alice: resume it first")
	s.sendUpdate(3*second, protocol.Resume, protocol.RequestMeta{By: "alice"}, "runtime edge is resumed")
	s.sendUpdate(4*second, protocol.Drain, protocol.DrainRequest{RequestMeta: protocol.RequestMeta{By: "alice"}, Force: true}, "runtime edge is being drained: its services leave one by one")
	next := s.run(nil, second)
	require.Contains(t, s.pauses, "edge runtime/edge leave by force")
	require.True(t, next.Pause.Drain.Done)
	require.Equal(t, "runtime edge drained by force", next.Recent[len(next.Recent)-2].Text)
}
