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

// The text of an approval names those who can still give it, and says so if no one can.
func TestWhoCanStillApprove_A14(t *testing.T) {
	for _, c := range []struct {
		approvers   []string
		need        int
		notReleaser bool
		given       []string
		want        string
	}{
		{nil, 1, false, nil, "0 of 1, by any caller"},
		{nil, 2, true, []string{"bob"}, "1 of 2 (bob), by any caller except alice (the releaser), bob"},
		{[]string{"bob", "carol", "alice"}, 1, true, nil, "0 of 1, by any of bob, carol"},
		{[]string{"bob", "carol", "alice"}, 2, true, []string{"bob"}, "1 of 2 (bob), by carol"},
		{[]string{"bob", "group:sre"}, 2, true, []string{"bob"}, "1 of 2 (bob), by any of group:sre except alice (the releaser), bob"},
		{[]string{"alice"}, 1, true, nil, "0 of 1; no one else may approve it (alice released it)"},
		{[]string{"alice", "bob"}, 2, true, nil, "0 of 2; too few others may approve it: bob (alice released it)"},
	} {
		s := New("shop", "web")
		s.Spec = &entities.Spec{}
		r := &Release{By: "alice"}
		for _, name := range c.given {
			r.Approvals = append(r.Approvals, entities.Approval{Topic: "go-live", Who: entities.Who{Name: name}})
		}
		condition := entities.Condition{Topic: "go-live", Approvers: c.approvers, MinApprovers: c.need, NotReleaser: c.notReleaser}
		require.Equal(t, c.want, s.ApprovalText(r, "production", condition))
	}
}

// Who may give an approval is in the lists of the condition and of the grants, and has not given it, and is not the releaser.
func TestEligibleApprovers_A14_G2(t *testing.T) {
	s := New("shop", "web")
	s.Spec = &entities.Spec{Grants: []entities.Grant{{Verbs: []string{"approve"}, To: []string{"group:sre", "bob"}}}}
	r := &Release{By: "alice", Approvals: []entities.Approval{{Topic: "go-live", Who: entities.Who{Name: "bob"}}}}
	e := s.EligibleApprovers(r, "production", entities.Condition{Topic: "go-live", Approvers: []string{"bob", "carol", "group:lead"}, MinApprovers: 2, NotReleaser: true})
	for who, may := range map[*entities.Who]bool{
		{Name: "bob"}:                                    false, // has approved
		{Name: "carol"}:                                  false, // no grant
		{Name: "carol", Groups: []string{"sre"}}:         true,
		{Name: "dave", Groups: []string{"sre"}}:          false, // not named
		{Name: "dave", Groups: []string{"sre", "lead"}}:  true,
		{Name: "alice", Groups: []string{"sre", "lead"}}: false, // the releaser
	} {
		require.Equal(t, may, e.Includes(*who), "%+v", *who)
	}
	require.True(t, e.Includes(entities.Who{Name: "dave", MoreGroups: 3}), "a group that is not known may name him")
	s.Spec.Grants[0].Channels = []string{"staging"}
	e = s.EligibleApprovers(r, "production", entities.Condition{Topic: "go-live"})
	require.False(t, e.Includes(entities.Who{Name: "eve", Groups: []string{"sre"}}), "no grant is for production")
	require.True(t, s.EligibleForApplies("staging").Includes(entities.Who{Name: "bob"}))
	require.False(t, s.EligibleForApplies("staging").Includes(entities.Who{Name: "eve"}))
	require.False(t, s.EligibleForApplies("production").Includes(entities.Who{Name: "bob"}))
	s.Spec.Grants = nil
	require.Nil(t, s.EligibleForApplies("production"), "everybody can")
	require.True(t, (*entities.Eligible)(nil).Includes(entities.Who{Name: "anyone"}))
}
