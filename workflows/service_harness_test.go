package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// serviceTest is one run of a Service workflow with simulated activities: when it receives messages, which activities it starts, and how
// they answer. Its runtime is not observable, so a successful apply is its state, and virtual time passes quickly.
type serviceTest struct {
	*testing.T
	env  *testsuite.TestWorkflowEnvironment
	grow func(events int)
	spec *entities.Spec
	last time.Duration

	mu                sync.Mutex
	started           []string                    // "apply v1 to prod", in start order
	urgent            []string                    // urgent applies, such as "v1 to prod", in start order
	checkVerdicts     map[string]entities.Verdict // of checks, by id; the default is PASS
	checksEnded       int                         // how many Check activities ended
	trail             map[int64]entities.AuditEntry
	announced         []int64
	announcedNext     []string // the commands of announcements
	pauses            []protocol.ScopePause
	ownedPauses       map[string]protocol.ScopePause         // by scope: the pause that its owner reports
	grantedLeases     string                                 // the payloads of granted leases, which runtimes confirm
	activityErrs      map[string]error                       // by activity: the error while it is set
	hangingApplies    map[string][]byte                      // hanging applies, by "v1 to prod", with their task tokens once started
	readingAfterApply func(version string) *entities.Reading // after an apply; nil: not observable
	cached            bool                                   // readingAfterApply comes from a cache
	otherReleases     int                                    // how many other releases the worker prepares
	spilled           map[string]protocol.Packed             // spilled objects; nil: everything fits
}

func newServiceTest(t *testing.T) *serviceTest {
	p := &serviceTest{
		T: t, env: (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment(), spec: specOfTest(),
		checkVerdicts: map[string]entities.Verdict{}, trail: map[int64]entities.AuditEntry{}, activityErrs: map[string]error{}, hangingApplies: map[string][]byte{},
		ownedPauses: map[string]protocol.ScopePause{},
	}
	// As in workers.
	p.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&Arrivals{}}, DeadlockDetectionTimeout: 5 * time.Second})
	p.env.SetTestTimeout(time.Minute)
	p.grow = growHistory(p.env)
	p.register()
	return p
}

// growHistory makes the history of a run grow with each workflow task, as on a server: by activities that end, timers that fire, and a
// number of events per message of a test.
func growHistory(env *testsuite.TestWorkflowEnvironment) (grow func(events int)) {
	length := 3
	grow = func(events int) {
		length += events
		env.SetCurrentHistoryLength(length)
	}
	env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) { grow(5) })
	env.SetOnTimerFiredListener(func(string) { grow(4) })
	return grow
}

// startAfter starts this run when another one ended.
func (p *serviceTest) startAfter(before *serviceTest) { p.env.SetStartTime(before.env.Now()) }

// specOfTest is a service in two channels; tests add conditions to prod.
func specOfTest() *entities.Spec {
	return &entities.Spec{
		Application: "shop", Service: "web", ServiceID: "id",
		Channels: []entities.ChannelSpec{
			{Name: "staging", Instances: onEdge(), ProgressDeadline: time.Hour},
			{Name: "prod", Instances: onEdge(), ProgressDeadline: time.Hour, Conditions: []entities.Condition{
				{ID: "channel-stable/staging", Kind: entities.ChannelStable, Channels: []string{"staging"}},
			}},
		},
		Runtimes: map[string]*entities.RuntimeSpec{"edge": {
			Kind: entities.RuntimeCustom, Digest: "d", CanRemove: true, Timing: entities.RuntimeTiming{
				ApplyTimeout: time.Minute, FetchTimeout: time.Second, MaxAttempts: 1, RetryBackoff: time.Second, RetryMax: time.Minute,
			},
		}},
	}
}

func onEdge() []entities.InstanceSpec {
	return []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "edge", Template: "t"}}
}

