package workflows

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// C10, whatever comes in whatever order: no lease is held and waited for at once, or twice; none is granted
// while the limit is reached or the runtime is paused, nor before a rollback or one that came earlier; and
// when all give back what they hold, all are granted in the end.
func TestLedgerPropertyC10(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := ledger{&protocol.RuntimeState{}}
		now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
		wanted := map[string]bool{}
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "id")) })
		granted := func() {
			before, line := len(l.Held), append([]protocol.HeldLease(nil), l.Waiting...)
			for i, h := range l.grant(now) {
				require.Nil(t, l.Pause)
				require.Equal(t, line[i].ID, h.ID, "not in its turn")
				require.LessOrEqual(t, before+i+1, l.Limit)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				r := leaseOf("web", id.Draw(t, "lease"), rapid.IntRange(1, 4).Draw(t, "limit"))
				r.Rollback = rapid.Bool().Draw(t, "rollback")
				wasHeld := find(l.Held, r.ID) >= 0
				held, err := l.request(r, now)
				require.NoError(t, err)
				require.Equal(t, wasHeld, held)
				wanted[r.ID] = true
				granted()
			},
			"give": func(t *rapid.T) {
				lease := id.Draw(t, "lease")
				_, known := l.give(lease)
				require.Equal(t, wanted[lease], known)
				delete(wanted, lease)
				granted()
			},
			"pause": func(*rapid.T) { l.Pause = &entities.Pause{} },
			"resume": func(*rapid.T) {
				l.Pause = nil
				granted()
			},
			"ask": func(*rapid.T) {
				now = now.Add(11 * time.Minute)
				l.overdue(now)
				for _, h := range l.Held {
					require.True(t, h.Due.After(now), "asked without end")
				}
			},
			"": func(t *rapid.T) {
				seen := map[string]bool{}
				for _, list := range [][]protocol.HeldLease{l.Held, l.Waiting} {
					for _, h := range list {
						require.False(t, seen[h.ID])
						seen[h.ID] = true
					}
				}
				require.Equal(t, wanted, seen)
				for i := 1; i < len(l.Waiting); i++ {
					require.False(t, l.Waiting[i].Rollback && !l.Waiting[i-1].Rollback, "a rollback behind others")
				}
			},
		})
		l.Pause = nil
		for len(wanted) > 0 {
			granted()
			require.NotEmpty(t, l.Held, "nobody holds and nobody is granted")
			delete(wanted, l.Held[0].ID)
			l.give(l.Held[0].ID)
		}
	})
}
