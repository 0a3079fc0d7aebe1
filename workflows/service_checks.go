package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// checkTimeout is for one round of looks at all checks of a service: commands and Jobs may take minutes
// (ten at most), and heartbeats tell of a lost worker before that.
const checkTimeout = 11 * time.Minute

// checking is the look at checks that is under way: it returns when one is not as known.
type checking struct {
	looks  []entities.CheckLook
	cancel workflow.CancelFunc
}

// arrangeChecks makes the checks under observation what should be. All of a service are looked at by
// one activity, and one that looks at more than is wanted is left alone until it has news: replacing
// it would cost more history than it saves.
func (s *service) arrangeChecks() {
	if s.ending() && s.atRest() {
		return // the next run starts its own
	}
	wanted := s.state.CheckLooks()
	if c := s.checking; c != nil {
		if len(wanted) > 0 && covers(c.looks, wanted) {
			return
		}
		c.cancel()
		s.checking = nil
	}
	if len(wanted) > 0 && !s.outages.open(theChecks) {
		s.startChecking(wanted)
	}
}

func covers(looks, wanted []entities.CheckLook) bool {
	return !slices.ContainsFunc(wanted, func(l entities.CheckLook) bool { return !slices.Contains(looks, l) })
}

func (s *service) startChecking(looks []entities.CheckLook) {
	c := &checking{looks: looks}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.ctx)
	s.checking = c
	interval := time.Second
	for _, l := range looks {
		interval = max(interval, l.Interval)
	}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: checkTimeout, HeartbeatTimeout: heartbeat,
		// The activity asks for its next attempt itself; the policy must not be slower than it asks.
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: interval},
		Summary:     checksSummary(looks),
	}), protocol.ActivityCheck, s.checkRequest(looks))
	workflow.Go(ctx, func(ctx workflow.Context) { s.checked(ctx, c, future) })
}

// checked takes in what a look at checks saw. That it did not end by itself says nothing about what
// it looked at, so that every check of it is an ERROR, and it is begun anew a little later.
func (s *service) checked(ctx workflow.Context, c *checking, future workflow.Future) {
	var answer protocol.CheckAnswer
	err := future.Get(ctx, &answer)
	if s.checking != c {
		return // replaced meanwhile
	}
	s.checking, s.woken = nil, true
	now := workflow.Now(ctx)
	if err != nil {
		s.backOff(theChecks, err)
		answer.Readings = unjudged(c.looks, err, now)
	} else {
		s.outages[theChecks] = outage{}
	}
	for _, l := range c.looks {
		if reading, seen := answer.Readings[l.Key()]; seen {
			s.state.CheckSeen(l, reading, now)
		}
	}
}

func (s *service) checkRequest(looks []entities.CheckLook) protocol.CheckRequest {
	return protocol.CheckRequest{
		Application: s.state.Application, Service: s.state.Service, ServiceID: s.state.Spec.ServiceID, Looks: looks,
	}
}

// checksSummary names the first checks of a look for the Temporal UI.
func checksSummary(looks []entities.CheckLook) string {
	text := "watch checks"
	for n, l := range looks {
		if n == 4 {
			text += fmt.Sprintf(" and %d more", len(looks)-n)
			break
		}
		text += " " + l.Key()
	}
	return clip(text, maxSummary)
}
