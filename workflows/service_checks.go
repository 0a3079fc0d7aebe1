package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/selection"
)

// checkTimeout is the timeout of one evaluation of all checks of a service. Commands and Jobs may take minutes (ten at most); heartbeats
// reveal a lost worker before that.
const checkTimeout = 11 * time.Minute

// checking is a running evaluation of checks. It returns when a result differs from the known one.
type checking struct {
	key     string                // in service.checking
	checks  []entities.Evaluation // that it covers
	runtime string                // whose remote worker evaluates them; "": any worker
	here    bool                  // in this worker: it ends within moments
	cancel  workflow.CancelFunc
}

// arrangeChecks starts and stops evaluations of checks as needed. One activity evaluates all checks of a service. An activity that
// evaluates more than is needed keeps running until it has news: replacing it would cost more history than it saves.
func (s *service) arrangeChecks() {
	if s.leaving() || s.woken {
		return // the next run, or the next turn, which follows at once, starts its own
	}
	wanted := s.inPartsByRuntime(s.withoutPreflights(s.decision.Evaluations(s.state)))
	for _, key := range entities.SortedKeys(s.checking) {
		if wanted[key] == nil {
			s.stopChecking(key)
		}
	}
	for _, key := range entities.SortedKeys(wanted) {
		s.arrangeChecksOf(key, wanted[key])
	}
}

// partOfChecks is how many checks of a service, in the spec's order, one activity evaluates at most, for a release and for a repair each.
// So its request and answer fit into a payload (F8).
const partOfChecks = 20

// inPartsByRuntime groups checks by the runtime whose remote worker evaluates them ("" for any worker), and by part. The key of the first
// part has no part number. A check's position in the spec determines its part, so that a check does not move to another part when one
// before it is over.
func (s *service) inPartsByRuntime(all []entities.Evaluation) map[string][]entities.Evaluation {
	if len(all) == 0 {
		return byRuntime(all)
	}
	type check struct{ channel, id string }
	places := map[check]int{}
	for n := range s.state.Spec.Channels {
		c := &s.state.Spec.Channels[n]
		for k := range c.Checks {
			places[check{c.Name, c.Checks[k].ID}] = len(places)
		}
	}
	out := map[string][]entities.Evaluation{}
	for _, e := range all {
		key := e.Runtime
		if part := places[check{e.Channel, e.ID}] / partOfChecks; part > 0 {
			key += fmt.Sprintf("/%d", part)
		}
		out[key] = append(out[key], e)
	}
	return out
}

func (s *service) stopChecking(key string) {
	s.checking[key].cancel()
	delete(s.checking, key)
}

// checksHere reports whether checks are being evaluated in this workflow task.
func (s *service) checksHere() bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, c := range s.checking {
		if c.here {
			return true
		}
	}
	return false
}

// arrangeChecksOf does this for the checks of one key.
func (s *service) arrangeChecksOf(key string, wanted []entities.Evaluation) {
	if c := s.checking[key]; c != nil {
		if covers(c.checks, wanted) {
			return
		}
		s.stopChecking(key)
	}
	if s.outages.open(theChecks) {
		return
	}
	unknown := slices.DeleteFunc(slices.Clone(wanted), func(e entities.Evaluation) bool { return e.Known != "" })
	if offline(unknown) {
		s.evaluateFirst(key, wanted, unknown)
		return
	}
	s.startChecking(key, wanted)
}

// queueOfChecks is the queue of a runtime's remote worker, or the common queue.
func queueOfChecks(runtime string) string {
	if runtime == "" {
		return ""
	}
	return protocol.RuntimeTaskQueue(runtime)
}

// withoutPreflights omits checks that a running preflight evaluates.
func (s *service) withoutPreflights(checks []entities.Evaluation) []entities.Evaluation {
	return slices.DeleteFunc(checks, func(e entities.Evaluation) bool {
		c := s.state.Channels[e.Channel]
		return c != nil && c.Preflight != nil && c.Preflight.Running && !c.Preflight.Window && e.Release != "" && c.Preflight.Release == e.Release
	})
}

// offline reports whether there are checks, and none of them calls an external system.
func offline(checks []entities.Evaluation) bool {
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(e entities.Evaluation) bool { return !e.Kind.Offline() })
}

// evaluateFirst evaluates offline checks for the first time, in this worker and within this workflow task: usually they pass, and no
// evaluation has to continue. Wanted checks with a known result are not evaluated.
func (s *service) evaluateFirst(key string, wanted, unknown []entities.Evaluation) {
	c := &checking{key: key, checks: wanted, here: true}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.work)
	s.checking[key] = c
	future := s.evaluateHere(ctx, s.checkRequest(unknown))
	s.await(func(ctx workflow.Context) { s.checked(ctx, c, unknown, future) })
}

// evaluateHere evaluates offline checks once. The timeout allows for a slow store, which has their definitions.
func (s *service) evaluateHere(ctx workflow.Context, request protocol.CheckRequest) workflow.Future {
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: 30 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}), protocol.ActivityPreflight, request)
}