// addApproval adds an approval to prod.
func (p *serviceTest) addApproval(topic string, least int, approvers ...string) {
	c := &p.spec.Channels[1]
	c.Conditions = append(c.Conditions, entities.Condition{
		ID: "approval/" + topic, Kind: entities.ManualApproval, Topic: topic, MinApprovers: least, Approvers: approvers,
	})
}

// addCheck adds an online check to prod.
func (p *serviceTest) addCheck(id string, at ...entities.CheckAt) {
	p.addCheckOf(entities.CheckHTTP, id, at...)
}

func (p *serviceTest) addCheckOf(kind entities.CheckKind, id string, at ...entities.CheckAt) {
	c := &p.spec.Channels[1]
	c.Checks = append(c.Checks, entities.Check{ID: id, Kind: kind, Definition: "c", At: at, Interval: 10 * time.Second})
}

// recordStart records a started activity, and fails it while an error is set.
func (p *serviceTest) recordStart(name, format string, args ...any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, fmt.Sprintf(format, args...))
	return p.activityErrs[name]
}

func (p *serviceTest) setErr(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.activityErrs[name] = err
}

func (p *serviceTest) setVerdict(id string, v entities.Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkVerdicts[id] = v
}

func (p *serviceTest) checkReading(l entities.Evaluation) entities.CheckReading {
	v := p.checkVerdicts[l.ID]
	if v == "" {
		v = entities.Pass
	}
	return entities.CheckReading{Verdict: v, Reason: strings.ToLower(string(v)), At: p.env.Now()}
}

