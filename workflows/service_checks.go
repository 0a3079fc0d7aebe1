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

// checkRun is a running evaluation of checks. It returns when a result differs from the known one.
type checkRun struct {
	key     string                // in service.checkRuns
	checks  []entities.Evaluation // that it covers
	runtime string                // whose remote worker evaluates them; "": any worker
	local   bool                  // in this worker: it ends within moments
	cancel  workflow.CancelFunc
}

// arrangeChecks starts and stops evaluations of checks as needed. One activity evaluates all checks of a service. An activity that
// evaluates more than is needed keeps running until it has news: replacing it would cost more history than it saves.
func (s *service) arrangeChecks() {
	if s.readyToEnd() || s.woken {
		return // the next run, or the next reconciliation, which follows at once, starts its own
	}
	wanted := s.groupByRuntimeAndPart(s.withoutPreflights(s.decision.Evaluations(s.state)))
	for _, key := range entities.SortedKeys(s.checkRuns) {
		if wanted[key] == nil {
			s.stopCheckRun(key)
		}
	}
	for _, key := range entities.SortedKeys(wanted) {
		s.arrangeChecksOf(key, wanted[key])
	}
}

// checksPerPart is how many checks of a service, in the spec's order, one activity evaluates at most, for a release and for a repair each.
// So its request and answer fit into a payload (F8).
const checksPerPart = 20

// groupByRuntimeAndPart groups checks by the runtime whose remote worker evaluates them ("" for any worker), and by part. The key of the
// first part has no part number. A check's position in the spec determines its part, so that a check does not move to another part when one
// before it is over.
func (s *service) groupByRuntimeAndPart(all []entities.Evaluation) map[string][]entities.Evaluation {
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
		if part := places[check{e.Channel, e.ID}] / checksPerPart; part > 0 {
			key += fmt.Sprintf("/%d", part)
		}
		out[key] = append(out[key], e)
	}
	return out
}

func (s *service) stopCheckRun(key string) {
	s.checkRuns[key].cancel()
	delete(s.checkRuns, key)
}

// evaluatesLocally reports whether checks are being evaluated in this workflow task.
func (s *service) evaluatesLocally() bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, c := range s.checkRuns {
		if c.local {
			return true
		}
	}
	return false
}

// arrangeChecksOf does this for the checks of one key.
func (s *service) arrangeChecksOf(key string, wanted []entities.Evaluation) {
	if c := s.checkRuns[key]; c != nil {
		if coversChecks(c.checks, wanted) {
			return
		}
		s.stopCheckRun(key)
	}
	if s.outages.isOpen(depChecks) {
		return
	}
	unknown := slices.DeleteFunc(slices.Clone(wanted), func(e entities.Evaluation) bool { return e.KnownDigest != "" })
	if allOffline(unknown) {
		s.evaluateFirst(key, wanted, unknown)
		return
	}
	s.startCheckRun(key, wanted)
}

// checkQueue is the queue of a runtime's remote worker, or the common queue.
func checkQueue(runtime string) string {
	if runtime == "" {
		return ""
	}
	return protocol.RuntimeTaskQueue(runtime)
}

// withoutPreflights omits checks that a running preflight evaluates. At the end of a window it does so only for a check without a reading:
// its first one comes once.
func (s *service) withoutPreflights(checks []entities.Evaluation) []entities.Evaluation {
	return slices.DeleteFunc(checks, func(e entities.Evaluation) bool {
		c := s.state.Channels[e.Channel]
		return c != nil && c.Preflight != nil && c.Preflight.Running && (!c.Preflight.Window || e.KnownDigest == "") && e.Release != "" && c.Preflight.Release == e.Release
	})
}

// allOffline reports whether there are checks, and none of them calls an external system.
func allOffline(checks []entities.Evaluation) bool {
	return len(checks) > 0 && !slices.ContainsFunc(checks, func(e entities.Evaluation) bool { return !e.Kind.Offline() })
}

// evaluateFirst evaluates offline checks for the first time, in this worker and within this workflow task: usually they pass, and no
// evaluation has to continue. Wanted checks with a known result are not evaluated.
func (s *service) evaluateFirst(key string, wanted, unknown []entities.Evaluation) {
	c := &checkRun{key: key, checks: wanted, local: true}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.workCtx)
	s.checkRuns[key] = c
	future := s.evaluateLocally(ctx, s.checkRequest(unknown))
	s.trackOperation(func(ctx workflow.Context) { s.receiveChecks(ctx, c, unknown, future) })
}

// evaluateLocally evaluates offline checks once. The timeout allows for a slow store, which has their definitions.
func (s *service) evaluateLocally(ctx workflow.Context, request protocol.CheckRequest) workflow.Future {
	return workflow.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: 30 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}), protocol.ActivityPreflight, request)
}

// queryPlans queries the plans that the service waits for, in this worker and within this workflow task, when one hinted that it lets the
// service enter (E1). The regular evaluation continues and covers plans that cannot be reached now.
func (s *service) queryPlans() {
	hinted := s.planHinted
	s.planHinted = false
	if !hinted || s.readyToEnd() {
		return
	}
	var checks []entities.Evaluation
	var releases []protocol.ReleaseStatus
	for _, e := range s.decision.Evaluations(s.state) {
		r := s.state.ReleaseByID(e.Release)
		if e.Kind != entities.CheckPlan || e.Runtime != "" || r == nil || r.IsAspect() {
			continue
		}
		checks = append(checks, e)
		releases = append(releases, protocol.ReleaseStatus{ID: r.ID, Version: r.FullVersion, Incarnation: r.Incarnation})
	}
	for len(checks) > 0 {
		n := len(checks)
		n = min(n, 2*checksPerPart)
		s.queryPlansOf(checks[:n], releases[:n])
		checks, releases = checks[n:], releases[n:]
	}
}

