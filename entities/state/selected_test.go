package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// Who knows steps alone must not take a policy by a command for none: it neither decides the state, nor lets a release in by the spec.
func TestPolicyByCommandHasAFormOfItsOwn_D24(t *testing.T) {
	s, c := New("shop", "web"), entities.ChannelSpec{Name: "prod"}
	c.RollOut(entities.Rollout{MaxUnavailable: &entities.Amount{Number: 1}})
	s.Spec = &entities.Spec{Channels: []entities.ChannelSpec{c}}
	require.Equal(t, Stepped, s.Form())
	require.Equal(t, []entities.Condition{{ID: "rollout", Kind: entities.InSteps}}, c.Conditions)

	c = entities.ChannelSpec{Name: "prod"}
	c.RollOut(entities.Rollout{Command: []string{"./select.sh"}})
	s.Spec.Channels[0] = c
	require.Equal(t, Selected, s.Form())
	require.Equal(t, []entities.Condition{{ID: "rollout", Kind: entities.InSteps}, {ID: "rollout-command", Kind: entities.BySelection}}, c.Conditions)
	require.LessOrEqual(t, Selected, Newest)
}
