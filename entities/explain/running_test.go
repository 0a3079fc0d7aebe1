package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

func TestRunningSaysSinceWhenUntilWhenWhereAndWhat_A13(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 50, 0, 0, time.UTC)
	all := []protocol.Progress{
		{Channel: "prod", What: "extension smoke of v2", Place: "Job shop/smoke-1", Tail: "a\n\n b ", Since: now.Add(-time.Minute), Until: now.Add(9 * time.Minute)},
		{Channel: "staging", What: "removal", Since: now.Add(-time.Second)},
	}
	require.Equal(t, strings.TrimSpace(`
running in prod: extension smoke of v2, since 10:49 UTC (1m ago), is ended by 10:59:00 UTC (in 9m), as Job shop/smoke-1
  | a
  | b
running in staging: removal, since 10:49 UTC (1s ago)`), strings.Join(Running(all, "", now), "\n"))
	require.Len(t, Running(all, "staging", now), 1)
	require.Empty(t, Running(nil, "", now))
}
