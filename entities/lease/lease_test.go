package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func request(id string, limit int) entities.LeaseRequest {
	return entities.LeaseRequest{ID: id, Holder: "service/shop/web", Description: "shop/web", Limit: limit, Timeout: 10 * time.Minute}
}

// For any order of events: no lease is both held and waiting, or listed twice; none is granted while the limit is reached or the runtime is
// paused, nor before a rollback or an earlier request; and when all holders return their leases, all requests are granted in the end.
func TestLedgerProperty_C10(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &Ledger{}
		now := noon
		want := map[string]bool{}
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "id")) })
		granted := func() {
			before, waiting := len(l.Held), append([]entities.Lease(nil), l.Waiting...)
			for i, h := range l.Grant(now, l.Grantable()) {
				require.False(t, l.Paused)
				require.Equal(t, waiting[i].ID, h.ID, "not in order")
				require.LessOrEqual(t, before+i+1, l.Limit)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				r := request(id.Draw(t, "lease"), rapid.IntRange(1, 4).Draw(t, "limit"))
				r.Rollback = rapid.Bool().Draw(t, "rollback")
				wasHeld := Find(l.Held, r.ID) >= 0
				require.NoError(t, l.Check(r))
				require.Equal(t, wasHeld, l.Request(r, now) != nil)
				want[r.ID] = true
				granted()
			},
			"give": func(t *rapid.T) {
				lease := id.Draw(t, "lease")
				_, known := l.End(lease)
				require.Equal(t, want[lease], known)
				delete(want, lease)
				granted()
			},
			"pause": func(*rapid.T) { l.Paused = true },
			"resume": func(*rapid.T) {
				l.Paused = false
				granted()
			},
			"ask": func(*rapid.T) {
				now = now.Add(11 * time.Minute)
				l.TakeOverdue(now, 100)
				for _, h := range l.Held {
					require.True(t, h.NextQuery.After(now), "queried without a delay")
				}
			},
			"": func(t *rapid.T) {
				seen := map[string]bool{}
				for _, list := range [][]entities.Lease{l.Held, l.Waiting} {
					for _, h := range list {
						require.False(t, seen[h.ID])
						seen[h.ID] = true
					}
				}
				require.Equal(t, want, seen)
				for i := 1; i < len(l.Waiting); i++ {
					require.False(t, l.Waiting[i].Rollback && !l.Waiting[i-1].Rollback, "a rollback behind others")
				}
			},
		})
		l.Paused = false
		for len(want) > 0 {
			granted()
			require.NotEmpty(t, l.Held, "no lease is held and none is granted")
			delete(want, l.Held[0].ID)
			l.End(l.Held[0].ID)
		}
	})
}

// A holder that does not answer is queried every minute at first, then less and less often, until it answers.
func TestSilentHolderIsQueriedWithBackoff_C10(t *testing.T) {
	l := &Ledger{}
	l.Request(request("a", 1), noon)
	require.Len(t, l.Grant(noon, 100), 1)
	require.Empty(t, l.TakeOverdue(noon.Add(10*time.Minute-1), 100))
	var waits []time.Duration
	at := l.NextQuery()
	for range 12 {
		require.Len(t, l.TakeOverdue(at, 100), 1)
		waits = append(waits, l.NextQuery().Sub(at))
		at = l.NextQuery()
	}
	m := time.Minute
	require.Equal(t, []time.Duration{m, m, m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, 60 * m, 60 * m, 60 * m, 60 * m}, waits)
	l.Confirm("a", at)
	require.Equal(t, at.Add(10*m), l.NextQuery())
	require.Zero(t, l.Held[0].UnansweredQueries)
}

// An undelivered grant is delivered again after a minute. It is not a query.
func TestUndeliveredGrantIsRepeated_C10(t *testing.T) {
	l := &Ledger{}
	l.Request(request("a", 1), noon)
	l.Grant(noon, 100)
	l.Delivered("a", true, noon.Add(time.Minute))
	require.Equal(t, noon.Add(10*time.Minute), l.NextQuery(), "as expected")
	l.Delivered("a", false, noon)
	require.Equal(t, noon.Add(time.Minute), l.NextQuery())
	again := l.TakeOverdue(noon.Add(time.Minute), 100)
	require.Len(t, again, 1)
	require.True(t, again[0].Undelivered)
	require.Zero(t, again[0].UnansweredQueries)
	l.Delivered("a", true, noon.Add(time.Minute))
	require.Equal(t, noon.Add(11*time.Minute), l.NextQuery())
	l.Delivered("gone", true, noon)
}

// A holder that no longer exists loses its held and waiting leases; the others keep theirs.
func TestLostHolder(t *testing.T) {
	l := &Ledger{}
	for _, id := range []string{"a", "b", "c"} {
		r := request(id, 1)
		if id != "b" {
			r.Holder = "service/shop/ghost"
		}
		l.Request(r, noon)
	}
	l.Grant(noon, 100)
	lost := l.EndAll("service/shop/ghost")
	require.Equal(t, `"a", "c"`, IDs(lost))
	require.Equal(t, "none", IDs(l.Held))
	require.Equal(t, `"b"`, IDs(l.Waiting))
	require.Zero(t, l.NextQuery())
}

// A lease belongs to its first requester: no other holder can use its id.
func TestLeaseIDBelongsToItsHolder(t *testing.T) {
	l := &Ledger{Limit: 1}
	l.Request(entities.LeaseRequest{ID: "1", Holder: "a", Limit: 1}, time.Time{})
	require.NoError(t, l.CheckHolder(entities.LeaseRequest{ID: "1", Holder: "a"}))
	require.NoError(t, l.CheckHolder(entities.LeaseRequest{ID: "2", Holder: "b"}))
	require.EqualError(t, l.CheckHolder(entities.LeaseRequest{ID: "1", Holder: "b"}), `lease "1" belongs to a, not to b`)
	l.Grant(time.Time{}, 1)
	require.Error(t, l.CheckHolder(entities.LeaseRequest{ID: "1", Holder: "b"}))
}

// The number of waiting leases is bounded; a lease that waits already keeps its position.
func TestWaitingLeasesAreBounded(t *testing.T) {
	l := &Ledger{Limit: 1, Waiting: make([]entities.Lease, MaxWaiting)}
	l.Waiting[7].ID = "seventh"
	require.EqualError(t, l.Check(request("late", 1)), "10000 leases are already waiting; try again later")
	require.NoError(t, l.Check(request("seventh", 1)))
	require.Equal(t, `"seventh"`, IDs(l.Waiting[7:8]))
	require.Contains(t, IDs(l.Waiting), "9992 more")
}

func TestLeaseName(t *testing.T) {
	require.Equal(t, "shop/web", request("a", 2).Name())
	require.Equal(t, "a", entities.LeaseRequest{ID: "a"}.Name())
}
