package workflows

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// jointAutumn is a joint release that names v2 of web.
var jointAutumn = protocol.Joint{
	Application: "shop", ID: "autumn", Who: entities.Who{Name: "alice"}, At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
	Services: map[string]protocol.ServiceVersion{"web": {Version: "v2"}, "api": {Version: "w2"}},
}

// registerJoint puts jointAutumn into the store, with a decision. Without a decision, the first abort decides.
func (p *serviceTest) registerJoint(decision *protocol.JointDecision) {
	as := func(name string, f any) { p.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	as(protocol.ActivityReserve, func(_ context.Context, r protocol.ReserveRequest) (protocol.ReserveAnswer, error) {
		return protocol.ReserveAnswer{Joint: jointAutumn}, p.recordStart(protocol.ActivityReserve, "reserve %s", r.ID)
	})
	as(protocol.ActivityOutcome, func(_ context.Context, r protocol.OutcomeRequest) (protocol.OutcomeAnswer, error) {
		if r.Abort && decision == nil {
			decision = &protocol.JointDecision{ID: r.ID, Why: "nobody came"}
		}
		return protocol.OutcomeAnswer{Joint: jointAutumn, Decision: decision}, p.recordStart(protocol.ActivityOutcome, "ask")
	})
}

// promiseAndEnd is a run that promises v2, waits for the decision, and ends; it returns the input of the next run.
func promiseAndEnd(t *testing.T) (*serviceTest, protocol.ServiceInput, *updateResult) {
	p := newServiceTest(t)
	p.registerJoint(nil)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	promise := p.sendUpdate(minute, protocol.Reserve, `{"id":"autumn"}`)
	again := p.sendUpdate(minute+second, protocol.Reserve, `{"id": "autumn"}`)
	early := p.sendUpdate(minute+2*second, protocol.Conclude, `{"id":"autumn"}`)
	same := p.sendUpdate(minute+3*second, protocol.Release, `{"version":"v2","by":"ci"}`)
	p.sendSignal(minute+4*second, protocol.Release, `{"version":"v3","by":"ci"}`)
	next := p.run(firstInput, 10*second)
	require.NoError(t, promise.err)
	require.Equal(t, promise.message, again.message)
	require.ErrorContains(t, early.err, "release autumn is not decided yet")
	require.Equal(t, "staging CONVERGED v3, prod CONVERGED v3", statusOf(p.status()), "a promise blocks nothing else")
	return p, next, same
}

// A promise survives the end of its run. It blocks only another release of the version that it defines.
func TestPromiseSurvivesTheRun_B8(t *testing.T) {
	_, next, same := promiseAndEnd(t)
	require.ErrorContains(t, same.err, "v2 of shop/web is part of release autumn")
	s := &state.State{}
	require.NoError(t, json.Unmarshal(next.State, s))
	require.Len(t, s.Reservations, 1)
}

// A service that gets no more messages about a joint release reads the store once its promise is due. If there is no decision, it aborts
// the joint release. A committed one is opened once, however often the decision arrives.
func TestDuePromiseReadsTheDecision_B8(t *testing.T) {
	for _, tt := range []struct {
		name     string
		decision *protocol.JointDecision
		want     string
	}{
		{"nothing", nil, "staging CONVERGED v3, prod CONVERGED v3"},
		{"committed", &protocol.JointDecision{ID: "autumn", Committed: true}, "staging CONVERGED v2, prod CONVERGED v2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, next, _ := promiseAndEnd(t)
			p := newServiceTest(t)
			p.startAfter(before)
			p.registerJoint(tt.decision)
			p.atStatus(minute, func(s protocol.Status) {
				require.Equal(t, "staging CONVERGED v3, prod CONVERGED v3", statusOf(s), "no message arrived yet")
			})
			p.atStatus(5*minute, func(s protocol.Status) { require.Equal(t, tt.want, statusOf(s)) })
			again := p.sendUpdate(6*minute, protocol.Conclude, `{"id":"autumn"}`)
			last := p.stateOf(p.run(next, minute))
			require.NoError(t, again.err)
			require.Empty(t, last.Reservations)
			require.Equal(t, tt.decision != nil, last.ReleaseByID("autumn") != nil)
		})
	}
}

// A publication between a promise and the decision comes after the release, as after any other. An instance that it moves to another
// runtime goes there.
func TestPublicationBetweenPromiseAndDecisionFollows_B8_B9(t *testing.T) {
	p := newServiceTest(t)
	p.registerJoint(&protocol.JointDecision{ID: "autumn", Committed: true})
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	promise := p.sendUpdate(minute, protocol.Reserve, `{"id":"autumn"}`)
	p.at(2*minute, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		spec := *p.spec
		spec.Channels = slices.Clone(spec.Channels)
		for n := range spec.Channels {
			spec.Channels[n].Instances = slices.Clone(spec.Channels[n].Instances)
			spec.Channels[n].Instances[0].Template = "another"
		}
		p.spec = &spec
	})
	p.sendSignal(2*minute+second, protocol.Publish, `{"incarnation":2,"hash":"h2","spec":"s2","store":"s","by":"ci"}`)
	decided := p.sendUpdate(3*minute, protocol.Conclude, `{"id":"autumn"}`)
	last := p.stateOf(p.run(firstInput, 10*minute))
	require.NoError(t, promise.err)
	require.NoError(t, decided.err)
	var made []string
	for _, r := range last.Releases {
		made = append(made, r.FullVersion)
	}
	require.Equal(t, []string{"v1", "v1-i2", "v2", "v2-i2"}, made)
}

// A joint release that was carried out and pruned is not opened again by a repeated message.
func TestPrunedJointReleaseIsNotOpenedAgain_B8(t *testing.T) {
	p := newServiceTest(t)
	p.registerJoint(&protocol.JointDecision{ID: "autumn", Committed: true})
	p.publish(0)
	lost := p.sendUpdate(minute, protocol.Conclude, `{"id":"autumn"}`)
	last := p.stateOf(p.run(firstInput, minute))
	require.Contains(t, lost.message, "release autumn: v2 from incarnation 1", "its promise was lost, but not the decision")
	require.Len(t, last.Releases, 1)

	last.Releases = nil // as after enough other releases
	raw, err := json.Marshal(last)
	require.NoError(t, err)
	later := newServiceTest(t)
	later.startAfter(p)
	later.registerJoint(&protocol.JointDecision{ID: "autumn", Committed: true})
	again := later.sendUpdate(2*minute, protocol.Conclude, `{"id":"autumn"}`)
	in := protocol.ServiceInput{Application: "shop", Service: "web", CarriedState: protocol.CarriedState{StateVersion: protocol.Version, State: raw}}
	last = later.stateOf(later.run(in, minute))
	require.Contains(t, again.message, "release autumn is carried out already")
	require.Empty(t, last.Releases)
}
