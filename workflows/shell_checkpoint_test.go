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

// rawSignal is a signal, with the bytes that were sent.
type rawSignal struct{ verb, payload string }

// resetTest makes a test a run that an operator resets: its events until then are its old history.
type resetTest struct {
	interceptor.WorkerInterceptorBase
	p             *serviceTest
	wasReset      atomic.Bool
	resentSignals []rawSignal // signals that the server sends again with the first task after that
	checkpoint    protocol.Checkpoint
	state         []byte
	answers       func(protocol.AdoptRequest) protocol.AdoptAnswer // nil: nothing newer
}

func newResetTest(p *serviceTest) *resetTest {
	r := &resetTest{p: p}
	p.env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{r, &Arrivals{}, &Checkpoints{To: r}}, DeadlockDetectionTimeout: 5 * time.Second})
	p.env.RegisterActivityWithOptions(func(_ context.Context, q protocol.AdoptRequest) (a protocol.AdoptAnswer, err error) {
		if err = p.recordStart(protocol.ActivityAdopt, "adopt"); err == nil && r.answers != nil {
			a = r.answers(q)
		}
		return a, err
	}, activity.RegisterOptions{Name: protocol.ActivityAdopt})
	return r
}

// Take implements Checkpointer.
func (r *resetTest) Take(c protocol.Checkpoint, state []byte) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.checkpoint, r.state = c, slices.Clone(state)
}

// newerCheckpoint answers the last submitted checkpoint, as newer than the run's state.
func (r *resetTest) newerCheckpoint(missed ...protocol.MissedMessage) func(protocol.AdoptRequest) protocol.AdoptAnswer {
	return func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		r.p.mu.Lock()
		defer r.p.mu.Unlock()
		return protocol.AdoptAnswer{N: q.N + 1, Missed: missed, CarriedState: protocol.CarriedState{StateVersion: r.checkpoint.StateVersion, State: r.state}}
	}
}

// resetAt resets the run, and sets the signals that are sent again.
func (r *resetTest) resetAt(d time.Duration, again ...rawSignal) {
	r.resentSignals = again
	r.p.sendUnconfirmed(d, "reset", `{}`)
}

func (r *resetTest) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &resetTestInbound{test: r}
	i.Next = next
	return i
}

type resetTestInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	test *resetTest
}

func (i *resetTestInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	o := &resetTestOutbound{test: i.test}
	o.Next = out
	return i.Next.Init(o)
}

func (i *resetTestInbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if in.SignalName != "reset" {
		return i.Next.HandleSignal(ctx, in)
	}
	i.test.wasReset.Store(true)
	// The original bytes, with white space.
	for _, s := range append(slices.Clone(i.test.resentSignals), rawSignal{protocol.SignalWake, `{}`}) {
		payload := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(s.payload)}
		if err := i.Next.HandleSignal(ctx, &interceptor.HandleSignalInput{SignalName: s.verb, Arg: &commonpb.Payloads{Payloads: []*commonpb.Payload{payload}}}); err != nil {
			return err
		}
	}
	return nil
}

type resetTestOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	test *resetTest
}

func (o *resetTestOutbound) GetInfo(ctx workflow.Context) *workflow.Info {
	info := *o.Next.GetInfo(ctx)
	if o.test.wasReset.Load() {
		info.OriginalRunID = "the run before"
	}
	return &info
}

const (
	pauseProd  = `{"channel":"prod","by":"bob","reason":"incident 12"}`
	resumeProd = `{"channel":"prod","by":"bob"}`
)

// newPausedResetTest is a run with v1 in all channels; prod is paused after a minute.
func newPausedResetTest(t *testing.T) *resetTest {
	r := newResetTest(newServiceTest(t))
	r.p.publish(0)
	r.p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	r.p.sendSignal(minute, protocol.Pause, pauseProd)
	return r
}