// askPlans queries the plans that the service waits for, in this worker and within this workflow task, when one hinted that it lets the
// service enter (E1). The regular evaluation continues and covers plans that cannot be reached now.
func (s *service) askPlans() {
	hinted := s.hinted
	s.hinted = false
	if !hinted || s.leaving() {
		return
	}
	var asked []entities.Evaluation
	var releases []protocol.ReleaseStatus
	for _, e := range s.decision.Evaluations(s.state) {
		r := s.state.ReleaseByID(e.Release)
		if e.Kind != entities.CheckPlan || e.Runtime != "" || r == nil || r.OfAspect() {
			continue
		}
		asked = append(asked, e)
		releases = append(releases, protocol.ReleaseStatus{ID: r.ID, Version: r.FullVersion, Incarnation: r.Incarnation})
	}
	for len(asked) > 0 {
		n := len(asked)
		n = min(n, 2*partOfChecks)
		s.askPlansOf(asked[:n], releases[:n])
		asked, releases = asked[n:], releases[n:]
	}
}

func (s *service) askPlansOf(asked []entities.Evaluation, releases []protocol.ReleaseStatus) {
	request := s.checkRequest(asked)
	request.Releases = releases
	future := s.evaluateHere(s.work, request)
	s.await(func(ctx workflow.Context) {
		var answer protocol.CheckAnswer
		failed := func(e entities.Evaluation) bool { return answer.Readings[e.Key()].Verdict == entities.Error }
		if future.Get(ctx, &answer) == nil && !slices.ContainsFunc(asked, failed) {
			s.reads(asked, answer.Readings, workflow.Now(ctx))
		}
	})
}

// reads records readings of checks.
func (s *service) reads(checks []entities.Evaluation, readings map[string]entities.CheckReading, now time.Time) {
	for _, e := range checks {
		if reading, seen := readings[e.Key()]; seen {
			s.state.Evaluated(e, reading, now)
			s.justRead[e.Question()] = reading
		}
	}
}

func covers(checks, wanted []entities.Evaluation) bool {
	return !slices.ContainsFunc(wanted, func(w entities.Evaluation) bool {
		return !slices.ContainsFunc(checks, func(e entities.Evaluation) bool { return e.Known == w.Known && e.Question() == w.Question() })
	})
}

func (s *service) startChecking(key string, checks []entities.Evaluation) {
	runtime := checks[0].Runtime
	c := &checking{key: key, checks: checks, runtime: runtime}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.work)
	s.checking[key] = c
	queue := queueOfChecks(runtime)
	interval := time.Second
	for _, e := range checks {
		interval = max(interval, e.Interval)
	}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: queue, ScheduleToStartTimeout: absence(queue, s.absent[runtime], s.now()),
		StartToCloseTimeout: checkTimeout, HeartbeatTimeout: heartbeat,
		// The activity sets the delay of its next attempt; the policy must not be slower.
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: interval},
		Summary:     checksSummary(checks), Priority: s.priority(thenChecks),
	}), protocol.ActivityCheck, s.checkRequest(checks))
	workflow.Go(ctx, func(ctx workflow.Context) { s.checked(ctx, c, checks, future) })
}

// checked records the result of an evaluation. An evaluation that failed to complete says nothing about the subject of its checks, so each
// check is an ERROR, and it is started again a little later.
func (s *service) checked(ctx workflow.Context, c *checking, checks []entities.Evaluation, future workflow.Future) {
	var answer protocol.CheckAnswer
	err := future.Get(ctx, &answer)
	if s.checking[c.key] != c {
		return // replaced in the meantime
	}
	delete(s.checking, c.key)
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
	s.reads(checks, answer.Readings, now)
}

// justReadFor is how far a reading may be from the present moment to count as current. It may be later than now: the clock of a workflow
// does not advance during its task.
const justReadFor = 2 * time.Second

// readJustNow returns the readings of all checks if this turn was woken by them: another evaluation at the same moment would give nothing
// new.
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
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID, Checks: packedCandidates(checks), Keys: keysOf(checks, s.state.Keys()),
		Name: s.state.Spec.Name, Others: s.state.Spec.Others,
	}
}

// keysOf keeps, of the first names of renamed channels, only those of channels with a check.
func keysOf(checks []entities.Evaluation, all map[string]string) map[string]string {
	var out map[string]string
	for _, e := range checks {
		if key, renamed := all[e.Channel]; renamed {
			if out == nil {
				out = map[string]string{}
			}
			out[e.Channel] = key
		}
	}
	return out
}

// packedCandidates packs the candidates that a command selects from if there are hundreds of instances.
func packedCandidates(checks []entities.Evaluation) []entities.Evaluation {
	for n := range checks {
		if len(checks[n].Candidates) > mostCandidates {
			checks = slices.Clone(checks)
			for k := range checks {
				checks[k].Candidates = selection.Pack(checks[k].Candidates)
			}
			break
		}
	}
	return checks
}

// mostCandidates is the size in bytes up to which candidates are sent inline.
const mostCandidates = 8 << 10

// checksSummary names the first checks of an evaluation for the Temporal UI.
func checksSummary(checks []entities.Evaluation) string {
	return summary("watch checks" + firsts(checks, 4, entities.Evaluation.Key))
}

// firsts lists the first few items for a summary.
func firsts[T any](all []T, most int, name func(T) string) (text string) {
	for _, one := range all[:min(len(all), most)] {
		text += " " + name(one)
	}
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// tellErrors notifies people of checks that cannot be evaluated.
func (s *service) tellErrors() {
	untold := s.state.Untold()
	if len(untold) == 0 {
		return
	}
	for _, u := range untold {
		s.state.Tell(u, s.now())
	}
}