func (s *service) queryPlansOf(checks []entities.Evaluation, releases []protocol.ReleaseStatus) {
	request := s.checkRequest(checks)
	request.Releases = releases
	future := s.evaluateLocally(s.workCtx, request)
	s.trackOperation(func(ctx workflow.Context) {
		var answer protocol.CheckAnswer
		failed := func(e entities.Evaluation) bool { return answer.Readings[e.Key()].Verdict == entities.Error }
		if future.Get(ctx, &answer) == nil && !slices.ContainsFunc(checks, failed) {
			s.recordCheckReadings(checks, answer.Readings, workflow.Now(ctx))
		}
	})
}

// recordCheckReadings records readings of checks.
func (s *service) recordCheckReadings(checks []entities.Evaluation, readings map[string]entities.CheckReading, now time.Time) {
	for _, e := range checks {
		if reading, seen := readings[e.Key()]; seen {
			s.state.RecordCheck(e, reading, now)
			s.freshReadings[e.WithoutResult()] = reading
		}
	}
}

func coversChecks(checks, wanted []entities.Evaluation) bool {
	return !slices.ContainsFunc(wanted, func(w entities.Evaluation) bool {
		return !slices.ContainsFunc(checks, func(e entities.Evaluation) bool {
			return e.KnownDigest == w.KnownDigest && e.WithoutResult() == w.WithoutResult()
		})
	})
}

func (s *service) startCheckRun(key string, checks []entities.Evaluation) {
	runtime := checks[0].Runtime
	c := &checkRun{key: key, checks: checks, runtime: runtime}
	var ctx workflow.Context
	ctx, c.cancel = workflow.WithCancel(s.workCtx)
	s.checkRuns[key] = c
	queue := checkQueue(runtime)
	interval := time.Second
	for _, e := range checks {
		interval = max(interval, e.Interval)
	}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: queue, ScheduleToStartTimeout: pickupTimeout(queue, s.noWorkerSince[runtime], s.now()),
		StartToCloseTimeout: checkTimeout, HeartbeatTimeout: heartbeat,
		// The activity sets the delay of its next attempt; the policy must not be slower.
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: interval},
		Summary:     checksSummary(checks), Priority: s.priority(priorityCheck),
	}), protocol.ActivityCheck, s.checkRequest(checks))
	workflow.Go(ctx, func(ctx workflow.Context) { s.receiveChecks(ctx, c, checks, future) })
}

// receiveChecks records the result of an evaluation. An evaluation that failed to complete says nothing about the subject of its checks, so
// each check is an ERROR, and it is started again a little later.
func (s *service) receiveChecks(ctx workflow.Context, c *checkRun, checks []entities.Evaluation, future workflow.Future) {
	var answer protocol.CheckAnswer
	err := future.Get(ctx, &answer)
	if s.checkRuns[c.key] != c {
		return // replaced in the meantime
	}
	delete(s.checkRuns, c.key)
	s.woken = true
	now := workflow.Now(ctx)
	switch {
	case c.runtime != "" && neverStarted(err):
		if s.noWorkerSince[c.runtime].IsZero() {
			s.noWorkerSince[c.runtime] = now
		}
	case err != nil:
		s.backOff(depChecks, err)
	default:
		s.outages[depChecks] = outage{}
		delete(s.noWorkerSince, c.runtime)
	}
	if err != nil {
		answer.Readings = errorReadings(checks, err, now)
	}
	s.recordCheckReadings(checks, answer.Readings, now)
}

// freshReadingWindow is how far a reading may be from the present moment to count as current. It may be later than now: the clock of a
// workflow does not advance during its task.
const freshReadingWindow = 2 * time.Second

// freshReadingsOf returns the readings of all checks if they caused this reconciliation: another evaluation at the same moment would give
// nothing new.
func (s *service) freshReadingsOf(checks []entities.Evaluation) (map[string]entities.CheckReading, bool) {
	out := map[string]entities.CheckReading{}
	for _, e := range checks {
		reading, read := s.freshReadings[e.WithoutResult()]
		if !read || s.now().Sub(reading.At).Abs() > freshReadingWindow {
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
		if len(checks[n].Candidates) > maxInlineCandidates {
			checks = slices.Clone(checks)
			for k := range checks {
				checks[k].Candidates = selection.Pack(checks[k].Candidates)
			}
			break
		}
	}
	return checks
}

// maxInlineCandidates is the size in bytes up to which candidates are sent inline.
const maxInlineCandidates = 8 << 10

// checksSummary names the first checks of an evaluation for the Temporal UI.
func checksSummary(checks []entities.Evaluation) string {
	return summary("watch checks" + listFirst(checks, 4, entities.Evaluation.Key))
}

// listFirst lists the first few items for a summary.
func listFirst[T any](all []T, most int, name func(T) string) (text string) {
	for _, one := range all[:min(len(all), most)] {
		text += " " + name(one)
	}
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// notifyCheckErrors notifies people of checks that cannot be evaluated.
func (s *service) notifyCheckErrors() {
	untold := s.state.UnnotifiedChecks()
	if len(untold) == 0 {
		return
	}
	for _, u := range untold {
		s.state.NotifyCheckErrors(u, s.now())
	}
}
