package workflows

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// newStoreOutageTest is a service that runs v1, with a store that is unavailable from the first minute on.
func newStoreOutageTest(t *testing.T) *serviceTest {
	p := newServiceTest(t)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(minute, func() { p.setErr(protocol.ActivityPrepare, errors.New("the disk is full")) })
	return p
}

func releaseVersions(s protocol.Status) (out []string) {
	for _, r := range s.Releases {
		out = append(out, r.Version)
	}
	return out
}

// A release that waits for the store is opened before a release that arrives once the store is available, by update or by signal: opened
// after it, it would replace it in production.
func TestReleasesKeepTheirOrderWhileStoreIsUnavailable_F6(t *testing.T) {
	for _, tt := range []struct {
		name string
		next func(*serviceTest) *updateResult
	}{
		{"an update", func(p *serviceTest) *updateResult {
			return p.sendUpdate(2*minute+38*second, protocol.Release, `{"version":"v3","by":"bob"}`)
		}},
		{"a signal", func(p *serviceTest) *updateResult {
			p.sendSignal(2*minute+38*second, protocol.Release, `{"version":"v3","by":"bob"}`)
			return &updateResult{}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newStoreOutageTest(t)
			p.sendSignal(2*minute, protocol.Release, `{"version":"v2","by":"ci"}`) // retried with growing delays
			p.at(2*minute+37*second, func() { p.setErr(protocol.ActivityPrepare, nil) })
			next := tt.next(p)
			p.atStatus(5*minute, func(s protocol.Status) {
				require.Equal(t, []string{"v3", "v2", "v1"}, releaseVersions(s))
				require.Equal(t, "staging CONVERGED v3, prod CONVERGED v3", statusOf(s))
				require.Empty(t, s.Notes)
			})
			p.run(firstInput, minute)
			require.NoError(t, next.err)
		})
	}
}

// If the store is still unavailable, an update behind a waiting signal returns that error. The signal stays, and is carried out first.
// Requests that do not need the store continue, and their answers mention the pending audit trail.
func TestUpdateBehindAWaitingSignalFailsWhileStoreIsUnavailable(t *testing.T) {
	p := newStoreOutageTest(t)
	p.sendSignal(2*minute, protocol.Release, `{"version":"v2","by":"ci"}`)
	behind := p.sendUpdate(2*minute+second, protocol.Release, `{"version":"v3","by":"bob"}`)
	pause := p.sendUpdate(2*minute+5*second, protocol.Pause, `{"channel":"prod","by":"ann"}`)
	p.atStatus(2*minute+6*second, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod PAUSED v1", statusOf(s))
		require.Len(t, s.Notes, 2)
		require.Equal(t, "the store does not answer: the disk is full", s.Notes[0])
		require.Regexp(t, `^audit pending: \d+ lines wait for the store$`, s.Notes[1])
	})
	p.at(3*minute, func() { p.setErr(protocol.ActivityPrepare, nil) })
	p.atStatus(5*minute, func(s protocol.Status) {
		require.Equal(t, []string{"v2", "v1"}, releaseVersions(s))
		require.Empty(t, s.Notes)
	})
	p.run(firstInput, minute)
	require.ErrorContains(t, behind.err, "the store does not answer: the disk is full")
	require.NoError(t, pause.err)
	require.Regexp(t, `; audit pending: \d+ lines wait for the store$`, pause.message)
}

// A request id that waits in the inbox is carried out once, also if it is sent again in the meantime.
func TestWaitingRequestIsCarriedOutOnce(t *testing.T) {
	p := newStoreOutageTest(t)
	p.sendSignal(2*minute, protocol.Release, `{"version":"v2","by":"ci","requestId":"7"}`)
	p.at(2*minute+37*second, func() { p.setErr(protocol.ActivityPrepare, nil) })
	again := p.sendUpdate(2*minute+38*second, protocol.Release, `{"version":"v2","by":"ci","requestId":"7"}`)
	p.atStatus(5*minute, func(s protocol.Status) { require.Equal(t, []string{"v2", "v1"}, releaseVersions(s)) })
	p.run(firstInput, time.Minute)
	require.NoError(t, again.err)
}
