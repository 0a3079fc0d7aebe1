package workflows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/lease"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// runtimeTest simulates one run of a Runtime workflow, with its incoming and outgoing signals.
type runtimeTest struct {
	*testing.T
	env         *testsuite.TestWorkflowEnvironment
	startedAt   time.Time
	mu          sync.Mutex // signals are sent from separate goroutines
	sent        []sentSignal
	pauses      []string        // "paused by alice", "over"
	goneHolders map[string]bool // workflows that do not exist
	unavailable map[string]bool // workflows that cannot be signalled now
	storeAway   bool
	rules       protocol.Rules
	last        time.Duration
}

// sentSignal is one outgoing signal.
type sentSignal struct {
	at   time.Duration
	text string
}

// signals lists the sent signals ("12s granted service/shop/web a"); those of one moment are sorted by text.
func (s *runtimeTest) signals() (out []string) {
	slices.SortFunc(s.sent, func(a, b sentSignal) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text)) })
	for _, each := range s.sent {
		out = append(out, each.at.String()+" "+each.text)
	}
	return out
}

func newRuntimeTest(t *testing.T) *runtimeTest {
	s := &runtimeTest{T: t, env: (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment(), goneHolders: map[string]bool{}, unavailable: map[string]bool{}}
	s.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&Arrivals{}}})
	s.env.SetTestTimeout(time.Minute)
	s.startedAt = s.env.Now()
	s.env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
		func(_, id, _, name string, arg any) error {
			raw, err := json.Marshal(arg)
			require.NoError(t, err)
			var signal protocol.LeaseSignal
			require.NoError(t, json.Unmarshal(raw, &signal))
			require.Equal(t, "edge", signal.Runtime)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent = append(s.sent, sentSignal{s.env.Now().Sub(s.startedAt).Round(time.Second), name + " " + id + " " + signal.ID})
			switch {
			case s.goneHolders[id]:
				return &temporal.UnknownExternalWorkflowExecutionError{}
			case s.unavailable[id]:
				return errors.New("too many signals")
			}
			return nil
		}).Maybe()
	s.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.AnnouncePause) error {
		word := "over"
		if r.Pause != nil {
			word = "paused by " + r.Pause.By
		}
		s.pauses = append(s.pauses, r.Runtime+" "+r.Scope+" "+word)
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityPause})
	s.env.RegisterActivityWithOptions(func(context.Context, protocol.RulesRequest) (protocol.Rules, error) {
		if s.storeAway {
			return protocol.Rules{}, errors.New("connection refused")
		}
		return s.rules, nil
	}, activity.RegisterOptions{Name: protocol.ActivityRules})
	return s
}

// at calls do at a time of the test.
func (s *runtimeTest) at(d time.Duration, do func()) {
	s.last = max(s.last, d)
	s.env.RegisterDelayedCallback(do, d)
}

// sendSignal sends a signal; holder "web" is service/shop/web.
func (s *runtimeTest) sendSignal(d time.Duration, name string, payload any) {
	s.at(d, func() { s.env.SignalWorkflow(name, payload) })
}

func (s *runtimeTest) requestLease(d time.Duration, holder, id string, limit int) {
	s.sendSignal(d, protocol.SignalLease, leaseOf(holder, id, limit))
}

func leaseOf(holder, id string, limit int) entities.LeaseRequest {
	return entities.LeaseRequest{ID: id, Holder: protocol.ServiceID("shop", holder), Description: "shop/" + holder, Limit: limit, Timeout: 10 * time.Minute}
}

func (s *runtimeTest) giveLease(d time.Duration, id string) {
	s.sendSignal(d, protocol.SignalGive, protocol.LeaseSignal{ID: id})
}

// run runs the workflow until some time after the last event, when the server suggests continue-as-new. It returns the state for the next
// run.
func (s *runtimeTest) run(before *runtimeState, after time.Duration) *runtimeState {
	s.Helper()
	next := s.runToNextInput(protocol.RuntimeInput{CarriedState: carriedOf(s.T, protocol.Version, before)}, after)
	out := &runtimeState{}
	require.NoError(s, json.Unmarshal(next.State, out))
	out.Checkpoint, out.SeenSignals, out.Read = state.Checkpoint{}, nil, false // number of changes, recorded signals, whether rules were read
	return out
}

