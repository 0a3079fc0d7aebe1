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

// checkTimeout is for one round of evaluating all checks of a service: commands and Jobs may take minutes
// (ten at most), and heartbeats tell of a lost worker before that.
const checkTimeout = 11 * time.Minute

// checking is the evaluation of checks that is under way: it returns when one is not as known.
type checking struct {
	checks  []entities.Evaluation // that it stands for
	runtime string                // whose own worker evaluates them; "": any
	here    bool                  // in this worker: it is over in no time
	cancel  workflow.CancelFunc
}

// arrangeChecks makes the checks that are being evaluated what they should be. All of a service are evaluated by
// one activity, and one that evaluates more than is wanted is left alone until it has news: replacing
// it would cost more history than it saves.
func (s *service) arrangeChecks() {
	if s.leaving() || s.woken {
		return // the next run, or the next turn, which comes at once, starts its own
	}
	wanted := byRuntime(s.withoutPreflights(s.decision.Evaluations(s.state)))
	for _, runtime := range entities.SortedKeys(s.checking) {
		if wanted[runtime] == nil {
			s.stopChecking(runtime)
		}
	}
	for _, runtime := range entities.SortedKeys(wanted) {
		s.arrangeChecksOf(runtime, wanted[runtime])
	}
}

func (s *service) stopChecking(runtime string) {
	s.checking[runtime].cancel()
	delete(s.checking, runtime)
}

// checksHere tells whether checks are being evaluated in this workflow task.
func (s *service) checksHere() bool {
	c := s.checking[""]
	return c != nil && c.here
}

// arrangeChecksOf does that for those which a runtime's own worker evaluates, or any.
func (s *service) arrangeChecksOf(runtime string, wanted []entities.Evaluation) {
	if c := s.checking[runtime]; c != nil {
		if covers(c.checks, wanted) {
			return
		}
		s.stopChecking(runtime)
	}
	if s.outages.open(theChecks) {
		return
	}
	unknown := slices.DeleteFunc(slices.Clone(wanted), func(e entities.Evaluation) bool { return e.Known != "" })
	if offline(unknown) {
		s.evaluateFirst(wanted, unknown)
		return
	}
	s.startChecking(runtime, wanted)
}

// queueOfChecks is where checks are evaluated that a runtime's own worker evaluates, or any.
func queueOfChecks(runtime string) string {
	if runtime == "" {
		return ""
	}
	return protocol.RuntimeTaskQueue(runtime)
}

// withoutPreflights leaves out what a preflight is evaluating anyway.
func (s *service) withoutPreflights(checks []entities.Evaluation) []entities.Evaluation {
	return slices.DeleteFunc(checks, func(e entities.Evaluation) bool {
		c := s.state.Channels[e.Channel]
		return c != nil && c.Preflight != nil && c.Preflight.Running && !c.Preflight.Window && e.Release != "" && c.Preflight.Release == e.Release
	})
}

// offline: there are checks, and nobody needs to be asked for any of them.
func offline(checks []entities.Evaluation) bool {
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(e entities.Evaluation) bool { return !e.Kind.Offline() })
}

// evaluateFirst evaluates checks that ask nobody for the first time, in this worker and within the present
// workflow task: most often they pass, and nothing need be kept up. The wanted ones that are
// known are not evaluated meanwhile.
func (s *service) evaluateFirst(wanted, unknown []entities.Evaluation) {
	c := &checking{checks: wanted, here: true}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.work)
	s.checking[""] = c
	future := s.evaluateHere(ctx, unknown)
	s.await(func(ctx workflow.Context) { s.checked(ctx, c, unknown, future) })
}

// evaluateHere evaluates checks that ask nobody, once. The time is for a store that is slow to say what
// their definitions are.
func (s *service) evaluateHere(ctx workflow.Context, checks []entities.Evaluation) workflow.Future {
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: 30 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}), protocol.ActivityPreflight, s.checkRequest(checks))
}

