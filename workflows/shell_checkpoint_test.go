package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// said is a signal, with the bytes that were sent.
type said struct{ verb, payload string }

// resetting makes a play a run that an operator resets: its events until then are its old history.
type resetting struct {
	interceptor.WorkerInterceptorBase
	p       *play
	was     atomic.Bool
	again   []said // signals that the server sends again with the first task after that
	kept    protocol.Checkpoint
	state   []byte
	answers func(protocol.AdoptRequest) protocol.AdoptAnswer // nil: nothing newer
}

func resets(p *play) *resetting {
	r := &resetting{p: p}
	p.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{r, &Arrivals{}, &Checkpoints{To: r}}, DeadlockDetectionTimeout: 5 * time.Second})
	p.env.RegisterActivityWithOptions(func(_ context.Context, q protocol.AdoptRequest) (a protocol.AdoptAnswer, err error) {
		if err = p.does(protocol.ActivityAdopt, "adopt"); err == nil && r.answers != nil {
			a = r.answers(q)
		}
		return a, err
	}, activity.RegisterOptions{Name: protocol.ActivityAdopt})
	return r
}

// Take implements Checkpointer.
func (r *resetting) Take(c protocol.Checkpoint, state []byte) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.kept, r.state = c, slices.Clone(state)
}

// newer answers the last submitted checkpoint, as newer than the run's state.
func (r *resetting) newer(missed ...protocol.Missed) func(protocol.AdoptRequest) protocol.AdoptAnswer {
	return func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		return protocol.AdoptAnswer{N: q.N + 1, Missed: missed, Carried: protocol.Carried{StateVersion: r.kept.StateVersion, State: r.state}}
	}
}

// at resets the run, and sets the signals that are sent again.
func (r *resetting) at(d time.Duration, again ...said) {
	r.again = again
	r.p.forges(d, "reset", `{}`)
}

func (r *resetting) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &resettingInbound{of: r}
	i.Next = next
	return i
}

type resettingInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	of *resetting
}

func (i *resettingInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	o := &resettingOutbound{of: i.of}
	o.Next = out
	return i.Next.Init(o)
}

func (i *resettingInbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if in.SignalName != "reset" {
		return i.Next.HandleSignal(ctx, in)
	}
	i.of.was.Store(true)
	for _, s := range append(slices.Clone(i.of.again), said{protocol.SignalWake, `{}`}) { // the original bytes, with white space
		payload := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(s.payload)}
		if err := i.Next.HandleSignal(ctx, &interceptor.HandleSignalInput{SignalName: s.verb, Arg: &commonpb.Payloads{Payloads: []*commonpb.Payload{payload}}}); err != nil {
			return err
		}
	}
	return nil
}

type resettingOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	of *resetting
}

func (o *resettingOutbound) GetInfo(ctx workflow.Context) *workflow.Info {
	info := *o.Next.GetInfo(ctx)
	if o.of.was.Load() {
		info.OriginalRunID = "the run before"
	}
	return &info
}

const (
	incident = `{"channel":"prod","by":"bob","reason":"incident 12"}`
	mended   = `{"channel":"prod","by":"bob"}`
)

// incidents is a run with v1 in all channels; prod is paused after a minute.
func incidents(t *testing.T) *resetting {
	r := resets(newPlay(t))
	r.p.publishes(0)
	r.p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	r.p.sends(minute, protocol.Pause, incident)
	return r
}

// A signal with equal content that is sent while a reset run waits for its checkpoint is carried out, whether the checkpoint is newer or
// not.
func TestWhatIsSaidAgainAfterAResetIsMeant_F1(t *testing.T) {
	for _, newer := range []bool{false, true} {
		t.Run(fmt.Sprintf("newer=%t", newer), func(t *testing.T) {
			r := incidents(t)
			p, away := r.p, 2*minute
			if newer { // the checkpoint has the resume, the run does not: it is sent again
				whole := incidents(t)
				whole.p.sends(90*second, protocol.Resume, mended)
				whole.p.acts(first, minute)
				r.answers, away = whole.newer(), 80*second
			} else {
				p.sends(90*second, protocol.Resume, mended)
			}
			p.at(away-second, func() { p.failing(protocol.ActivityAdopt, errors.New("the disk is full")) })
			if newer {
				r.at(away, said{protocol.Resume, mended})
			} else {
				r.at(away)
			}
			p.sends(2*minute+10*second, protocol.Pause, incident)
			p.at(2*minute+35*second, func() { p.failing(protocol.ActivityAdopt, nil) })
			p.sees(5*minute, func(s protocol.Status) {
				require.Equal(t, "staging CONVERGED v1, prod PAUSED v1", statusOf(s))
			})
			p.acts(first, minute)
		})
	}
}