// runToNextInput returns the input of the next run unchanged.
func (s *runtimeTest) runToNextInput(in protocol.RuntimeInput, after time.Duration) protocol.RuntimeInput {
	s.Helper()
	in.Runtime = "edge"
	s.env.RegisterDelayedCallback(func() {
		s.env.SetContinueAsNewSuggested(true)
		s.env.SignalWorkflow(protocol.SignalKeep, protocol.LeaseSignal{ID: "nobody's"})
	}, s.last+after)
	s.env.ExecuteWorkflow(Runtime, in)
	require.True(s, s.env.IsWorkflowCompleted())
	var again *workflow.ContinueAsNewError
	require.ErrorAs(s, s.env.GetWorkflowError(), &again)
	require.Equal(s, protocol.RuntimeWorkflow, again.WorkflowType.Name)
	var next protocol.RuntimeInput
	require.NoError(s, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	require.Equal(s, protocol.Version, next.StateVersion)
	return next
}

func (s *runtimeTest) status() protocol.RuntimeStatus {
	s.Helper()
	answer, err := s.env.QueryWorkflow(protocol.QueryStatus)
	require.NoError(s, err)
	var status protocol.RuntimeStatus
	require.NoError(s, answer.Get(&status))
	return status
}

// sendUpdate sends an update and checks its answer or refusal.
func (s *runtimeTest) sendUpdate(d time.Duration, name string, payload any, want string) {
	s.at(d, func() {
		s.env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { require.Equal(s, want, errorText(err)) },
			OnComplete: func(answer any, err error) {
				if err != nil {
					require.Equal(s, want, errorText(err))
					return
				}
				require.Equal(s, want, messageOf(s.T, answer))
			},
		}, payload)
	})
}

const second = time.Second

// First come, first served; rollbacks go first; leases are held only during applies.
func TestLeasesAreGrantedInOrder_C10(t *testing.T) {
	s := newRuntimeTest(t)
	s.requestLease(0, "a", "a", 2)
	s.requestLease(0, "b", "b", 2)
	s.requestLease(1*second, "c", "c", 2)
	s.requestLease(2*second, "d", "d", 2)
	back := leaseOf("e", "e", 2)
	back.Rollback = true
	s.sendSignal(3*second, protocol.SignalLease, back)
	for i, id := range []string{"a", "b", "e", "c", "d"} {
		s.giveLease(time.Duration(10+i)*second, id)
	}
	next := s.run(nil, second)
	require.Equal(t, []string{
		"0s granted service/shop/a a", "0s granted service/shop/b b",
		"10s granted service/shop/e e", "11s granted service/shop/c c", "12s granted service/shop/d d",
	}, s.signals())
	require.Equal(t, &runtimeState{Ledger: lease.Ledger{Limit: 2}}, next)
}

// A repeated request for a held lease is granted again; one for a waiting lease keeps its place; to give back a lease twice, or one that
// never existed, changes nothing.
func TestLeasesAreIdempotent_C10(t *testing.T) {
	s := newRuntimeTest(t)
	s.requestLease(0, "a", "a", 1)
	s.requestLease(1*second, "b", "b", 1)
	s.requestLease(2*second, "c", "c", 1)
	s.requestLease(3*second, "b", "b", 1)
	s.requestLease(4*second, "a", "a", 1)
	s.giveLease(5*second, "a")
	s.giveLease(6*second, "a")
	s.giveLease(6*second, "never was")
	s.giveLease(7*second, "c") // withdrawn before it was granted
	s.giveLease(8*second, "b")
	next := s.run(nil, second)
	require.Equal(t, []string{"0s granted service/shop/a a", "4s granted service/shop/a a", "5s granted service/shop/b b"}, s.signals())
	require.Equal(t, &runtimeState{Ledger: lease.Ledger{Limit: 1}}, next)
}

// The newest limit applies. A lower limit does not revoke leases.
func TestLimitChanges_C10(t *testing.T) {
	s := newRuntimeTest(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		s.requestLease(0, id, id, 1)
	}
	s.requestLease(10*second, "e", "e", 3)
	s.requestLease(20*second, "f", "f", 1)
	s.giveLease(21*second, "a")
	s.giveLease(22*second, "b")
	s.giveLease(23*second, "c")
	next := s.run(nil, second)
	require.Equal(t, []string{
		"0s granted service/shop/a a", "10s granted service/shop/b b", "10s granted service/shop/c c", "23s granted service/shop/d d",
	}, s.signals())
	require.Equal(t, `"d"`, lease.IDs(next.Held))
	require.Equal(t, `"e", "f"`, lease.IDs(next.Waiting))
}