func (p *serviceTest) register() {
	as := func(name string, f any) { p.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	as(protocol.ActivityLoadSpec, func(_ context.Context, r protocol.LoadSpecRequest) (protocol.LoadSpecAnswer, error) {
		notice := &protocol.Notice{Order: r.Order, Incarnation: protocol.Incarnation{Number: r.Incarnation, Hash: r.Hash, By: "ci"}}
		if r.Digest == "" {
			return protocol.LoadSpecAnswer{Notice: notice, Store: "s"}, p.activityErrs[protocol.ActivityLoadSpec]
		}
		answer := protocol.LoadSpecAnswer{Notice: notice, Digest: r.Digest, Store: "s", Spec: p.spec, Pauses: p.pauses}
		if digest := p.storeIfLarge(answer); digest != "" {
			answer = protocol.LoadSpecAnswer{StoredAnswer: protocol.StoredAnswer{AnswerDigest: digest}}
		}
		return answer, p.activityErrs[protocol.ActivityLoadSpec]
	})
	as(protocol.ActivityPrepare, func(_ context.Context, r protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
		r, err := r.Whole()
		require.NoError(p, err)
		answer := protocol.PrepareAnswer{Incarnation: r.Incarnation, RecentlyPrepared: p.otherReleases, Payloads: map[entities.InstanceID]protocol.PreparedPayload{}}
		for _, id := range r.Instances {
			answer.Payloads[id] = protocol.PreparedPayload{Digest: r.Version + id.Key()}
		}
		if digest := p.storeIfLarge(answer); digest != "" {
			answer = protocol.PrepareAnswer{StoredAnswer: protocol.StoredAnswer{AnswerDigest: digest}}
		}
		return answer, p.activityErrs[protocol.ActivityPrepare]
	})
	as(protocol.ActivityApply, func(ctx context.Context, r protocol.ApplyRequest) (protocol.ApplyAnswer, error) {
		what := fmt.Sprintf("%s to %s", r.Instance.FullVersion, r.Instance.ID)
		why := text(p.recordStart(protocol.ActivityApply, "apply %s", what))
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.Urgent {
			p.urgent = append(p.urgent, what)
		}
		if _, hangs := p.hangingApplies[what]; hangs {
			p.hangingApplies[what] = activity.GetInfo(ctx).TaskToken
			return protocol.ApplyAnswer{}, activity.ErrResultPending
		}
		answer := protocol.ApplyAnswer{Err: why, Permanent: why != ""}
		if p.readingAfterApply != nil {
			answer.Reading, answer.ServedFromWatchCache = p.readingAfterApply(r.Instance.FullVersion), p.cached
		}
		return answer, nil
	})
	as(protocol.ActivityObserveAll, func(_ context.Context, r protocol.ObserveAllRequest) (protocol.ObserveAllAnswer, error) {
		require.True(p, r.Immediate, "no play is on several runtimes")
		return protocol.ObserveAllAnswer{}, errors.New("not all instances can be read locally")
	})
	p.registerGates(as)
	as(protocol.ActivityRemove, func(_ context.Context, r protocol.RemoveRequest) (protocol.RemoveAnswer, error) {
		return protocol.RemoveAnswer{}, p.recordStart(protocol.ActivityRemove, "remove %s from %s on %s", r.Instance.FullVersion, r.Instance.ID, r.Runtime)
	})
	as(protocol.ActivityHistory, func(_ context.Context, r protocol.HistoryRequest) error {
		err := p.recordStart(protocol.ActivityHistory, "keep lines %d-%d", r.Entries[0].N, r.Entries[len(r.Entries)-1].N)
		for _, l := range r.Entries { // written even when the answer is lost
			if old, ok := p.trail[l.N]; ok {
				require.Equal(p, old, l, "a stored line never changes")
			}
			p.trail[l.N] = l
		}
		return err
	})
	as(protocol.ActivityAnnounce, func(_ context.Context, r protocol.AnnounceRequest) error {
		if err := p.recordStart(protocol.ActivityAnnounce, "announce %s", r.Entry.Kind); err != nil {
			return err
		}
		p.announced, p.announcedNext = append(p.announced, r.Entry.N), append(p.announcedNext, r.Next...)
		return nil
	})
}

func (p *serviceTest) registerGates(as func(string, any)) {
	as(protocol.ActivityInForce, func(_ context.Context, r protocol.InForceRequest) (protocol.ScopePause, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return protocol.ScopePause{Scope: r.Scope, Pause: p.ownedPauses[r.Scope].Pause}, p.activityErrs[protocol.ActivityInForce]
	})
	as(protocol.ActivityGranted, func(_ context.Context, l protocol.LeaseSignal) (protocol.GrantedAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		granted := l.Runtime != "" && strings.Contains(p.grantedLeases, `"`+l.ID+`"`)
		return protocol.GrantedAnswer{Granted: granted}, p.activityErrs[protocol.ActivityGranted]
	})
	as(protocol.ActivityCheck, func(_ context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer := protocol.CheckAnswer{Readings: map[string]entities.CheckReading{}}
		for _, l := range r.Checks {
			if seen := p.checkReading(l); seen.Digest() != l.KnownDigest {
				answer.Readings[l.Key()] = seen
			}
		}
		if err := p.activityErrs[protocol.ActivityCheck]; err != nil {
			p.checksEnded++
			return answer, err
		}
		if len(answer.Readings) == 0 {
			// The suite gives up after ten attempts, which a server does not: so the delay is long.
			return answer, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged,
				temporal.ApplicationErrorOptions{NextRetryDelay: 50 * time.Second})
		}
		p.checksEnded++
		return answer, nil
	})
	as(protocol.ActivityPreflight, func(ctx context.Context, r protocol.CheckRequest) (protocol.CheckAnswer, error) {
		verb := "preflight"
		if activity.GetInfo(ctx).IsLocalActivity {
			verb = "evaluate here"
		}
		err := p.recordStart(protocol.ActivityPreflight, "%s %s", verb, r.Checks[0].FullVersion)
		p.mu.Lock()
		defer p.mu.Unlock()
		answer := protocol.CheckAnswer{Readings: map[string]entities.CheckReading{}}
		for _, l := range r.Checks {
			answer.Readings[l.Key()] = p.checkReading(l)
		}
		return answer, err
	})
	as(protocol.ActivityExtension, func(_ context.Context, r protocol.ExtensionRequest) (protocol.ExtensionAnswer, error) {
		why := text(p.recordStart(protocol.ActivityExtension, "run %s for %s in %s", r.Name, r.FullVersion, r.Channel))
		return protocol.ExtensionAnswer{Err: why, Tail: "the end"}, nil
	})
	as(protocol.ActivityLease, func(_ context.Context, c protocol.LeaseCall) error {
		switch {
		case c.Request != nil:
			return p.recordStart(protocol.ActivityLease, "lease %s of %s", c.Request.ID, c.Runtime)
		case c.Confirm != "":
			return p.recordStart(protocol.ActivityLease, "keep %s of %s", c.Confirm, c.Runtime)
		}
		return p.recordStart(protocol.ActivityLease, "give %s to %s", c.Return, c.Runtime)
	})
	as(protocol.ActivityVerify, func(_ context.Context, r protocol.VerifyRequest) (protocol.VerifyAnswer, error) {
		if err := p.recordStart(protocol.ActivityVerify, "verify"); err != nil {
			return protocol.VerifyAnswer{}, err
		}
		name, groups, ok := strings.Cut(strings.TrimPrefix(r.Token, "token-of-"), "/")
		if !strings.HasPrefix(r.Token, "token-of-") {
			return protocol.VerifyAnswer{}, temporal.NewNonRetryableApplicationError("the token's signature does not hold", protocol.ErrRefused, nil)
		}
		who := entities.Who{Name: name, Proven: true}
		if ok {
			who.Groups = strings.Split(groups, ",")
		}
		return protocol.VerifyAnswer{Who: who}, nil
	})
}

