package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
)

// applicationTest simulates one run of an Application workflow.
type applicationTest struct {
	*testing.T
	env                  *testsuite.TestWorkflowEnvironment
	grow                 func(events int)
	startedAt            time.Time
	notified             []string // "m1 → m2 as 2, recorded 1 3"
	orders               []entities.NoticeOrder
	pauses               []string
	unmanageRequests     []string // "m1 web unmanaged by alice: moving"
	onUnmanage           func(protocol.UnmanageRequest) (protocol.UnmanageAnswer, error)
	auditTrail           []string
	auditServices        []string // that the lines of auditTrail concern
	published            []entities.AuditEntry
	recorded             atomic.Int64           // the highest incarnation that the store has under its number
	storeAnswer          protocol.ConfirmAnswer // the content of each incarnation in the store
	unavailable          map[string]bool        // activities that do not answer
	slow                 map[string]int         // how many calls of an activity take longer than their caller waits
	deadlineNoticed      bool                   // a slow activity notices its deadline before the SDK does
	slowMu               sync.Mutex             // of slow: activities have goroutines of their own
	hangingNotifications int                    // how many notifications hang until they are stopped
	last                 time.Duration
	answers              []string
}

func newApplicationTest(t *testing.T) *applicationTest {
	h := &applicationTest{T: t, storeAnswer: protocol.ConfirmAnswer{Services: 2}, env: (&testsuite.WorkflowTestSuite{}).NewTestWorkflowEnvironment(), unavailable: map[string]bool{}, slow: map[string]int{}}
	h.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{&Arrivals{}}})
	h.env.SetTestTimeout(time.Minute)
	h.startedAt = h.env.Now()
	h.grow = growHistory(h.env)
	register := func(name string, f any) {
		h.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
	}
	register(protocol.ActivityNotify, func(_ context.Context, r protocol.NotifyRequest) (protocol.NotifyAnswer, error) {
		if h.hangingNotifications > 0 {
			h.hangingNotifications--
			return protocol.NotifyAnswer{}, errors.New("no such store")
		}
		text := fmt.Sprintf("%s → %s as %d", r.From, r.To, r.Newest.Number)
		if r.Pinned {
			text += " pinned"
		}
		for _, i := range r.Skipped {
			text += fmt.Sprintf(", recorded %d", i.Number)
		}
		if len(r.Unmanaged) > 0 {
			text += ", without " + strings.Join(r.Unmanaged, " ")
		}
		for _, service := range entities.SortedKeys(r.Remanaged) {
			text += fmt.Sprintf(", %s %s", service, r.Remanaged[service])
		}
		require.False(t, r.At.IsZero())
		for _, i := range append(r.Skipped, r.Newest) {
			h.recorded.Store(max(h.recorded.Load(), i.Number))
		}
		h.notified, h.orders = append(h.notified, text), append(h.orders, r.Order)
		return protocol.NotifyAnswer{}, nil
	})
	register(protocol.ActivityConfirm, func(ctx context.Context, r protocol.ConfirmRequest) (protocol.ConfirmAnswer, error) {
		require.Equal(t, "shop", r.Application)
		if err := h.waitIfSlow(ctx, protocol.ActivityConfirm); err != nil {
			return protocol.ConfirmAnswer{}, err
		}
		if strings.HasPrefix(r.Hash, "h") {
			answer := h.storeAnswer
			answer.HighestIncarnation = max(answer.HighestIncarnation, h.recorded.Load())
			return answer, nil
		}
		return protocol.ConfirmAnswer{}, temporal.NewNonRetryableApplicationError("nothing was published", protocol.ErrRefused, nil)
	})
	register(protocol.ActivityRules, func(ctx context.Context, _ protocol.RulesRequest) (protocol.Rules, error) {
		return protocol.Rules{}, h.waitIfSlow(ctx, protocol.ActivityRules)
	})
	register(protocol.ActivityPause, func(_ context.Context, r protocol.AnnouncePause) error {
		word := "over"
		if r.Pause != nil {
			word = "paused by " + r.Pause.By
		}
		h.pauses = append(h.pauses, strings.Join([]string{r.Application, r.Scope, r.Manifest, word}, " "))
		return nil
	})
	register(protocol.ActivityUnmanage, func(_ context.Context, r protocol.UnmanageRequest) (protocol.UnmanageAnswer, error) {
		text := r.Manifest
		for _, service := range entities.SortedKeys(r.Services) {
			text += " " + service + " " + r.Services[service]
		}
		h.unmanageRequests = append(h.unmanageRequests, text)
		if h.onUnmanage != nil {
			return h.onUnmanage(r)
		}
		return protocol.UnmanageAnswer{}, nil
	})
	register(protocol.ActivityHistory, func(_ context.Context, r protocol.HistoryRequest) error {
		require.Equal(t, "shop", r.Application)
		require.Empty(t, r.Service)
		if h.unavailable[protocol.ActivityHistory] {
			return errors.New("connection refused")
		}
		for _, l := range r.Entries {
			if l.Kind == entities.EventPublish {
				h.published = append(h.published, l)
			} else {
				l.N -= int64(len(h.published)) // numbered without publications
				h.auditTrail = append(h.auditTrail, auditTexts([]entities.AuditEntry{l})...)
				h.auditServices = append(h.auditServices, l.Service)
			}
		}
		return nil
	})
	register(protocol.ActivityVerify, func(_ context.Context, r protocol.VerifyRequest) (protocol.VerifyAnswer, error) {
		if h.unavailable[protocol.ActivityVerify] {
			return protocol.VerifyAnswer{}, errors.New("connection refused")
		}
		if r.Token == "bob's" {
			return protocol.VerifyAnswer{Who: entities.Who{Name: "bob"}}, nil
		}
		if r.Token != "alice's" {
			return protocol.VerifyAnswer{}, temporal.NewNonRetryableApplicationError("the token has expired", protocol.ErrRefused, nil)
		}
		return protocol.VerifyAnswer{Who: entities.Who{Name: "alice", Groups: []string{"sre"}}}, nil
	})
	return h
}

