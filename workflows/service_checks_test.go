package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A check that was just evaluated lets the release pass; it is not evaluated again at once.
func TestServiceAsksOnceWhatHasJustBeenRead_A10(t *testing.T) {
	p := newPlay(t)
	p.checks("error-rate", entities.CheckAt{Stage: entities.PreApproval})
	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sees(minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.acts(first, minute)
	require.Equal(t, []string{"apply v1 to staging", "apply v1 to prod"}, p.work("keep"))
	require.Equal(t, 1, p.judged)
}

// A check that was evaluated before an approval is evaluated again before an apply, and the new result counts.
func TestServiceReadsChecksAgainAfterAnApproval_A10(t *testing.T) {
	p := newPlay(t)
	p.asks("go-live", 1)
	p.checks("error-rate", entities.CheckAt{Stage: entities.PreApproval})
	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sees(10*second, func(s protocol.Status) { require.Equal(t, "PASS", s.Channels[1].Checks[0].Verdict) })
	// In a play the evaluation repeats every 50 s: it does not see the change.
	p.at(11*second, func() { p.judging("error-rate", entities.Wait) })
	p.sends(12*second, protocol.Approve, `{"version":"v1","topic":"go-live","by":"alice"}`)
	p.sees(20*second, func(s protocol.Status) {
		require.Equal(t, "WAIT", s.Channels[1].Checks[0].Verdict)
		require.Equal(t, "staging CONVERGED v1, prod WAITING_PRECONDITIONS ", statusOf(s))
	})
	p.acts(first, second)
	require.Equal(t, []string{"apply v1 to staging", "preflight v1"}, p.work("keep"))
}

// Calendars and lists are evaluated within the workflow task. An activity is scheduled for them only if they hold the release back, and it
// gets the known results.
func TestServiceJudgesWhatAsksNobodyInPlace_A10_A20(t *testing.T) {
	p := newPlay(t)
	p.checksBy(entities.CheckAllowedTimes, "office-hours", entities.CheckAt{Stage: entities.PreApproval})
	p.checksBy(entities.CheckDeniedVersions, "denied", entities.CheckAt{Stage: entities.PreApproval})
	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sees(minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.at(2*minute, func() { p.judging("office-hours", entities.Wait) })
	p.sends(2*minute+second, protocol.Release, `{"version":"v2","by":"ci"}`)
	p.sees(3*minute, func(s protocol.Status) {
		require.Equal(t, 0, p.judged)
		require.Equal(t, "staging CONVERGED v2, prod WAITING_PRECONDITIONS v1", statusOf(s))
	})
	p.at(4*minute, func() { p.judging("office-hours", entities.Pass) })
	p.sees(6*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v2, prod CONVERGED v2", statusOf(s)) })
	p.acts(first, minute)
	require.Equal(t, []string{
		"apply v1 to staging", "evaluate here v1", "apply v1 to prod",
		// The repeated evaluation brings the change; both are read at that moment.
		"apply v2 to staging", "evaluate here v2", "evaluate here v2", "apply v2 to prod",
	}, p.work("keep"))
	require.Equal(t, 1, p.judged)
}

// A check that cannot be evaluated in place is an ERROR too, which delays the release and is retried.
func TestServiceTriesAgainWhatCannotBeJudgedInPlace_D16(t *testing.T) {
	p := newPlay(t)
	p.checksBy(entities.CheckAlways, "always", entities.CheckAt{Stage: entities.PreApproval})
	p.failing(protocol.ActivityPreflight, temporalError("no such check"))
	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sees(2*second, func(s protocol.Status) {
		require.Equal(t, "ERROR", s.Channels[1].Checks[0].Verdict)
		require.Equal(t, "no such check", s.Channels[1].Checks[0].Reason)
	})
	p.at(3*second, func() { p.failing(protocol.ActivityPreflight, nil) })
	p.sees(2*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.acts(first, minute)
}
