package workflows

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// newGuardedServiceTest is a service in which approvals require proof, and only sre may give them.
func newGuardedServiceTest(t *testing.T) *serviceTest {
	p := newServiceTest(t)
	p.addApproval("go-live", 1, "group:sre")
	p.spec.Identity = &entities.Identity{Issuer: "https://id.shop.dev", Audience: "converge", Required: []string{"approve", "pause"}}
	p.spec.Grants = []entities.Grant{{Verbs: []string{"pause"}, Channels: []string{"prod"}, To: []string{"alice"}}}
	p.publish(0)
	p.sendSignal(time.Second, protocol.Release, `{"version":"v1","by":"ci"}`)
	return p
}

// A verb without the required proof, or with an invalid one, changes nothing, as an update and as a signal; the token is not visible
// afterwards.
func TestServiceRefusesUnprovenCallers_A14(t *testing.T) {
	for _, c := range []struct {
		name, verb, payload, want string
		rejected                  bool
	}{
		{"no token", "approve", `{"version":"v1","topic":"go-live","by":"alice"}`, `approve needs proof of identity: "token" is missing; expected an ID token of https://id.shop.dev for converge`, true},
		{"forged", "approve", `{"version":"v1","topic":"go-live","by":"alice","token":"forged-of-alice"}`, `the token's signature does not hold`, false},
		{"in another case", "approve", `{"version":"v1","topic":"go-live","by":"alice","TOKEN":"forged-of-alice"}`, `the token's signature does not hold`, false},
		{"not of the group", "approve", `{"version":"v1","topic":"go-live","token":"token-of-bob/dev"}`, `bob`, false},
		{"not granted there", "pause", `{"channel":"staging","token":"token-of-alice"}`, `alice may not pause in staging`, false},
		{"not granted at all", "pause", `{"channel":"prod","token":"token-of-bob"}`, `bob may not pause in prod; allowed: alice`, false},
		{"unknown version", "approve", `{"version":"v9","topic":"go-live","token":"token-of-alice/sre"}`, `no release of version "v9"`, true},
		{"unknown topic", "approve", `{"version":"v1","topic":"go-life","token":"token-of-alice/sre"}`, `go-life`, true},
		{"unknown channel", "pause", `{"channel":"prodd","token":"token-of-alice"}`, `no release channel "prodd"`, true},
		{"nobody", "approve", `{"version":"v1","topic":"go-live"}`, `"by" is missing; expected the name of the caller`, true},
		{"too long", "approve", `{"version":"v1","topic":"go-live","token":"` + strings.Repeat("x", verb.MaxToken+1) + `"}`, `"token" is 16385 bytes long; at most 16384`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newGuardedServiceTest(t)
			update := p.sendUpdate(minute, c.verb, c.payload)
			p.sendSignal(2*minute, c.verb, c.payload)
			p.atStatus(3*minute, func(s protocol.Status) {
				require.Equal(t, "staging CONVERGED v1, prod WAITING_MANUAL_APPROVAL ", statusOf(s))
				require.Empty(t, s.Releases[0].Approvals)
				require.Empty(t, s.Pauses)
				require.Len(t, s.Refused, 1)
				require.Contains(t, s.Refused[0].Reason, c.want)
			})
			next := p.run(firstInput, minute)
			require.ErrorContains(t, update.err, c.want)
			require.Equal(t, c.rejected, update.rejected, "a request that can be judged without I/O is refused before any write")
			require.NotContains(t, p.carriedState(next), "-of-")
		})
	}
}

// The proven name replaces the stated one, and that is shown; the token is not kept.
func TestProvenNameReplacesStatedName_A14(t *testing.T) {
	p := newGuardedServiceTest(t)
	update := p.sendUpdate(minute, protocol.Approve, `{"version":"v1","topic":"go-live","by":"bob","token":"token-of-alice/sre","requestId":"r"}`)
	p.atStatus(2*minute, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s))
		a := s.Releases[0].Approvals
		require.Len(t, a, 1)
		require.Equal(t, entities.Who{Name: "alice", Groups: []string{"sre"}, Proven: true}, a[0].Who)
	})
	p.sendSignal(3*minute, protocol.Pause, `{"channel":"prod","token":"token-of-alice"}`)
	p.atStatus(4*minute, func(s protocol.Status) {
		require.Equal(t, "alice", s.Pauses[0].By)
		require.Empty(t, s.Refused)
	})
	next := p.run(firstInput, minute)
	require.NoError(t, update.err)
	require.Contains(t, update.message, `; requested by alice, as the token proves, not by "bob"`)
	require.NotContains(t, p.carriedState(next), "token-of")
}