// A holder that no longer exists loses its leases, whether that is detected by a grant or by a query; the others continue.
func TestGoneHolderLosesItsLeases_C10(t *testing.T) {
	s := newRuntimeTest(t)
	s.goneHolders["service/shop/ghost"] = true
	s.requestLease(0, "ghost", "g1", 1)
	s.requestLease(0, "a", "a", 1)
	s.requestLease(0, "ghost", "g2", 1)
	s.requestLease(0, "b", "b", 1)
	s.at(time.Minute, func() { s.goneHolders["service/shop/a"] = true })
	next := s.run(nil, 10*time.Minute)
	require.Equal(t, []string{
		"0s granted service/shop/a a", "0s granted service/shop/ghost g1",
		"10m0s granted service/shop/b b", "10m0s held service/shop/a a",
	}, s.signals())
	require.Equal(t, `"b"`, lease.IDs(next.Held))
	require.Empty(t, next.Waiting)
	require.Equal(t, []string{
		"1 lease of shop/ghost ended: service/shop/ghost no longer exists",
		"2 lease of shop/ghost ended: service/shop/ghost no longer exists",
		"3 lease of shop/a ended: service/shop/a no longer exists",
	}, auditTexts(next.Audit))
}

func auditTexts(lines []entities.AuditEntry) (out []string) {
	for _, l := range lines {
		who := ""
		if l.Who != nil {
			who = l.Who.Name + ": "
		}
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%d %s%s: %s", l.N, who, l.Text, l.Reason), ": "))
	}
	return out
}

// After the timeout of an apply its holder is queried. A holder that answers keeps the lease. A silent holder is queried again, with
// growing delays, and never loses the lease; a person can revoke it.
func TestOverdueHolderIsQueried_C10(t *testing.T) {
	s := newRuntimeTest(t)
	s.requestLease(0, "a", "a", 1)
	s.requestLease(0, "b", "b", 1)
	s.sendSignal(10*time.Minute+second, protocol.SignalKeep, protocol.LeaseSignal{ID: "a"})
	s.at(30*time.Minute, func() {
		require.Equal(t, 6, s.status().Held[0].UnansweredQueries)
		shown := entities.Lease{LeaseRequest: s.status().Held[0].LeaseRequest}
		require.Contains(t, (&runtimeState{Ledger: lease.Ledger{Limit: 1, Held: []entities.Lease{shown}}}).details(), "| shop/a | applies |")
	})
	s.sendSignal(31*time.Minute, protocol.SignalGive, protocol.LeaseActionRequest{
		RequestMeta: protocol.RequestMeta{By: "alice", Reason: "its worker is gone for good"}, LeaseSignal: protocol.LeaseSignal{ID: "a"},
	})
	next := s.run(nil, second)
	require.Equal(t, []string{
		"0s granted service/shop/a a", "10m0s held service/shop/a a",
		"20m1s held service/shop/a a", "21m1s held service/shop/a a", "22m1s held service/shop/a a", "23m1s held service/shop/a a",
		"25m1s held service/shop/a a", "29m1s held service/shop/a a", "31m0s granted service/shop/b b",
	}, s.signals())
	require.Equal(t, []string{"1 alice: lease of shop/a revoked: its worker is gone for good"}, auditTexts(next.Audit))
}

// A grant that cannot be delivered now is delivered later, and its slot stays taken.
func TestGrantIsDeliveredAgain_C10(t *testing.T) {
	s := newRuntimeTest(t)
	s.unavailable["service/shop/a"] = true
	s.requestLease(0, "a", "a", 1)
	s.requestLease(0, "b", "b", 1)
	s.at(90*second, func() { s.unavailable["service/shop/a"] = false })
	s.run(nil, 11*time.Minute)
	require.Equal(t, []string{"0s granted service/shop/a a", "1m0s granted service/shop/a a", "2m0s granted service/shop/a a", "12m0s held service/shop/a a"}, s.signals())
}

// While a runtime is paused nothing is granted. Its services are notified of the pause and of its end, each once, and a repeated request id
// gets the original answer.
func TestPauseOfRuntime_A16(t *testing.T) {
	s := newRuntimeTest(t)
	drill := protocol.RequestMeta{By: "alice", Reason: "drill", RequestID: "1"}
	s.sendUpdate(0, protocol.Pause, drill, "runtime edge is paused; applies in flight will finish")
	s.requestLease(1*second, "a", "a", 1)
	s.sendUpdate(2*second, protocol.Pause, drill, "runtime edge is paused; applies in flight will finish")
	s.sendUpdate(3*second, protocol.Pause, protocol.RequestMeta{By: "bob"}, "runtime edge is paused already, by alice")
	s.sendUpdate(4*second, protocol.Grant, protocol.LeaseActionRequest{RequestMeta: protocol.RequestMeta{By: "bob"}, LeaseSignal: protocol.LeaseSignal{ID: "a"}},
		"runtime edge is paused by alice; nothing is granted until it is resumed")
	s.sendSignal(10*second, protocol.Resume, protocol.RequestMeta{By: "carol"})
	next := s.run(nil, second)
	require.Equal(t, []string{"10s granted service/shop/a a"}, s.signals())
	require.Equal(t, []string{"edge runtime/edge paused by alice", "edge runtime/edge over"}, s.pauses)
	require.Equal(t, []string{"1 alice: runtime edge paused: drill", "2 carol: runtime edge resumed"}, auditTexts(next.Audit))
	require.False(t, next.Announcing)
}

