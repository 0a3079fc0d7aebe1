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
	looks  []entities.CheckLook // that it stands for
	here   bool                 // in this worker: it is over in no time
	cancel workflow.CancelFunc
}

// arrangeChecks makes the checks under observation what should be. All of a service are looked at by
// one activity, and one that looks at more than is wanted is left alone until it has news: replacing
// it would cost more history than it saves.
func (s *service) arrangeChecks() {
	if s.ending() && s.atRest() || s.woken {
		return // the next run, or the next turn, which comes at once, starts its own
	}
	wanted := s.withoutPreflights(s.state.CheckLooks())
	if c := s.checking; c != nil {
		if len(wanted) > 0 && covers(c.looks, wanted) {
			return
		}
		c.cancel()
		s.checking = nil
	}
	if len(wanted) == 0 || s.outages.open(theChecks) {
		return
	}
	if unseen := unseen(wanted); offline(unseen) {
		s.glance(wanted, unseen)
		return
	}
	s.startChecking(wanted)
}

// withoutPreflights leaves out what a preflight is reading anyway.
func (s *service) withoutPreflights(looks []entities.CheckLook) []entities.CheckLook {
	return slices.DeleteFunc(looks, func(l entities.CheckLook) bool {
		p := s.state.Instance(l.Channel).Preflight
		return p != nil && p.Running && !p.Window && l.Release != "" && p.Release == l.Release
	})
}

func unseen(looks []entities.CheckLook) (out []entities.CheckLook) {
	for _, l := range looks {
		if l.Known == "" {
			out = append(out, l)
		}
	}
	return out
}

// offline: there are looks, and nobody needs to be asked for any of them.
func offline(looks []entities.CheckLook) bool {
	return len(looks) > 0 && !slices.ContainsFunc(looks, func(l entities.CheckLook) bool { return !l.Kind.Offline() })
}

// glance takes the first look at checks that ask nobody, in this worker and within the present
// workflow task: most often they pass, and no look at them need be kept up. The wanted ones that are
// known are not looked at meanwhile.
func (s *service) glance(wanted, unseen []entities.CheckLook) {
	c := &checking{looks: wanted, here: true}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.ctx)
	s.checking = c
	s.busy++
	future := s.judgeHere(ctx, unseen)
	workflow.Go(ctx, func(ctx workflow.Context) {
		s.checked(ctx, c, unseen, future)
		s.busy--
		s.woken = true
	})
}

// judgeHere judges checks that ask nobody, once. The time is for a store that is slow to say what
// their definitions are.
func (s *service) judgeHere(ctx workflow.Context, looks []entities.CheckLook) workflow.Future {
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: 30 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}), protocol.ActivityPreflight, s.checkRequest(looks))
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
	workflow.Go(ctx, func(ctx workflow.Context) { s.checked(ctx, c, looks, future) })
}

// checked takes in what a look at checks saw. That it did not end by itself says nothing about what
// it looked at, so that every check of it is an ERROR, and it is begun anew a little later.
func (s *service) checked(ctx workflow.Context, c *checking, looks []entities.CheckLook, future workflow.Future) {
	var answer protocol.CheckAnswer
	err := future.Get(ctx, &answer)
	if s.checking != c {
		return // replaced meanwhile
	}
	s.checking, s.woken = nil, true
	now := workflow.Now(ctx)
	if err != nil {
		s.backOff(theChecks, err)
		answer.Readings = unjudged(looks, err, now)
	} else {
		s.outages[theChecks] = outage{}
	}
	for _, l := range looks {
		if reading, seen := answer.Readings[l.Key()]; seen {
			s.state.CheckSeen(l, reading, now)
			l.Known = ""
			s.justRead[l] = reading
		}
	}
}

// justReadFor is how far a reading may be from the present moment to stand for it. It may be after it:
// the clock of a workflow stands still during its task.
const justReadFor = 2 * time.Second

// readJustNow returns the readings of all looks, if what woke this turn brought them: asking again in
// the same breath would tell nothing new.
func (s *service) readJustNow(looks []entities.CheckLook) (map[string]entities.CheckReading, bool) {
	now, out := workflow.Now(s.ctx), map[string]entities.CheckReading{}
	for _, l := range looks {
		l.Known = ""
		reading, read := s.justRead[l]
		if !read || now.Sub(reading.At).Abs() > justReadFor {
			return nil, false
		}
		out[l.Key()] = reading
	}
	return out, true
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