func (h *applicationTest) sendSignal(d time.Duration, name string, payload any) {
	h.last = max(h.last, d)
	h.env.RegisterDelayedCallback(func() { h.grow(4); h.env.SignalWorkflow(name, payload) }, d)
}

func (h *applicationTest) publish(d time.Duration, n int) {
	h.sendSignal(d, protocol.Publish, publication(n))
}

func publication(n int) protocol.PublishRequest {
	return protocol.PublishRequest{
		RequestMeta: protocol.RequestMeta{By: "ci"}, Hash: fmt.Sprintf("h%d", n), Manifest: fmt.Sprintf("m%d", n), Services: 2, Store: "/store",
	}
}

// waitIfSlow waits until the caller of an activity gives up, as often as slow says.
func (h *applicationTest) waitIfSlow(ctx context.Context, activity string) error {
	h.slowMu.Lock()
	slow := h.slow[activity] > 0
	if slow {
		h.slow[activity]--
	}
	h.slowMu.Unlock()
	if !slow {
		return nil
	}
	if h.deadlineNoticed {
		return temporal.NewNonRetryableApplicationError(context.DeadlineExceeded.Error(), protocol.ErrTimeout, nil)
	}
	<-ctx.Done()
	return ctx.Err()
}

// sendUpdate sends an update and checks its answer or refusal.
func (h *applicationTest) sendUpdate(d time.Duration, name string, payload any, want string) {
	h.last = max(h.last, d)
	h.env.RegisterDelayedCallback(func() {
		h.grow(4)
		h.env.UpdateWorkflow(name, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) {
				require.Equal(h, want, errorText(err))
				h.answers = append(h.answers, want)
			},
			OnComplete: func(answer any, err error) {
				h.answers = append(h.answers, want)
				if err != nil {
					require.Equal(h, want, errorText(err))
					return
				}
				require.Equal(h, want, messageOf(h.T, answer))
			},
		}, payload)
	}, d)
}

// messageOf is the message in the answer to an update.
func messageOf(t *testing.T, answer any) string {
	t.Helper()
	var a protocol.Answer
	require.NoError(t, json.Unmarshal(answer.(json.RawMessage), &a))
	return a.Message
}

// carriedOf is a state as the previous run carries it; nil if there was none.
func carriedOf[S any](t *testing.T, version int, state *S) protocol.CarriedState {
	t.Helper()
	if state == nil {
		return protocol.CarriedState{}
	}
	raw, err := json.Marshal(state)
	require.NoError(t, err)
	return protocol.CarriedState{StateVersion: version, State: raw}
}

