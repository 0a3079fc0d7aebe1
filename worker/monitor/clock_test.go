package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The clock of a machine is compared with the start times of tasks. Tasks that were delayed, alone or all at once, are no wrong clock, and a
// clock that was set right is right at once.
func TestClockOffset(t *testing.T) {
	var now time.Time
	type answer struct {
		after, ahead time.Duration // since the previous one; of the server's clock
	}
	const minute, second = time.Minute, time.Second
	for name, tt := range map[string]struct {
		answers []answer
		want    time.Duration
	}{
		"nothing was measured":                 {nil, 0},
		"one task":                             {[]answer{{0, 10 * minute}}, 0},
		"a right clock":                        {[]answer{{0, 3 * time.Millisecond}, {second, 2 * time.Millisecond}}, 2 * time.Millisecond},
		"a clock that is ahead":                {[]answer{{0, 10 * minute}, {2 * second, 10*minute + second}, {second, 11 * minute}}, 10 * minute},
		"a clock that is behind":               {[]answer{{0, -10 * minute}, {2 * second, -10*minute + second}}, -10*minute + second},
		"the process was suspended":            {[]answer{{0, 0}, {10 * minute, 9 * minute}, {second, 0}}, 0},
		"many answers were delayed, all alike": {[]answer{{0, 5 * minute}, {0, 5 * minute}, {time.Millisecond, 5 * minute}}, 0},
		"the clock was set right":              {[]answer{{0, 10 * minute}, {second, 10 * minute}, {second, 10 * minute}, {second, 0}}, 0},
		"the clock was set wrong": {[]answer{
			{0, 0}, {second, minute}, {second, minute}, {second, minute}, {second, minute}, {second, minute},
		}, minute},
	} {
		t.Run(name, func(t *testing.T) {
			var p Polls
			now = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
			for n, a := range tt.answers {
				now = now.Add(a.after)
				started := timestamppb.New(now.Add(-a.ahead))
				p.clock.recordTask(&workflowservice.PollWorkflowTaskQueueResponse{}, now) // a poll without a task
				if n%2 == 0 {
					p.clock.recordTask(&workflowservice.PollActivityTaskQueueResponse{StartedTime: started}, now)
				} else {
					p.clock.recordTask(&workflowservice.PollWorkflowTaskQueueResponse{StartedTime: started}, now)
				}
			}
			require.Equal(t, tt.want, p.ClockOffset())
		})
	}
}
