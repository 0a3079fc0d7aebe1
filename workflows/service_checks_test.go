package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A check that was just evaluated lets the release pass; it is not evaluated again at once.
func TestFreshCheckIsNotEvaluatedAgain_A10(t *testing.T) {
	p := newServiceTest(t)
	p.addCheck("error-rate", entities.CheckAt{Stage: entities.PreApproval})
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.run(firstInput, minute)
	require.Equal(t, []string{"apply v1 to staging", "apply v1 to prod"}, p.startedActivities("keep"))
	require.Equal(t, 1, p.checksEnded)
}

// A check that was evaluated before an approval is evaluated again before an apply, and the new result counts.
func TestChecksAreEvaluatedAgainAfterApproval_A10(t *testing.T) {
	p := newServiceTest(t)
	p.addApproval("go-live", 1)
	p.addCheck("error-rate", entities.CheckAt{Stage: entities.PreApproval})
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(10*second, func(s protocol.Status) { require.Equal(t, "PASS", s.Channels[1].Checks[0].Verdict) })
	// In a test the evaluation repeats every 50 s: it does not see the change.
	p.at(11*second, func() { p.setVerdict("error-rate", entities.Wait) })
	p.sendSignal(12*second, protocol.Approve, `{"version":"v1","topic":"go-live","by":"alice"}`)
	p.atStatus(20*second, func(s protocol.Status) {
		require.Equal(t, "WAIT", s.Channels[1].Checks[0].Verdict)
		require.Equal(t, "staging CONVERGED v1, prod WAITING_PRECONDITIONS ", statusOf(s))
	})
	p.run(firstInput, second)
	require.Equal(t, []string{"apply v1 to staging", "preflight v1"}, p.startedActivities("keep"))
}

// Calendars and lists are evaluated within the workflow task. An activity is scheduled for them only if they hold the release back, and it
// gets the known results.
func TestOfflineChecksAreEvaluatedWithinTheTask_A10_A20(t *testing.T) {
	p := newServiceTest(t)
	p.addCheckOf(entities.CheckAllowedTimes, "office-hours", entities.CheckAt{Stage: entities.PreApproval})
	p.addCheckOf(entities.CheckDeniedVersions, "denied", entities.CheckAt{Stage: entities.PreApproval})
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.at(2*minute, func() { p.setVerdict("office-hours", entities.Wait) })
	p.sendSignal(2*minute+second, protocol.Release, `{"version":"v2","by":"ci"}`)
	p.atStatus(3*minute, func(s protocol.Status) {
		require.Equal(t, 0, p.checksEnded)
		require.Equal(t, "staging CONVERGED v2, prod WAITING_PRECONDITIONS v1", statusOf(s))
	})
	p.at(4*minute, func() { p.setVerdict("office-hours", entities.Pass) })
	p.atStatus(6*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v2, prod CONVERGED v2", statusOf(s)) })
	p.run(firstInput, minute)
	require.Equal(t, []string{
		"apply v1 to staging", "evaluate here v1", "apply v1 to prod",
		// The repeated evaluation brings the change; both are read at that moment.
		"apply v2 to staging", "evaluate here v2", "evaluate here v2", "apply v2 to prod",
	}, p.startedActivities("keep"))
	require.Equal(t, 1, p.checksEnded)
}

// A check that cannot be evaluated in place is an ERROR too, which delays the release and is retried.
func TestFailedOfflineCheckIsRetried_D16(t *testing.T) {
	p := newServiceTest(t)
	p.addCheckOf(entities.CheckAlways, "always", entities.CheckAt{Stage: entities.PreApproval})
	p.setErr(protocol.ActivityPreflight, temporalError("no such check"))
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(2*second, func(s protocol.Status) {
		require.Equal(t, "ERROR", s.Channels[1].Checks[0].Verdict)
		require.Equal(t, "no such check", s.Channels[1].Checks[0].Reason)
	})
	p.at(3*second, func() { p.setErr(protocol.ActivityPreflight, nil) })
	p.atStatus(2*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s)) })
	p.run(firstInput, minute)
}