// at calls do at a time of the test.
func (p *serviceTest) at(d time.Duration, do func()) {
	p.last = max(p.last, d)
	p.env.RegisterDelayedCallback(func() { p.grow(4); do() }, d)
}

// publish sends the spec as it is at that time.
func (p *serviceTest) publish(d time.Duration) {
	p.sendSignal(d, protocol.Publish, `{"incarnation":1,"hash":"h","spec":"s","store":"s","by":"ci"}`)
}

func (p *serviceTest) sendSignal(d time.Duration, name, payload string) {
	p.at(d, func() {
		p.mu.Lock()
		var pause protocol.ScopePause
		if name == protocol.SignalScopePause && json.Unmarshal([]byte(payload), &pause) == nil {
			p.ownedPauses[pause.Scope] = pause
		}
		if name == protocol.SignalGranted {
			p.grantedLeases += payload
		}
		p.mu.Unlock()
		p.env.SignalWorkflow(name, json.RawMessage(payload))
	})
}

// sendUnconfirmed sends a signal that its sender does not confirm.
func (p *serviceTest) sendUnconfirmed(d time.Duration, name, payload string) {
	p.at(d, func() { p.env.SignalWorkflow(name, json.RawMessage(payload)) })
}

// updateResult is the result of an update: a message or an error.
type updateResult struct {
	message  string
	err      error
	rejected bool // by the validator: nothing was written
}

// sendUpdate sends an update; its result is set once the test is over.
func (p *serviceTest) sendUpdate(d time.Duration, name, payload string) *updateResult {
	a := &updateResult{}
	p.at(d, func() {
		p.env.UpdateWorkflow(name, fmt.Sprint(name, d, len(payload)), &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { a.err, a.rejected = err, true },
			OnComplete: func(result any, err error) {
				a.err = err
				if raw, ok := result.(json.RawMessage); ok && err == nil {
					var answer protocol.Answer
					require.NoError(p, json.Unmarshal(raw, &answer))
					a.message = answer.Message
				}
			},
		}, json.RawMessage(payload))
	})
	return a
}