func covers(checks, wanted []entities.Evaluation) bool {
	return !slices.ContainsFunc(wanted, func(w entities.Evaluation) bool {
		return !slices.ContainsFunc(checks, func(e entities.Evaluation) bool { return e.Known == w.Known && e.Question() == w.Question() })
	})
}

func (s *service) startChecking(runtime string, checks []entities.Evaluation) {
	c := &checking{checks: checks, runtime: runtime}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.work)
	s.checking[runtime] = c
	queue := queueOfChecks(runtime)
	interval := time.Second
	for _, e := range checks {
		interval = max(interval, e.Interval)
	}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: queue, ScheduleToStartTimeout: absence(queue, s.absent[runtime], s.now()),
		StartToCloseTimeout: checkTimeout, HeartbeatTimeout: heartbeat,
		// The activity asks for its next attempt itself; the policy must not be slower than it asks.
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: interval},
		Summary:     checksSummary(checks),
	}), protocol.ActivityCheck, s.checkRequest(checks))
	workflow.Go(ctx, func(ctx workflow.Context) { s.checked(ctx, c, checks, future) })
}

// checked takes in what evaluating checks gave. That it did not end by itself says nothing about what
// was to be checked, so that every check of it is an ERROR, and it is begun anew a little later.
func (s *service) checked(ctx workflow.Context, c *checking, checks []entities.Evaluation, future workflow.Future) {
	var answer protocol.CheckAnswer
	err := future.Get(ctx, &answer)
	if s.checking[c.runtime] != c {
		return // replaced meanwhile
	}
	delete(s.checking, c.runtime)
	s.woken = true
	now := workflow.Now(ctx)
	switch {
	case c.runtime != "" && untaken(err):
		if s.absent[c.runtime].IsZero() {
			s.absent[c.runtime] = now
		}
	case err != nil:
		s.backOff(theChecks, err)
	default:
		s.outages[theChecks] = outage{}
		delete(s.absent, c.runtime)
	}
	if err != nil {
		answer.Readings = unevaluated(checks, err, now)
	}
	for _, e := range checks {
		if reading, seen := answer.Readings[e.Key()]; seen {
			s.state.Evaluated(e, reading, now)
			s.justRead[e.Question()] = reading
		}
	}
}

// justReadFor is how far a reading may be from the present moment to stand for it. It may be after it:
// the clock of a workflow stands still during its task.
const justReadFor = 2 * time.Second

// readJustNow returns the readings of all checks, if what woke this turn brought them: asking again in
// the same breath would tell nothing new.
func (s *service) readJustNow(checks []entities.Evaluation) (map[string]entities.CheckReading, bool) {
	out := map[string]entities.CheckReading{}
	for _, e := range checks {
		reading, read := s.justRead[e.Question()]
		if !read || s.now().Sub(reading.At).Abs() > justReadFor {
			return nil, false
		}
		out[e.Key()] = reading
	}
	return out, true
}

func (s *service) checkRequest(checks []entities.Evaluation) protocol.CheckRequest {
	return protocol.CheckRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID, Checks: checks, Keys: s.state.Keys(),
		Name: s.state.Spec.Name, Others: s.state.Spec.Others,
	}
}

// checksSummary names the first checks of an evaluation for the Temporal UI.
func checksSummary(checks []entities.Evaluation) string {
	return summary("watch checks" + firsts(checks, 4, entities.Evaluation.Key))
}

// firsts names the first of some things for a summary.
func firsts[T any](all []T, most int, name func(T) string) (text string) {
	for _, one := range all[:min(len(all), most)] {
		text += " " + name(one)
	}
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// tellErrors has people hear of checks that cannot be evaluated. A run that was begun when nobody did goes on so up to here.
func (s *service) tellErrors() {
	untold := s.state.Untold()
	if len(untold) == 0 || s.logic < protocol.LogicTellsErrors && !s.fromHere("tell-errors") {
		return
	}
	for _, u := range untold {
		s.state.Tell(u, s.now())
	}
}