func (h *applicationTest) run(before *applicationState) *applicationState {
	h.Helper()
	h.env.RegisterDelayedCallback(func() {
		h.grow(4)
		h.env.SetContinueAsNewSuggested(true)
		h.env.SignalWorkflow("end", protocol.RequestMeta{By: "the end"})
	}, h.last+time.Second)
	if before != nil {
		h.recorded.Store(before.Recorded)
	}
	h.env.ExecuteWorkflow(Application, protocol.ApplicationInput{Application: "shop", CarriedState: carriedOf(h.T, protocol.Version, before)})
	require.True(h, h.env.IsWorkflowCompleted())
	var again *workflow.ContinueAsNewError
	require.ErrorAs(h, h.env.GetWorkflowError(), &again)
	var next protocol.ApplicationInput
	require.NoError(h, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	require.Equal(h, protocol.Version, next.StateVersion)
	after := &applicationState{}
	require.NoError(h, json.Unmarshal(next.State, after))
	require.Equal(h, "the end", after.Refused[len(after.Refused)-1].By)
	after.Refused = after.Refused[:len(after.Refused)-1]
	return after
}

func pinTo(n int64, by, why string) protocol.IncarnationPin {
	return protocol.IncarnationPin{RequestMeta: protocol.RequestMeta{By: by, Reason: why}, Incarnation: n}
}

// A pinned incarnation is announced instead of the newest. Publications continue, are recorded, and wait; an unpin announces the newest.
func TestPinnedIncarnationIsAnnounced_A17_D15(t *testing.T) {
	h := newApplicationTest(t)
	for i := range 3 {
		h.publish(time.Duration(i)*second, i+1)
	}
	h.sendUpdate(10*second, protocol.Pin, pinTo(2, "alice", "3 is bad"), "shop pinned to incarnation 2; 3 and later incarnations wait until it is unpinned")
	h.publish(20*second, 4)
	h.sendUpdate(30*second, protocol.Pin, pinTo(2, "bob", ""), "shop is pinned to incarnation 2 already, by alice")
	h.sendUpdate(40*second, protocol.Pin, pinTo(4, "bob", ""), "shop pinned to incarnation 4")
	h.sendUpdate(50*second, protocol.Unpin, protocol.RequestMeta{By: "bob"}, "shop moves to incarnation 4")
	h.sendUpdate(60*second, protocol.Unpin, protocol.RequestMeta{By: "bob"}, "shop is not pinned")
	next := h.run(nil)
	require.Equal(t, []string{
		" → m1 as 1", "m1 → m2 as 2", "m2 → m3 as 3",
		"m3 → m2 as 2 pinned",
		"m2 → m2 as 2 pinned, recorded 4",
		"m2 → m4 as 4 pinned", "m4 → m4 as 4",
	}, h.notified)
	require.Equal(t, []string{
		"1 alice: shop pinned to incarnation 2: 3 is bad", "2 bob: shop pinned to incarnation 4", "3 bob: shop unpinned",
	}, h.auditTrail)
	require.Len(t, h.answers, 5)
	require.Nil(t, next.Pin)
	require.Empty(t, next.Audit)
}

// An invalid pin is refused, with the list of valid ones, as update and as signal; nothing changes.
func TestPinRefused_A17_D15(t *testing.T) {
	for _, tt := range []struct{ name, payload, want string }{
		{"pin", `{"by":"alice","incarnation":9}`, "no incarnation 9 of shop: there are 1 to 2"},
		{"pin", `{"by":"alice"}`, `"incarnation" is missing; expected the number of one: there are 1 to 2`},
		{"pin", `{"incarnation":1}`, `"by" is missing; expected the name of the caller`},
		{"pin", `{"by":"alice","version":"v9"}`, `payload of pin: unknown field "version"`},
		{"pause", `{"by":"alice","channel":"prod"}`, `payload of pause: unknown field "channel"`},
		{"unpin", `{"by":"alice"}`, "shop is not pinned"},
		{"resume", `{"by":"alice"}`, "shop is not paused; a paused service or channel has a pause of its own"},
		{"pause", `{"by":"alice","token":"x"}`, "this application declares no identity: nothing says who issues its tokens; send no token, or declare `identity`"},
	} {
		t.Run(tt.name+" "+tt.payload, func(t *testing.T) {
			h := newApplicationTest(t)
			h.publish(0, 1)
			h.publish(0, 2)
			h.sendUpdate(5*second, tt.name, json.RawMessage(tt.payload), tt.want)
			h.sendSignal(6*second, tt.name, json.RawMessage(tt.payload))
			next := h.run(nil)
			require.Len(t, h.answers, 1)
			require.Len(t, next.Refused, 1)
			require.Equal(t, tt.want, next.Refused[0].Reason)
			require.Nil(t, next.Pin)
			require.Nil(t, next.Pause)
			require.Empty(t, h.pauses)
			require.Empty(t, h.auditTrail)
		})
	}
}

// Services are notified of the application's pause and of its end. A repeated request id gets the original answer.
func TestPauseOfApplication_A16(t *testing.T) {
	h := newApplicationTest(t)
	h.publish(0, 1)
	drill := protocol.RequestMeta{By: "alice", Reason: "incident 12", RequestID: "1"}
	h.sendSignal(5*second, protocol.Pause, drill)
	h.sendUpdate(6*second, protocol.Pause, drill, "shop is paused; applies in flight will finish")
	h.sendUpdate(7*second, protocol.Pause, protocol.RequestMeta{By: "bob"}, "shop is paused already, by alice")
	h.sendUpdate(8*second, protocol.Resume, protocol.RequestMeta{By: "bob"}, "shop is resumed")
	next := h.run(nil)
	require.Len(t, h.answers, 3)
	require.Equal(t, []string{"shop application m1 paused by alice", "shop application m1 over"}, h.pauses)
	require.Equal(t, []string{"1 alice: shop paused: incident 12", "2 bob: shop resumed"}, h.auditTrail)
	require.False(t, next.Announcing)
}

// If the application requires proof and grants, they apply to the whole application too, as update and signal.
func TestPauseOfApplicationNeedsGrant_A14(t *testing.T) {
	h := newApplicationTest(t)
	p := publication(1)
	h.storeAnswer.Identity = &entities.Identity{Issuer: "https://id.example", Audience: "converge", Required: []string{"pause"}}
	h.storeAnswer.Grants = []entities.Grant{{Verbs: []string{"pause", "pin"}, To: []string{"group:sre"}}, {Verbs: []string{"pin"}, Channels: []string{"staging"}, To: []string{"bob"}}}
	h.sendSignal(0, protocol.Publish, p)
	h.sendUpdate(1*second, protocol.Pause, protocol.RequestMeta{By: "alice"}, `pause needs proof of identity: "token" is missing; expected an ID token of https://id.example for converge`)
	h.sendUpdate(2*second, protocol.Pause, protocol.RequestMeta{By: "alice", Token: "forged"}, "the token has expired")
	h.sendSignal(3*second, protocol.Pause, protocol.RequestMeta{By: "alice", Token: "forged"})
	pin := pinTo(1, "bob", "")
	h.sendUpdate(4*second, protocol.Pin, pin, `pin needs proof of identity, since only certain callers may: "token" is missing; expected an ID token of https://id.example for converge`)
	pin.Token = "bob's"
	h.sendUpdate(4500*time.Millisecond, protocol.Pin, pin, "bob may not pin; allowed: group:sre")
	h.sendUpdate(5*second, protocol.Pause, protocol.RequestMeta{By: "mallory", Token: "alice's"},
		`shop is paused; applies in flight will finish; requested by alice, as the token proves, not by "mallory"`)
	next := h.run(nil)
	require.Len(t, h.answers, 5)
	require.Len(t, next.Refused, 1)
	require.Equal(t, "the token has expired", next.Refused[0].Reason)
	require.Equal(t, "alice", next.Pause.By)
	require.Equal(t, []string{"1 alice: shop paused"}, h.auditTrail)
}

// The previous rules decide who may publish. The new rules are those of the store, regardless of the content of the publication; as update
// and as signal. An incarnation that the store does not have is refused, and blocks nothing.
func TestPublishNeedsGrant_A14_D5(t *testing.T) {
	h := newApplicationTest(t)
	h.storeAnswer.Grants = []entities.Grant{{Verbs: []string{protocol.Publish}, To: []string{"ci", "dave"}}, {Verbs: []string{protocol.TakeOver}, To: []string{"ci"}}}
	h.publish(0, 1)
	by := func(who string, n int) protocol.PublishRequest {
		p := publication(n)
		p.By = who
		return p
	}
	takenOver := func(who string, n int) protocol.PublishRequest {
		p := by(who, n)
		p.Store, p.TakeOver = "/elsewhere", true
		return p
	}
	unknown := by("ci", 9)
	unknown.Hash = "x9"
	const refusal = "mallory may not publish; allowed: ci, dave"
	h.sendUpdate(1*second, protocol.Publish, by("mallory", 2), refusal)
	h.sendSignal(2*second, protocol.Publish, by("mallory", 2))
	h.sendUpdate(3*second, protocol.Publish, by("mallory", 1), refusal)
	h.sendUpdate(4*second, protocol.Publish, unknown, "nothing was published")
	h.sendSignal(5*second, protocol.Publish, unknown)
	h.sendUpdate(6*second, protocol.Publish, takenOver("dave", 2), "dave may not takeOver; allowed: ci")
	h.sendSignal(7*second, protocol.Publish, by("dave", 2))
	h.sendUpdate(8*second, protocol.Publish, by("mallory", 3), refusal)
	h.sendSignal(9*second, protocol.Publish, takenOver("ci", 3))
	state := h.run(nil)
	require.Equal(t, []string{" → m1 as 1", "m1 → m2 as 2", "m2 → m3 as 3"}, h.notified)
	require.Len(t, state.Refused, 2)
	require.Equal(t, "/elsewhere", state.Store)
	require.Equal(t, h.storeAnswer.Grants, state.Grants)
	require.Equal(t, []string{"1 ci: incarnation 1 from", "2 dave: incarnation 2 from", "3 ci: incarnation 3 from, taken over"}, auditTexts(h.published))
}

// The second run continues where the first one ended, with the announcements that were not sent.
func TestSecondRunOfAnApplication(t *testing.T) {
	first := newApplicationTest(t)
	first.publish(0, 1)
	first.publish(1*second, 2)
	first.sendSignal(2*second, protocol.Pin, pinTo(1, "alice", ""))
	first.sendSignal(3*second, protocol.Pause, protocol.RequestMeta{By: "alice"})
	state := first.run(nil)
	state.Announcing = true // as if it had ended before all were notified

	again := newApplicationTest(t)
	again.publish(1*second, 3)
	again.sendSignal(2*second, protocol.Unpin, protocol.RequestMeta{By: "alice"})
	last := again.run(state)
	require.Equal(t, []string{"m1 → m1 as 1 pinned, recorded 3", "m1 → m3 as 3"}, again.notified)
	require.Equal(t, []string{"shop application m1 paused by alice"}, again.pauses)
	require.Equal(t, []string{"5 alice: shop unpinned"}, again.auditTrail) // two were published before
	require.Equal(t, int64(3), last.Notified.Number)
	require.Equal(t, "alice", last.Pause.By)
}

// A notice that cannot be delivered (its store is gone) does not block the next one: all services get it.
func TestNewerNoticeReplacesHangingNotice(t *testing.T) {
	h := newApplicationTest(t)
	h.hangingNotifications = 20
	h.publish(0, 1)
	h.env.RegisterDelayedCallback(func() { h.hangingNotifications = 0 }, 40*second)
	h.publish(20*second, 2) // between two attempts
	h.sendSignal(120*second, protocol.Pin, pinTo(1, "alice", ""))
	h.run(nil)
	require.Equal(t, []string{" → m2 as 2, recorded 1", "m2 → m1 as 1 pinned"}, h.notified)
}

// A publication that the store answers too slowly within the workflow task is not refused: the store is asked outside it.
func TestPublicationWaitsForASlowStore_F4(t *testing.T) {
	for _, name := range []string{protocol.ActivityRules, protocol.ActivityConfirm} {
		for _, noticed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, noticed), func(t *testing.T) {
				h := newApplicationTest(t)
				h.slow[name], h.deadlineNoticed = 1, noticed
				h.sendUpdate(0, protocol.Publish, publication(1), "")
				state := h.run(nil)
				require.Len(t, h.answers, 1)
				require.Zero(t, h.slow[name])
				require.Len(t, state.Incarnations, 1)
			})
		}
	}
}