// hangApply makes an apply hang until completeApply.
func (p *serviceTest) hangApply(what string) { p.hangingApplies[what] = nil }

// completeHanging ends an apply that hangs now. The next one of the kind does not hang.
func (p *serviceTest) completeHanging(what string, answer protocol.ApplyAnswer) {
	require.NoError(p, p.env.CompleteActivity(p.hangingApplies[what], answer, nil))
	delete(p.hangingApplies, what)
}

func (p *serviceTest) completeApply(d time.Duration, what string) {
	p.at(d, func() {
		require.NoError(p, p.env.CompleteActivity(p.hangingApplies[what], protocol.ApplyAnswer{}, nil))
	})
}

// suggestContinueAsNew makes the server suggest continue-as-new, when the run has length events.
func (p *serviceTest) suggestContinueAsNew(d time.Duration, length int) {
	p.at(d, func() {
		p.grow(length)
		p.env.SetContinueAsNewSuggested(true)
	})
}

// atStatus checks the status at a time of the test.
func (p *serviceTest) atStatus(d time.Duration, look func(protocol.Status)) {
	p.at(d, func() { look(p.status()) })
}

func (p *serviceTest) status() protocol.Status {
	var s protocol.Status
	p.query(protocol.QueryStatus, &s)
	return s
}

// query queries as clients do, in parts if an answer is large.
func (p *serviceTest) query(query string, into any) {
	require.NoError(p, protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		answer, err := p.env.QueryWorkflow(query, q)
		if err == nil {
			err = answer.Get(&raw)
		}
		return raw, err
	}, into))
}

// firstInput is the input of a new service.
var firstInput = protocol.ServiceInput{Application: "shop", Service: "web"}

// run runs the workflow until some time after the last event, when the server suggests continue-as-new. It returns the input of the next
// run.
func (p *serviceTest) run(in protocol.ServiceInput, after time.Duration) protocol.ServiceInput {
	p.Helper()
	p.env.RegisterDelayedCallback(func() {
		p.grow(4)
		p.env.SetContinueAsNewSuggested(true)
		p.env.SignalWorkflow(protocol.Refresh, json.RawMessage(`{"by":"the end"}`))
	}, p.last+after)
	p.env.ExecuteWorkflow(Service, in)
	require.True(p, p.env.IsWorkflowCompleted())
	var again *workflow.ContinueAsNewError
	var panicked *temporal.PanicError
	if errors.As(p.env.GetWorkflowError(), &panicked) {
		p.Log(panicked.StackTrace())
	}
	require.ErrorAs(p, p.env.GetWorkflowError(), &again)
	var next protocol.ServiceInput
	require.NoError(p, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	return next
}

// carriedState is the state of the next run as text.
func (p *serviceTest) carriedState(in protocol.ServiceInput) string { return string(in.State) }

// stateOf is the state of the next run.
func (p *serviceTest) stateOf(in protocol.ServiceInput) *state.State {
	require.Equal(p, protocol.Version, in.StateVersion)
	s := &state.State{}
	require.NoError(p, json.Unmarshal(in.State, s))
	return s
}

// startedActivities lists the started activities, without those named in but.
func (p *serviceTest) startedActivities(but ...string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.started {
		if verb, _, _ := strings.Cut(d, " "); !slices.Contains(but, verb) {
			out = append(out, d)
		}
	}
	return out
}

func statusOf(s protocol.Status) string {
	var parts []string
	for _, c := range s.Channels {
		parts = append(parts, c.Name+" "+c.Status+" "+c.Target)
	}
	return strings.Join(parts, ", ")
}

func refusals(s protocol.Status) (out []string) {
	for _, r := range s.Refused {
		out = append(out, r.Verb+" by "+r.By+": "+r.Reason)
	}
	return out
}

// temporalError is an error that is not retried.
func temporalError(text string) error {
	return temporal.NewNonRetryableApplicationError(text, "x", nil)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
