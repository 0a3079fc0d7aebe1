package deployment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// An unreadable runtime is found under any status of the channel: a pause of everything hides no outage.
func TestUnreadableRuntimeIsFoundUnderAnyStatus_F10(t *testing.T) {
	t.Parallel()
	down := &protocol.Unread{Code: "unreachable", Message: "connection refused"}
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{
		{Name: "prod", Runtime: "eks", Status: string(entities.StatusPaused), Unread: down},
		{Name: "staging", Runtime: "edge", Status: string(entities.StatusConverged)},
		{Name: "fleet", Status: string(entities.StatusFailed), Unread: down, Instances: []protocol.InstanceStatus{
			{Name: "eu-1", Runtime: "eu-1", Status: string(entities.StatusUnknown), Unread: down},
			{Name: "eu-2", Runtime: "eu-2", Status: string(entities.StatusFailed), Reason: "exit status 1"},
		}},
	}}
	require.Equal(t, map[string]unreadableRuntime{
		"eks":  {1, "shop/web prod: unreachable: connection refused", "shop/web"},
		"eu-1": {1, "shop/web fleet/eu-1: unreachable: connection refused", "shop/web"},
	}, unreadableByRuntime(s))

	likely, others := statusesToQuery()
	require.Contains(t, likely, string(entities.StatusUnknown), "queried first")
	require.NotContains(t, likely, string(entities.StatusPaused))
	asked := append(likely, others...)
	for _, status := range []entities.Status{entities.StatusPaused, entities.StatusRollingBack, entities.StatusFailed, entities.StatusUnknown, entities.StatusFailedRollback} {
		require.Contains(t, asked, string(status))
	}
	require.NotContains(t, asked, string(entities.StatusConverged))
}
