package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func TestRunningListsStartDeadlinePlaceAndOutput_A13(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 50, 0, 0, time.UTC)
	all := []protocol.Progress{
		{Channel: "prod", Description: "extension smoke of v2", Place: "Job shop/smoke-1", Tail: "a\n\n b ", Since: now.Add(-time.Minute), Until: now.Add(9 * time.Minute)},
		{Channel: "staging", Description: "removal", Since: now.Add(-time.Second)},
		{Channel: "prod", Description: "apply of v2", Since: now.Add(-time.Minute), PutOff: 3},
		{Channel: "prod", Description: "apply of v3", Since: now.Add(-time.Minute), Until: now.Add(9 * time.Minute), PutOff: 3},
	}
	require.Equal(t, strings.TrimSpace(`
running in prod: extension smoke of v2, since 10:49 UTC (1m ago), times out by 10:59:00 UTC (in 9m), as Job shop/smoke-1
  | a
  | b
running in staging: removal, since 10:49 UTC (1s ago)
put off in prod: apply of v2, since 10:49 UTC (1m ago): workers begin no more changes than the Temporal server keeps up with
running in prod: apply of v3, since 10:49 UTC (1m ago), times out by 10:59:00 UTC (in 9m)`), strings.Join(Running(all, "", now), "\n"))
	require.Len(t, Running(all, "staging", now), 1)
	require.Empty(t, Running(nil, "", now))
}

// The holders of the leases that a channel waits for are named, at least the first ones.
func TestLeaseHolders_C10(t *testing.T) {
	now := time.Date(2026, 11, 20, 3, 15, 0, 0, time.UTC)
	lease := func(what string, minutes int) entities.Lease {
		return entities.Lease{LeaseRequest: entities.LeaseRequest{Description: what}, Since: now.Add(-time.Duration(minutes) * time.Minute)}
	}
	status := protocol.RuntimeStatus{Runtime: "edge", Held: []entities.Lease{lease("shop/api prod v3", 25)}, Waiting: []entities.Lease{lease("shop/web prod v9", 2)}}
	require.Equal(t, []string{"Leases on runtime/edge: 1 held, 1 waiting:", " shop/api prod v3, since 02:50 UTC (25m ago)"}, LeaseHolders(status, now))
	for range 9 {
		status.Held = append(status.Held, lease("shop/db prod v1", 1))
	}
	require.Len(t, LeaseHolders(status, now), 1+maxShownLeases+1)
	require.Equal(t, " and 5 more", LeaseHolders(status, now)[6])
	require.Empty(t, LeaseHolders(protocol.RuntimeStatus{Runtime: "edge"}, now))
}
