package workflows

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// The last notice of an application counts, in the application's own order, regardless of the clocks of workers and of late arrivals.
func TestNoticesAreOrderedByTheApplication_D15_F6(t *testing.T) {
	type notice struct {
		incarnation int64
		order       [2]int64 // newest, count; zero: none
		clock       int      // seconds
		pinned      bool
	}
	for _, tt := range []struct {
		name    string
		notices []notice
		want    int64
	}{
		{"in order", []notice{{1, [2]int64{1, 7}, 0, false}, {2, [2]int64{2, 8}, 1, false}}, 2},
		{"the clock was set back", []notice{{1, [2]int64{1, 7}, 3600, false}, {2, [2]int64{2, 8}, 1, false}}, 2},
		{"one arrives late", []notice{{2, [2]int64{2, 8}, 1, false}, {1, [2]int64{1, 7}, 3600, false}}, 2},
		{"a pin arrives late", []notice{{2, [2]int64{2, 9}, 1, false}, {1, [2]int64{2, 8}, 3600, true}}, 2},
		{"an unpin after the clock was set back", []notice{{1, [2]int64{2, 8}, 3600, true}, {2, [2]int64{2, 9}, 1, false}}, 2},
		{"the same again", []notice{{1, [2]int64{2, 8}, 0, true}, {1, [2]int64{2, 8}, 0, true}}, 1},
		{"the application was lost, and its count restarts", []notice{{1, [2]int64{5, 900}, 3600, true}, {6, [2]int64{6, 3}, 1, false}}, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newServiceTest(t)
			clock := p.env.Now().Add(-24 * time.Hour)
			for n, one := range tt.notices {
				p.sendSignal(time.Duration(n)*minute, protocol.Publish, fmt.Sprintf(
					`{"incarnation":%d,"hash":"h","spec":"s","store":"s","by":"ci","pinned":%t,"order":{"newest":%d,"count":%d},"at":%q}`,
					one.incarnation, one.pinned, one.order[0], one.order[1], clock.Add(time.Duration(one.clock)*second).Format(time.RFC3339)))
			}
			next := p.run(firstInput, minute)
			require.Equal(t, tt.want, p.stateOf(next).Spec.Incarnation)
			require.Empty(t, p.stateOf(next).Refused)
		})
	}
}

// Every notice comes after the one before, also in later runs, and after all notices that an application sent and lost.
func TestNoticesGrow(t *testing.T) {
	h := newApplicationTest(t)
	h.publish(0, 1)
	h.publish(second, 2)
	h.sendSignal(2*second, protocol.Pin, pinTo(1, "alice", ""))
	state := h.run(nil)
	again := newApplicationTest(t)
	again.sendSignal(second, protocol.Unpin, protocol.RequestMeta{By: "alice"})
	again.run(state)
	orders := append(h.orders, again.orders...)
	require.Len(t, orders, 4)
	for n := range orders[1:] {
		require.Negative(t, orders[n].Compare(orders[n+1]), "%v", orders)
	}

	lost := newApplicationTest(t)
	lost.storeAnswer.HighestIncarnation = 2 // the store knows the incarnations
	lost.sendSignal(0, protocol.Publish, publication(3))
	lost.run(nil)
	require.Positive(t, lost.orders[0].Compare(orders[3]))
}
