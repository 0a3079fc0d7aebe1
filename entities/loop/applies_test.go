package loop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// applyApprovalWorld is a channel on a runtime where every apply is approved, with two waiting releases of one version.
func applyApprovalWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.channel("prod", func(*entities.ChannelSpec) {})
	for _, rt := range w.next.Runtimes {
		rt.ApproveApplies = true
	}
	w.publish()
	w.firstReadings()
	w.open("v1", "v1", "first")
	w.open("v1", "v1", "second")
	return w
}

func (w *world) voteOnApply(reject bool, who string) (string, error) {
	return perform(w.s.Approve("v1", entities.Approval{Topic: "apply/prod", Who: entities.Who{Name: who}, At: w.now, Reject: reject}))
}

// The approval of an apply is for one release: after its cancellation, another release of the same version needs its own.
func TestApprovalOfAnApplyIsForOneRelease_C10(t *testing.T) {
	t.Parallel()
	w := applyApprovalWorld(t)
	_, err := w.voteOnApply(false, "alice")
	require.NoError(t, err)
	_, err = perform(w.s.Cancel(state.Cancellation{Version: "v1", Who: entities.Who{Name: "alice"}, Reason: "not this one"}, w.now))
	require.NoError(t, err)
	w.decide(decide.Mode{})
	w.applyAll()
	require.Equal(t, maestro.Pending, w.s.ReleaseByID("second").Phases["prod"].Phase)
}

// An approved apply can be rejected until it starts.
func TestApprovedApplyCanBeRejected_C10(t *testing.T) {
	t.Parallel()
	w := applyApprovalWorld(t)
	_, err := w.voteOnApply(false, "alice")
	require.NoError(t, err)
	_, err = w.voteOnApply(true, "bob")
	require.NoError(t, err)
	require.Equal(t, maestro.Cancelled, w.s.ReleaseByID("first").Phases["prod"].Phase)
}
