package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// newHangingApplyTest is a service with two independent channels. Both have v2 after v1, and an apply of v3 to staging hangs. At two
// minutes the server suggests to end the run, which has length events at that time.
func newHangingApplyTest(t *testing.T, length int) *serviceTest {
	p := newServiceTest(t)
	p.spec.Channels[1].Conditions = nil
	p.hangApply("v3 to staging")
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(10*second, protocol.Release, `{"version":"v2","by":"ci"}`)
	p.sendSignal(minute, protocol.Release, `{"version":"v3","by":"ci"}`)
	p.suggestContinueAsNew(2*minute, length)
	return p
}

// While the end of the run is only suggested, a hanging apply blocks nothing: a rollback of the other channel starts at once, and so does
// the next release. The run ends when the apply does.
func TestSuggestedEndBlocksNothing(t *testing.T) {
	p := newHangingApplyTest(t, 4096)
	p.sendSignal(2*minute+second, protocol.Rollback, `{"channel":"prod","by":"alice","reason":"errors"}`)
	p.atStatus(2*minute+2*second, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGING v3, prod ROLLED_BACK v2", statusOf(s))
	})
	p.sendSignal(3*minute, protocol.Release, `{"version":"v4","by":"ci"}`)
	p.atStatus(3*minute+second, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGING v3, prod CONVERGED v4", statusOf(s))
	})
	p.completeApply(4*minute, "v3 to staging")
	p.run(firstInput, minute)
	require.Equal(t, []string{"apply v2 to prod", "apply v4 to prod"}, p.startedActivities("keep")[6:])
}

// Far beyond that point, new releases wait for the hanging apply, but a rollback does not.
func TestOverdueEndBlocksNoRollback(t *testing.T) {
	p := newHangingApplyTest(t, blockNewWorkEvents)
	p.sendSignal(2*minute+second, protocol.Release, `{"version":"v4","by":"ci"}`)
	p.atStatus(2*minute+2*second, func(s protocol.Status) {
		require.Equal(t, "staging CONVERGING v3, prod WAITING_PRECONDITIONS v3", statusOf(s))
		require.Equal(t, "drain", s.Channels[1].Conditions[0].ID)
	})
	p.sendSignal(3*minute, protocol.Rollback, `{"channel":"prod","by":"alice","reason":"errors"}`)
	p.atStatus(3*minute+second, func(s protocol.Status) {
		require.Equal(t, "v2", s.Channels[1].Current)
	})
	p.completeApply(4*minute, "v3 to staging")
	p.run(firstInput, minute)
	require.Equal(t, []string{"apply v2 to prod"}, p.startedActivities("keep")[6:])
	require.Equal(t, []string{"v2 to prod"}, p.urgent, "no worker puts a rollback off")
}