// newGuardedApplicationTest is an application in which a pause requires proof.
func newGuardedApplicationTest(t *testing.T) *applicationTest {
	h := newApplicationTest(t)
	p := publication(1)
	h.storeAnswer.Identity = &entities.Identity{Issuer: "https://id.example", Audience: "converge", Required: []string{"pause"}}
	h.sendSignal(0, protocol.Publish, p)
	return h
}

// While the issuer is unavailable, an update of an application returns an error to try again, as for a service, and a signal waits, also
// into the next run. No other request is blocked, and no token is kept after it was verified.
func TestApplicationWaitsForUnavailableIssuer_A14(t *testing.T) {
	h := newGuardedApplicationTest(t)
	h.unavailable[protocol.ActivityVerify] = true
	token := protocol.RequestMeta{Token: "alice's", RequestID: "r"}
	h.sendSignal(1*second, protocol.Pause, token)
	h.sendSignal(2*second, protocol.Pin, pinTo(1, "bob", ""))
	h.sendUpdate(20*second, protocol.Pause, token, "the keys of the token issuer cannot be read, try again: connection refused")
	state := h.run(nil)
	require.Len(t, h.answers, 1)
	require.Len(t, state.Inbox, 1)
	require.Empty(t, state.Refused)
	require.Nil(t, state.Pause)
	require.NotNil(t, state.Pin)
	require.Equal(t, "issuer", state.TransientProblem)
	require.Equal(t, "the keys of the token issuer cannot be read, try again: connection refused", state.Problem)

	again := newGuardedApplicationTest(t)
	again.unavailable[protocol.ActivityVerify] = true
	again.env.RegisterDelayedCallback(func() { again.unavailable[protocol.ActivityVerify] = false }, 30*second)
	again.sendUpdate(5*time.Minute, protocol.Pause, token, "shop is paused; applies in flight will finish")
	last := again.run(state)
	require.Equal(t, "alice", last.Pause.By)
	require.Empty(t, last.Inbox)
	require.Empty(t, last.Problem)
	require.Empty(t, last.TransientProblem)
	require.Len(t, again.answers, 1, "the request id gets the answer of the signal")
	raw, err := json.Marshal(last)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "alice's")
}