// A person grants a lease out of order, beyond the limit.
func TestGrantOutOfOrder_C10(t *testing.T) {
	s := newRuntimeTest(t)
	for _, id := range []string{"a", "b", "c"} {
		s.requestLease(0, id, id, 1)
	}
	act := protocol.LeaseActionRequest{RequestMeta: protocol.RequestMeta{By: "alice", Reason: "hotfix"}, LeaseSignal: protocol.LeaseSignal{ID: "c"}}
	s.sendUpdate(1*second, protocol.Grant, act, "shop/c is granted out of order")
	s.sendUpdate(2*second, protocol.Grant, act, `lease "c" is granted already`)
	s.giveLease(3*second, "a") // c holds the only slot
	s.giveLease(4*second, "c")
	s.run(nil, second)
	require.Equal(t, []string{"0s granted service/shop/a a", "1s granted service/shop/c c", "4s granted service/shop/b b"}, s.signals())
}

// An invalid request changes nothing. As an update it is refused with a reason, as a signal it is recorded.
func TestRuntimeRefusesGarbage(t *testing.T) {
	rows := []struct{ name, payload, want string }{
		{"request", `{"id":"a"}`, `"id" of the lease and "holder", the requesting workflow, are required`},
		{"request", `{"id":"a","holder":"service/shop/a","limit":0,"timeout":1}`, `"limit" is 0; expected at least 1: without a limit no lease is requested`},
		{"request", `{"id":"a","holder":"service/shop/a","limit":1}`, `"timeout" is 0s; expected the maximum duration of an apply`},
		{"request", `{"id":"a","hodler":"service/shop/a"}`, `payload of request: unknown field "hodler"`},
		{"release", `{}`, `"id" is missing; expected the id of a lease`},
		{"release", `{"id":"a","by":"bob"}`, `no lease "a"; held are none`},
		{"grant", `{"id":"a"}`, `"by" is missing; expected the name of the caller`},
		{"grant", `{"id":"a","by":"bob"}`, `no lease "a" waits; waiting are none`},
		{"pause", `{"reason":"drill"}`, `"by" is missing; expected the name of the caller`},
		{"pause", `"drill"`, `payload of pause: a text; expected an object`},
		{"resume", `{"by":"bob"}`, "runtime edge is not paused"},
	}
	for _, tt := range append(rows, struct{ name, payload, want string }{"explode", `{}`, "no such verb; expected one of request, keep, release, grant, pause, resume, drain, restore"}) {
		t.Run(tt.name+" "+tt.payload, func(t *testing.T) {
			s := newRuntimeTest(t)
			if tt.name != "explode" {
				s.sendUpdate(0, tt.name, json.RawMessage(tt.payload), tt.want)
			}
			s.sendSignal(1*second, tt.name, json.RawMessage(tt.payload))
			next := s.run(nil, second)
			require.Len(t, next.Refused, 1)
			require.Equal(t, tt.want, next.Refused[0].Reason)
			next.Refused = nil
			require.Equal(t, &runtimeState{}, next)
			require.Empty(t, s.signals())
			require.Empty(t, s.pauses)
		})
	}
}

// The second run continues where the first one ended: holders, waiting requests, queried holders, and a pause that is not announced yet.
func TestSecondRunOfARuntime(t *testing.T) {
	first := newRuntimeTest(t)
	first.requestLease(0, "a", "a", 1)
	first.requestLease(0, "b", "b", 1)
	first.sendSignal(1*second, protocol.Pause, protocol.RequestMeta{By: "alice"})
	next := first.run(nil, 10*time.Minute)
	require.Equal(t, []string{"0s granted service/shop/a a", "10m0s held service/shop/a a"}, first.signals())
	next.Announcing = true // as if it had ended before all were notified

	again := newRuntimeTest(t)
	again.sendSignal(1*second, protocol.SignalGive, protocol.LeaseSignal{ID: "a"})
	again.sendSignal(2*second, protocol.Resume, protocol.RequestMeta{By: "alice"})
	last := again.run(next, second)
	require.Equal(t, []string{"2s granted service/shop/b b"}, again.signals())
	require.Equal(t, []string{"edge runtime/edge paused by alice", "edge runtime/edge over"}, again.pauses)
	require.Equal(t, `"b"`, lease.IDs(last.Held))
}