// Signals that were missed, and are sent again, are carried out once, in order, and recorded.
func TestMissedSignalsAreCarriedOutOnce_F1(t *testing.T) {
	r := incidents(t)
	r.answers = r.newer(
		protocol.Missed{Verb: protocol.Resume, Payload: json.RawMessage(mended)},
		protocol.Missed{Verb: protocol.Pause, UpdateID: "u1", Payload: json.RawMessage(`{"channel":"prod","by":"ann"}`)},
	)
	r.at(2*minute, said{protocol.Resume, `{"channel": "prod", "by": "bob"}`})
	again := r.p.asksFor(2*minute+second, protocol.Pause, `{"channel":"prod","by":"ann","requestId":"u1"}`)
	r.p.sees(3*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod PAUSED v1", statusOf(s)) })
	next := r.p.acts(first, minute)
	require.NoError(t, again.err)
	require.Contains(t, r.p.stateOf(next).Heard, digestOf(protocol.Resume, json.RawMessage(mended)))
}

// A request that waits for the store when a run is reset still waits afterwards.
func TestWhatWaitsIsKeptThroughAReset_F1(t *testing.T) {
	p := away(t)
	r := resets(p)
	p.sends(2*minute, protocol.Release, `{"version":"v2","by":"ci"}`)
	r.at(2*minute + 10*second)
	p.at(3*minute, func() { p.failing(protocol.ActivityPrepare, nil) })
	p.sees(6*minute, func(s protocol.Status) { require.Equal(t, []string{"v2", "v1"}, versionsOf(s)) })
	p.acts(first, minute)
}

// heardSince returns the part after the earlier digests, of which the oldest may have been dropped.
func TestHeardSince_F1(t *testing.T) {
	var all []string
	for n := range 102 {
		all = append(all, fmt.Sprint(n))
	}
	for _, tt := range []struct{ heard, before, want []string }{
		{[]string{"a", "b", "c"}, []string{"a", "b"}, []string{"c"}},
		{[]string{"a", "b", "c"}, nil, []string{"a", "b", "c"}},
		{all[2:102], all[:100], all[100:]},
		{[]string{"x", "y"}, []string{"a", "b"}, []string{"x", "y"}},
		{[]string{"a", "b", "a"}, []string{"a", "b"}, []string{"a"}},
	} {
		require.Equal(t, tt.want, heardSince(tt.heard, tt.before))
	}
}

// An update that is being carried out when a run learns of a later state is not lost: it ends before that checkpoint is read, and its
// effect comes after it.
func TestAnUpdateBesideAnAdoptionIsKept_F1(t *testing.T) {
	r := resets(newPlay(t))
	p := r.p
	prepared, carriedOut := make(chan struct{}), make(chan struct{})
	var before protocol.Carried
	reads := 0
	r.answers = func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		a := protocol.AdoptAnswer{N: q.N + 1, Carried: before}
		if reads++; reads == 1 {
			close(prepared)
			<-carriedOut
			return a
		}
		require.Positive(p, q.OwnUpTo)
		a.Missed = []protocol.Missed{{Verb: protocol.Release, UpdateID: "u2", Payload: json.RawMessage(`{"version":"v2","by":"ci"}`)}}
		return a
	}
	p.env.RegisterActivityWithOptions(func(_ context.Context, q protocol.PrepareRequest) (protocol.PrepareAnswer, error) {
		if q.Version == "v2" {
			<-prepared
		}
		answer := protocol.PrepareAnswer{Incarnation: q.Incarnation, Payloads: map[entities.InstanceID]protocol.PreparedPayload{}}
		for _, id := range q.Instances {
			answer.Payloads[id] = protocol.PreparedPayload{Digest: q.Version + id.Key()}
		}
		return answer, nil
	}, activity.RegisterOptions{Name: protocol.ActivityPrepare, DisableAlreadyRegisteredCheck: true})
	p.publishes(0)
	p.hangs("v1 to staging")
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(minute, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		before = protocol.Carried{StateVersion: r.kept.StateVersion, State: slices.Clone(r.state)}
	})
	p.at(2*minute, func() {
		p.env.UpdateWorkflow(protocol.Release, "u2", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { require.NoError(p, err) },
			OnComplete: func(_ any, err error) {
				require.NoError(p, err)
				close(carriedOut)
			},
		}, json.RawMessage(`{"version":"v2","by":"ci"}`))
		fenced := protocol.ApplyAnswer{Err: "refused, since another run is further", Fenced: &protocol.Claim{Sequence: 9}}
		require.NoError(p, p.env.CompleteActivity(p.hung["v1 to staging"], fenced, nil))
		delete(p.hung, "v1 to staging")
	})
	p.sees(4*minute, func(s protocol.Status) { require.Equal(p, []string{"v2", "v1"}, versionsOf(s)) })
	p.acts(first, minute)
	require.Equal(t, 2, reads)
}

// A checkpoint that is gone at the second read, since the store was restored in between, replaces no state.
func TestAVanishedCheckpointReplacesNoState_F1_F4(t *testing.T) {
	r := resets(newPlay(t))
	p, reads := r.p, 0
	newer := r.newer()
	r.answers = func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		if reads++; reads == 1 {
			return newer(q)
		}
		return protocol.AdoptAnswer{}
	}
	p.publishes(0)
	p.hangs("v1 to staging")
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(2*minute, func() {
		fenced := protocol.ApplyAnswer{Err: "refused, since another run is further", Fenced: &protocol.Claim{Sequence: 9}}
		require.NoError(p, p.env.CompleteActivity(p.hung["v1 to staging"], fenced, nil))
		delete(p.hung, "v1 to staging")
	})
	p.sees(4*minute, func(s protocol.Status) {
		require.Equal(p, []string{"v1"}, versionsOf(s))
		require.Equal(p, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s))
	})
	p.acts(first, minute)
	require.Equal(t, 2, reads)
}
