package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

func damagedError(key string) error {
	return temporal.NewNonRetryableApplicationError("the store's "+key+" is damaged: …; apply again", protocol.ErrDamaged, nil)
}

// A publication with damaged rules in the store waits until they are written again, and says so. Releases are accepted, and none moves
// anything by the older rules. A rollback does.
func TestUnreadPublicationHoldsReleases_G2(t *testing.T) {
	p := newServiceTest(t)
	p.publish(0)
	p.sendSignal(10*second, protocol.Release, `{"version":"v0","by":"bob"}`)
	p.sendSignal(30*second, protocol.Release, `{"version":"v0.1","by":"bob"}`)
	p.at(minute, func() { p.setErr(protocol.ActivityLoadSpec, damagedError("specs/x")) })
	p.sendSignal(2*minute, protocol.Publish, `{"incarnation":2,"hash":"h2","spec":"x","store":"s","by":"ci"}`)
	v1 := p.sendUpdate(3*minute, protocol.Release, `{"version":"v1","by":"bob"}`)
	p.sendSignal(4*minute, protocol.Release, `{"version":"v2","by":"bob"}`)
	p.atStatus(5*minute, func(s protocol.Status) {
		require.Equal(t, "staging WAITING_PRECONDITIONS v0.1, prod WAITING_PRECONDITIONS v0.1", statusOf(s))
		require.Contains(t, s.Channels[0].Reasons[0].Text, "a newer configuration is not read yet")
		require.EqualValues(t, 1, s.Incarnation)
		require.Contains(t, s.Notes, "the store's specs/x is damaged: …; apply again")
	})
	p.sendSignal(6*minute, protocol.Rollback, `{"version":"v0.1","channel":"prod","by":"bob"}`)
	p.atStatus(7*minute, func(s protocol.Status) { require.Equal(t, "v0", s.Channels[1].Current) })
	p.at(8*minute, func() { p.setErr(protocol.ActivityLoadSpec, nil) })
	p.atStatus(10*minute, func(s protocol.Status) {
		require.EqualValues(t, 2, s.Incarnation)
		require.Empty(t, s.Notes)
		require.Equal(t, "staging CONVERGED v2, prod CONVERGED v2", statusOf(s))
	})
	p.run(firstInput, minute)
	require.NoError(t, v1.err)
}

// A version with a damaged record is refused, by name; other versions are released.
func TestDamagedVersionIsRefused(t *testing.T) {
	p := newServiceTest(t)
	p.publish(0)
	p.at(minute, func() { p.setErr(protocol.ActivityPrepare, damagedError("versions/shop/web/v1")) })
	update := p.sendUpdate(2*minute, protocol.Release, `{"version":"v1","by":"bob"}`)
	p.sendSignal(2*minute, protocol.Release, `{"version":"v1","by":"bob"}`)
	p.at(3*minute, func() { p.setErr(protocol.ActivityPrepare, nil) })
	p.sendSignal(4*minute, protocol.Release, `{"version":"v2","by":"bob"}`)
	p.atStatus(5*minute, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v2, prod CONVERGED v2", statusOf(s))
		require.Equal(t, []string{"release by bob: the store's versions/shop/web/v1 is damaged: …; apply again"}, refusals(s))
	})
	p.run(firstInput, minute)
	require.ErrorContains(t, update.err, "the store's versions/shop/web/v1 is damaged")
}

// A full inbox refuses requests visibly, but always accepts signals of other workflows.
func TestFullInboxRefuses(t *testing.T) {
	s := &shell{mailbox: &state.Mailbox{Inbox: make([]*state.Message, state.MaxInbox)}}
	require.ErrorContains(t, s.checkInboxRoom(), "10000 signals are queued already, which is the limit; send it again once they are carried out")
	s.mailbox.Inbox = s.mailbox.Inbox[:5]
	require.NoError(t, s.checkInboxRoom())
	s.inboxBytes = 1 << 30
	require.ErrorContains(t, s.checkInboxRoom(), "5 signals are queued already")
}
