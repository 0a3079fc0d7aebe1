package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// An instance keeps approvals of applies of several versions, and they survive a rename of the channel.
func TestApprovalsOfApplies_C10_A14(t *testing.T) {
	id := entities.InstanceID{Channel: "prod"}
	s := New("shop", "web")
	i := s.Instance(id)
	of := func(version string) *entities.Approval {
		return &entities.Approval{Topic: ApplyTopic + "prod", Version: version, Who: entities.Who{Name: "alice"}}
	}
	i.Approval.Asked = time.Unix(1, 0)
	i.Approval.give(of("v1"))
	require.Zero(t, i.Approval.Asked)
	i.Approval.give(of("v2"))
	i.Approval.give(of("v2"))
	require.True(t, i.Approves("v1") && i.Approves("v2") && !i.Approves("v3"))
	require.Len(t, i.Approval.Also, 1)

	i.renameTopic("prod", "production")
	require.Equal(t, ApplyTopic+"production", i.Approval.Of("v1").Topic)
	require.Equal(t, ApplyTopic+"production", i.Approval.Of("v2").Topic)

	i.Approval.drop(func(a *entities.Approval) bool { return a.Version == "v2" })
	require.True(t, i.Approves("v1") && !i.Approves("v2"))
}
