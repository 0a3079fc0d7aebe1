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
	i.Approval.WaitingSince = time.Unix(1, 0)
	i.Approval.add(of("v1"))
	require.Zero(t, i.Approval.WaitingSince)
	i.Approval.add(of("v2"))
	i.Approval.add(of("v2"))
	require.True(t, i.ApplyApproved("v1") && i.ApplyApproved("v2") && !i.ApplyApproved("v3"))
	require.Len(t, i.Approval.Others, 1)

	i.renameTopic("prod", "production")
	require.Equal(t, ApplyTopic+"production", i.Approval.For("v1").Topic)
	require.Equal(t, ApplyTopic+"production", i.Approval.For("v2").Topic)

	i.Approval.remove(func(a *entities.Approval) bool { return a.Version == "v2" })
	require.True(t, i.ApplyApproved("v1") && !i.ApplyApproved("v2"))
}
