package state

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// A rollout goes in steps, and one with a command also evaluates that command.
func TestRolloutConditions_D24(t *testing.T) {
	c := entities.ChannelSpec{Name: "prod"}
	c.SetRollout(entities.Rollout{MaxUnavailable: &entities.Amount{Number: 1}})
	require.Equal(t, []entities.Condition{{ID: "rollout", Kind: entities.RolloutMarker}}, c.Conditions)

	c = entities.ChannelSpec{Name: "prod"}
	c.SetRollout(entities.Rollout{Command: []string{"./select.sh"}})
	require.Equal(t, []entities.Condition{{ID: "rollout", Kind: entities.RolloutMarker}, {ID: "rollout-command", Kind: entities.SelectionMarker}}, c.Conditions)
}