// No payload exceeds 64 KiB, however many leases wait, and no request loses its place.
func TestWaitingLeasesSurviveRunsWithinPayloadLimit(t *testing.T) {
	for _, n := range []int{1000, lease.MaxWaiting} {
		s, stored := newRuntimeTest(t), protocol.Packed(nil)
		s.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.SpillRequest) (string, error) {
			stored = r.Packed
			return "digest", nil
		}, activity.RegisterOptions{Name: protocol.ActivitySpill})
		before := &runtimeState{Ledger: lease.Ledger{Limit: 1}}
		for i := range n {
			id := fmt.Sprintf("service/shop/web-%d/prod/v%d/%d", i, i*7919%1000, i%13)
			before.Waiting = append(before.Waiting, entities.Lease{LeaseRequest: leaseOf(fmt.Sprintf("web-%d", i), id, 1), Since: s.startedAt.Add(time.Duration(i*i) * time.Millisecond)})
		}
		s.requestLease(1*second, "late", "late", 1)
		next := s.runToNextInput(protocol.RuntimeInput{CarriedState: carriedOf(t, protocol.Version, before)}, second)
		size, err := json.Marshal(next)
		require.NoError(t, err)
		require.Less(t, len(size), 64<<10)
		packed := next.Packed
		if n == lease.MaxWaiting {
			require.Equal(t, "digest", next.Spilled)
			packed = stored
		}
		var state runtimeState
		require.NoError(t, packed.Unpack(&state))
		require.Len(t, state.Held, 1)
		require.Equal(t, before.Waiting[1].ID, state.Waiting[0].ID)
		require.Equal(t, "late", state.Waiting[len(state.Waiting)-1].ID)
	}
}

// A runtime belongs to no application that could define an issuer of tokens: a token is neither verified nor kept, and proves nothing.
func TestRuntimeIgnoresTokens(t *testing.T) {
	s := newRuntimeTest(t)
	s.sendUpdate(0, protocol.Pause, protocol.RequestMeta{Token: "x.y.z"}, `"by" is missing; expected the name of the caller`)
	s.sendSignal(1*second, protocol.Pause, protocol.RequestMeta{By: "alice", Token: "x.y.z"})
	next := s.run(nil, second)
	require.Equal(t, "alice", next.Pause.By)
	raw, err := json.Marshal(next)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "x.y.z")
}

// As long as a workflow has not read the rules of the installation, it does not judge by none: while the store is away it refuses what is not
// urgent, and later goes by what it read last.
func TestRulesThatWereNeverReadRefuse_G1(t *testing.T) {
	s := newRuntimeTest(t)
	s.rules = protocol.Rules{Number: 1, Rules: entities.Rules{Grants: []entities.Grant{{To: []string{"alice"}, Verbs: []string{protocol.Resume}}}}}
	alice, mallory := protocol.RequestMeta{By: "alice"}, protocol.RequestMeta{By: "mallory"}
	s.storeAway = true
	s.sendUpdate(1*second, protocol.Pause, mallory, "runtime edge is paused; applies in flight will finish")
	s.sendUpdate(2*second, protocol.Resume, mallory, "the store does not answer: connection refused")
	s.sendUpdate(3*second, protocol.Resume, alice, "the store does not answer: connection refused")
	s.sendSignal(4*second, protocol.Resume, alice) // waits
	s.sendSignal(5*second, protocol.Resume, mallory)
	s.at(59*second, func() { require.NotNil(t, s.status().Pause) })
	s.at(60*second, func() { s.storeAway = false })
	s.at(119*second, func() { require.Nil(t, s.status().Pause, "alice's signal counts once the rules are read") })
	s.sendUpdate(120*second, protocol.Pause, mallory, "runtime edge is paused; applies in flight will finish")
	s.sendUpdate(121*second, protocol.Resume, mallory, "mallory may not resume in runtime/edge; allowed: alice")
	s.at(180*second, func() { s.storeAway = true })
	s.sendUpdate(181*second, protocol.Resume, mallory, "mallory may not resume in runtime/edge; allowed: alice")
	s.sendUpdate(182*second, protocol.Resume, alice, "runtime edge is resumed")
	s.run(nil, second)
}
