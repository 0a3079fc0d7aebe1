package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/converge-engine/converge/entities/protocol"
)

// A history has the place of a checkpoint, or another one after a restore. A lost attempt of a workflow task is not such a history.
func TestHistoryAtThePlaceOfACheckpoint_F1(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	event := func(id int64, after time.Duration) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{EventId: id, EventTime: timestamppb.New(at.Add(after))}
	}
	scheduled := func(id int64, after time.Duration, attempt int32) *historypb.HistoryEvent {
		e := event(id, after)
		e.Attributes = &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{
			WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{Attempt: attempt},
		}
		return e
	}
	c := protocol.Checkpoint{Event: 45, At: at}
	for name, of := range map[string]struct {
		backwards []*historypb.HistoryEvent
		other     bool
	}{
		"the same":                     {[]*historypb.HistoryEvent{event(47, time.Hour), event(46, 0), event(45, 0)}, false},
		"restored long before":         {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 1), event(43, time.Hour)}, true},
		"restored right before":        {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 1), event(43, -time.Hour)}, true},
		"restored, with a signal":      {[]*historypb.HistoryEvent{event(47, time.Hour), scheduled(46, time.Hour, 1), event(45, time.Hour), event(44, time.Hour), event(43, -time.Hour)}, true},
		"a lost attempt":               {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 3), event(43, -time.Hour)}, false},
		"a lost attempt, and a signal": {[]*historypb.HistoryEvent{event(46, time.Hour), scheduled(45, time.Hour, 3), event(44, time.Hour), event(43, -time.Hour)}, false},
		"restored, then a lost one":    {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 3), event(43, time.Hour)}, true},
	} {
		var place historyPlace
		decided, other := false, false
		for _, e := range of.backwards {
			require.False(t, decided, name)
			decided, other = place.read(c, e)
		}
		require.True(t, decided, name)
		require.Equal(t, of.other, other, name)
	}
}