// A signal with equal content that is sent while a reset run waits for its checkpoint is carried out, whether the checkpoint is newer or
// not.
func TestRepeatedSignalAfterAResetIsCarriedOut_F1(t *testing.T) {
	for _, newer := range []bool{false, true} {
		t.Run(fmt.Sprintf("newer=%t", newer), func(t *testing.T) {
			r := newPausedResetTest(t)
			p, away := r.p, 2*minute
			if newer { // the checkpoint has the resume, the run does not: it is sent again
				other := newPausedResetTest(t)
				other.p.sendSignal(90*second, protocol.Resume, resumeProd)
				other.p.run(firstInput, minute)
				r.answers, away = other.newerCheckpoint(), 80*second
			} else {
				p.sendSignal(90*second, protocol.Resume, resumeProd)
			}
			p.at(away-second, func() { p.setErr(protocol.ActivityAdopt, errors.New("the disk is full")) })
			if newer {
				r.resetAt(away, rawSignal{protocol.Resume, resumeProd})
			} else {
				r.resetAt(away)
			}
			p.sendSignal(2*minute+10*second, protocol.Pause, pauseProd)
			p.at(2*minute+35*second, func() { p.setErr(protocol.ActivityAdopt, nil) })
			p.atStatus(5*minute, func(s protocol.Status) {
				require.Equal(t, "staging CONVERGED v1, prod PAUSED v1", statusOf(s))
			})
			p.run(firstInput, minute)
		})
	}
}

// Signals that were missed, and are sent again, are carried out once, in order, and recorded.
func TestMissedSignalsAreCarriedOutOnce_F1(t *testing.T) {
	r := newPausedResetTest(t)
	r.answers = r.newerCheckpoint(
		protocol.MissedMessage{Verb: protocol.Resume, Payload: json.RawMessage(resumeProd)},
		protocol.MissedMessage{Verb: protocol.Pause, UpdateID: "u1", Payload: json.RawMessage(`{"channel":"prod","by":"ann"}`)},
	)
	r.resetAt(2*minute, rawSignal{protocol.Resume, `{"channel": "prod", "by": "bob"}`})
	again := r.p.sendUpdate(2*minute+second, protocol.Pause, `{"channel":"prod","by":"ann","requestId":"u1"}`)
	r.p.atStatus(3*minute, func(s protocol.Status) { require.Equal(t, "staging CONVERGED v1, prod PAUSED v1", statusOf(s)) })
	next := r.p.run(firstInput, minute)
	require.NoError(t, again.err)
	require.Contains(t, r.p.stateOf(next).SeenSignals, digestOf(protocol.Resume, json.RawMessage(resumeProd)))
}

// A request that waits for the store when a run is reset still waits afterwards.
func TestWaitingRequestSurvivesAReset_F1(t *testing.T) {
	p := newStoreOutageTest(t)
	r := newResetTest(p)
	p.sendSignal(2*minute, protocol.Release, `{"version":"v2","by":"ci"}`)
	r.resetAt(2*minute + 10*second)
	p.at(3*minute, func() { p.setErr(protocol.ActivityPrepare, nil) })
	p.atStatus(6*minute, func(s protocol.Status) { require.Equal(t, []string{"v2", "v1"}, releaseVersions(s)) })
	p.run(firstInput, minute)
}

// seenSince returns the part after the earlier digests, of which the oldest may have been dropped.
func TestSeenSince_F1(t *testing.T) {
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
		require.Equal(t, tt.want, seenSince(tt.heard, tt.before))
	}
}

// An update that is being carried out when a run learns of a later state is not lost: it ends before that checkpoint is read, and its
// effect comes after it.
func TestUpdateDuringAnAdoptionIsKept_F1(t *testing.T) {
	r := newResetTest(newServiceTest(t))
	p := r.p
	prepared, completed := make(chan struct{}), make(chan struct{})
	var before protocol.CarriedState
	reads := 0
	r.answers = func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		a := protocol.AdoptAnswer{N: q.N + 1, CarriedState: before}
		if reads++; reads == 1 {
			close(prepared)
			<-completed
			return a
		}
		require.Positive(p, q.OwnUpTo)
		a.Missed = []protocol.MissedMessage{{Verb: protocol.Release, UpdateID: "u2", Payload: json.RawMessage(`{"version":"v2","by":"ci"}`)}}
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
	p.publish(0)
	p.hangApply("v1 to staging")
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(minute, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		before = protocol.CarriedState{StateVersion: r.checkpoint.StateVersion, State: slices.Clone(r.state)}
	})
	p.at(2*minute, func() {
		p.env.UpdateWorkflow(protocol.Release, "u2", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { require.NoError(p, err) },
			OnComplete: func(_ any, err error) {
				require.NoError(p, err)
				close(completed)
			},
		}, json.RawMessage(`{"version":"v2","by":"ci"}`))
		p.completeHanging("v1 to staging", protocol.ApplyAnswer{Err: "refused, since another run is further", Fenced: &protocol.Claim{Sequence: 9}})
	})
	p.atStatus(4*minute, func(s protocol.Status) { require.Equal(p, []string{"v2", "v1"}, releaseVersions(s)) })
	p.run(firstInput, minute)
	require.Equal(t, 2, reads)
}

