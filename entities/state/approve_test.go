package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// Approvals of applies of several versions stand beside each other, go by the channel's new name, and are the form of a state that an
// earlier worker would forget one of.
func TestApprovalsOfApplies_C10_A14_F3(t *testing.T) {
	id := entities.InstanceID{Channel: "prod"}
	s := New("shop", "web")
	i := s.Instance(id)
	of := func(version string) *entities.Approval {
		return &entities.Approval{Topic: ApplyTopic + "prod", Version: version, Who: entities.Who{Name: "alice"}}
	}
	i.Approval.Asked = time.Unix(1, 0)
	i.Approval.give(of("v1"))
	require.Zero(t, i.Approval.Asked)
	require.Equal(t, Version, s.Form())
	i.Approval.give(of("v2"))
	i.Approval.give(of("v2"))
	require.True(t, i.Approves("v1") && i.Approves("v2") && !i.Approves("v3"))
	require.Len(t, i.Approval.Also, 1)
	require.Equal(t, Approved, s.Form())

	i.renameTopic("prod", "production")
	require.Equal(t, ApplyTopic+"production", i.Approval.Of("v1").Topic)
	require.Equal(t, ApplyTopic+"production", i.Approval.Of("v2").Topic)

	i.Approval.drop(func(a *entities.Approval) bool { return a.Version == "v2" })
	require.True(t, i.Approves("v1") && !i.Approves("v2"))
	alone := of("v3")
	alone.Alone = true
	i.Approval.give(alone)
	require.True(t, i.Approves("v3") && !i.Approves("v1"), "by an earlier logic it takes the place of all others")
	require.Equal(t, Version, s.Form())
}