// While the issuer is unavailable, an update returns an error to try again, a signal waits, also into the next run, and nothing else is
// blocked.
func TestServiceWaitsForUnavailableIssuer_A14(t *testing.T) {
	p := newGuardedServiceTest(t)
	p.spec.Identity.Required = []string{"approve"}
	p.spec.Grants = nil
	p.setErr(protocol.ActivityVerify, errors.New("connection refused"))
	p.sendSignal(minute, protocol.Approve, `{"version":"v1","topic":"go-live","token":"token-of-alice/sre"}`)
	p.sendSignal(minute, protocol.Pause, `{"channel":"staging","by":"bob"}`)
	update := p.sendUpdate(2*minute, protocol.Approve, `{"version":"v1","topic":"go-live","token":"token-of-alice/sre"}`)
	p.atStatus(3*minute, func(s protocol.Status) {
		require.Len(t, s.Pauses, 1)
		require.Empty(t, s.Refused)
		require.Empty(t, s.Releases[0].Approvals)
		require.Contains(t, s.Notes, "the keys of the token issuer cannot be read, try again: connection refused")
		require.NotContains(t, s.Notes, "token-of")
	})
	next := p.run(firstInput, minute)
	require.ErrorContains(t, update.err, "try again: connection refused")
	require.False(t, update.rejected)
	require.Len(t, p.stateOf(next).Inbox, 1)

	before := p
	p = newServiceTest(t)
	p.startAfter(before)
	p.setErr(protocol.ActivityVerify, errors.New("connection refused"))
	p.at(minute, func() { p.setErr(protocol.ActivityVerify, nil) })
	p.atStatus(4*minute, func(s protocol.Status) {
		require.Equal(t, "staging PAUSED v1, prod CONVERGED v1", statusOf(s))
		require.Empty(t, s.Notes)
	})
	next = p.run(next, minute)
	require.Empty(t, p.stateOf(next).Inbox)
}

// The token of a release is verified once; while the store is unavailable only the proven identity is kept.
func TestServiceKeepsNoTokenWhileStoreIsUnavailable_A14(t *testing.T) {
	p := newGuardedServiceTest(t)
	p.at(minute, func() { p.setErr(protocol.ActivityPrepare, errors.New("the disk is full")) })
	p.sendSignal(2*minute, protocol.Release, `{"version":"v2","by":"bob","token":"token-of-carol"}`)
	next := p.run(firstInput, minute)
	require.Len(t, p.stateOf(next).Inbox, 1)
	require.Equal(t, "carol", p.stateOf(next).Inbox[0].Who.Name)
	require.NotContains(t, p.carriedState(next), "token-of")

	before := p
	p = newServiceTest(t)
	p.startAfter(before)
	p.setErr(protocol.ActivityVerify, errors.New("the token has expired by now"))
	p.atStatus(2*minute, func(s protocol.Status) {
		require.Equal(t, "v2", s.Releases[0].Version)
		require.Equal(t, "carol", s.Releases[0].By)
	})
	p.run(next, minute)
	require.NotContains(t, p.startedActivities(), "verify")
}

// While the store cannot say whether a token was used, its request waits as it does for the issuer; nothing else does.
func TestTokenIsVerifiedOnceStoreIsAvailable(t *testing.T) {
	p := newGuardedServiceTest(t)
	p.spec.Identity.Required = []string{"approve"}
	p.spec.Grants = nil
	p.setErr(protocol.ActivityVerify, temporal.NewNonRetryableApplicationError("the disk is full", protocol.ErrStore, nil))
	p.sendSignal(minute, protocol.Approve, `{"version":"v1","topic":"go-live","token":"token-of-alice/sre"}`)
	p.sendSignal(minute, protocol.Pause, `{"channel":"staging","by":"bob"}`)
	update := p.sendUpdate(2*minute, protocol.Approve, `{"version":"v1","topic":"go-live","token":"token-of-alice/sre"}`)
	p.atStatus(3*minute, func(s protocol.Status) {
		require.Len(t, s.Pauses, 1)
		require.Empty(t, s.Refused)
		require.Empty(t, s.Releases[0].Approvals)
		require.Contains(t, s.Notes, "the store does not answer: the disk is full")
	})
	p.at(4*minute, func() { p.setErr(protocol.ActivityVerify, nil) })
	p.atStatus(6*minute, func(s protocol.Status) {
		require.Len(t, s.Releases[0].Approvals, 1)
		require.Empty(t, s.Notes)
	})
	next := p.run(firstInput, minute)
	require.ErrorContains(t, update.err, "the disk is full")
	require.NotContains(t, p.carriedState(next), "token-of")
}