// The audit lines of an application stay in state while the store does not accept them, also in the next run.
func TestApplicationKeepsAuditWhileStoreIsUnavailable(t *testing.T) {
	h := newApplicationTest(t)
	h.unavailable[protocol.ActivityHistory] = true
	h.publish(0, 1)
	h.sendSignal(second, protocol.Pause, protocol.RequestMeta{By: "alice"})
	state := h.run(nil)
	require.Empty(t, h.auditTrail)
	require.Len(t, state.Audit, 2)
	require.Empty(t, state.Problem)

	again := newApplicationTest(t)
	again.sendSignal(second, protocol.Resume, protocol.RequestMeta{By: "alice"})
	last := again.run(state)
	require.Equal(t, []string{"1 alice: shop paused", "2 alice: shop resumed"}, again.auditTrail)
	require.Empty(t, last.Audit)
}

// The notifications of the newest incarnation receive the actions of people on the whole application, in order, also in the next run.
func TestApplicationAnnounces_G7(t *testing.T) {
	h := newApplicationTest(t)
	var sent []string
	sendErr := errors.New("404")
	h.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.AnnounceRequest) error {
		if sendErr == nil {
			sent = append(sent, fmt.Sprintf("%s%s %s by %s proven %t", r.Application, r.Service, r.Entry.Text, r.Entry.Who.Name, r.Entry.Who.Proven))
		}
		return sendErr
	}, activity.RegisterOptions{Name: protocol.ActivityAnnounce})
	h.storeAnswer.Notifications = []entities.Notification{{Name: "chat", Events: []string{entities.EventPause, entities.EventPublish}}}
	h.publish(0, 1)
	h.env.RegisterDelayedCallback(func() { sendErr = nil }, 10*second)
	h.sendSignal(20*second, protocol.Pause, protocol.RequestMeta{By: "alice"})
	h.sendSignal(30*second, protocol.Pin, pinTo(1, "alice", "")) // not in the events of any notification
	h.sendSignal(40*second, protocol.Resume, protocol.RequestMeta{By: "bob"})
	state := h.run(nil)
	require.Equal(t, []string{
		"shop incarnation 1 from by ci proven false", "shop shop paused by alice proven false", "shop shop resumed by bob proven false",
	}, sent)
	require.Empty(t, state.Announcements)
	require.Empty(t, state.Problem)
}