// An update that is answered while a run ends, and waits for the store, is in a checkpoint at once, not only in that of the next run: the
// worker may be gone by then.
func TestUpdateAnsweredAtTheEndOfARunIsInACheckpoint_F1(t *testing.T) {
	r := newPausedResetTest(t)
	p := r.p
	answered := make(chan struct{})
	var written string
	p.env.RegisterActivityWithOptions(func(context.Context, protocol.HistoryRequest) error {
		<-answered
		p.mu.Lock()
		defer p.mu.Unlock()
		written = string(r.state)
		return nil
	}, activity.RegisterOptions{Name: protocol.ActivityHistory, DisableAlreadyRegisteredCheck: true})
	p.env.SetOnLocalActivityStartedListener(func(info *activity.Info, _ context.Context, _ []any) {
		if info.ActivityType.Name != protocol.ActivityHistory {
			return
		}
		p.env.UpdateWorkflow(protocol.Pause, "u", &testsuite.TestUpdateCallback{
			OnAccept:   func() {},
			OnReject:   func(err error) { require.NoError(p, err) },
			OnComplete: func(_ any, err error) { require.NoError(p, err); close(answered) },
		}, json.RawMessage(`{"channel":"staging","by":"bob","reason":"drill"}`))
	})
	p.run(firstInput, minute)
	require.Contains(t, written, "drill")
}

// A checkpoint that is gone at the second read, since the store was restored in between, replaces no state.
func TestAVanishedCheckpointReplacesNoState_F1_F4(t *testing.T) {
	r := newResetTest(newServiceTest(t))
	p, reads := r.p, 0
	newer := r.newerCheckpoint()
	r.answers = func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		if reads++; reads == 1 {
			return newer(q)
		}
		return protocol.AdoptAnswer{}
	}
	p.publish(0)
	p.hangApply("v1 to staging")
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(2*minute, func() {
		p.completeHanging("v1 to staging", protocol.ApplyAnswer{Err: "refused, since another run is further", Fenced: &protocol.Claim{Sequence: 9}})
	})
	p.atStatus(4*minute, func(s protocol.Status) {
		require.Equal(p, []string{"v1"}, releaseVersions(s))
		require.Equal(p, "staging CONVERGED v1, prod CONVERGED v1", statusOf(s))
	})
	p.run(firstInput, minute)
	require.Equal(t, 2, reads)
}

// A run of an installation that was moved does not take over what the other one does: its checkpoints would replace those of that one.
func TestAMovedInstallationAdoptsNothing_F2(t *testing.T) {
	r := newResetTest(newServiceTest(t))
	p, reads := r.p, 0
	newer := r.newerCheckpoint()
	r.answers = func(q protocol.AdoptRequest) protocol.AdoptAnswer {
		reads++
		return newer(q)
	}
	p.publish(0)
	p.hangApply("v1 to staging")
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(2*minute, func() {
		p.completeHanging("v1 to staging", protocol.ApplyAnswer{Err: "refused: the installation was moved", Fenced: &protocol.Claim{Epoch: 2}})
	})
	p.atStatus(150*second, func(s protocol.Status) {
		require.Contains(p, fmt.Sprint(s.Channels[0].Reasons), "the installation was moved")
	})
	p.run(firstInput, minute)
	require.Zero(t, reads)
}
