package workflows

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// addSteppedRollout gives staging a rollout with steps: after an apply it waits for a person at a step, until it is promoted or aborted.
func addSteppedRollout(p *serviceTest) {
	edge := p.spec.Runtimes["edge"]
	edge.Observable = true
	edge.Timing.GracePeriod, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval = time.Hour, minute, 30*time.Minute
	as := func(name string, f any) { p.env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	now := entities.Object{Name: "web", Type: "Rollout", Status: entities.ObjectPending, Suspended: "pause 1", Steerable: true, Message: "paused at step 1 of 2"}
	readingOf := func(version string) entities.Reading {
		o := now
		o.Versions = []entities.ObjectVersion{{Version: version, Active: true}}
		return entities.Reading{At: p.env.Now(), Objects: []entities.Object{o}}
	}
	p.readingAfterApply = func(version string) *entities.Reading { r := readingOf(version); return &r }
	as(protocol.ActivityObserve, func(_ context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{}}
		for _, ref := range r.Instances {
			reading := entities.Reading{At: p.env.Now()}
			if ref.FullVersion != "" && len(p.started) > 0 {
				reading = readingOf(ref.FullVersion)
			}
			if r.Interval == 0 || reading.Digest() != ref.KnownDigest {
				answer.Readings[ref.ID] = reading
			}
		}
		if len(answer.Readings) > 0 {
			return answer, nil
		}
		return answer, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: 30 * time.Minute})
	})
	as(protocol.ActivitySteer, func(_ context.Context, r protocol.SteerRequest) (protocol.SteerAnswer, error) {
		if err := p.recordStart(protocol.ActivitySteer, "%s %s in %s at %s on %s", r.Action, r.Instance.FullVersion, r.Instance.ID, r.At, r.Runtime); err != nil {
			return protocol.SteerAnswer{Err: err.Error()}, nil
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		now.Suspended, now.Status, now.Message = "", entities.ObjectSucceeded, ""
		if r.Action == protocol.Abort {
			now.Status, now.Message = entities.ObjectFailed, "RolloutAborted"
		}
		return protocol.SteerAnswer{Actions: []string{"Rollout/web continues"}}, nil
	})
}

// A rollout that waits at a step waits without a limit for a person, who promotes it by a verb. The verb is refused if no rollout waits, is
// held by a pause, carried out once, and audited.
func TestWaitingRolloutIsPromoted_H3_I1(t *testing.T) {
	p := newServiceTest(t)
	addSteppedRollout(p)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.atStatus(3*time.Hour, func(s protocol.Status) {
		require.Equal(t, string(entities.StatusSuspended), s.Channels[0].Status, "three hours, and a deadline of one")
		require.Equal(t, "web waits for a person: paused at step 1 of 2", s.Channels[0].Reasons[0].Text)
		require.Equal(t, "converge promote shop/web staging", s.Channels[0].Reasons[0].Unblock)
	})
	nowhere := p.sendUpdate(3*time.Hour, protocol.Promote, `{"by":"ann","channel":"prod"}`)
	p.sendSignal(3*time.Hour+second, protocol.Pause, `{"by":"bob","channel":"staging"}`)
	held := p.sendUpdate(3*time.Hour+2*second, protocol.Promote, `{"by":"ann","channel":"staging"}`)
	p.sendSignal(3*time.Hour+3*second, protocol.Resume, `{"by":"bob","channel":"staging"}`)
	lost := p.sendUpdate(3*time.Hour+4*second, protocol.Promote, `{"by":"ann"}`)
	p.at(3*time.Hour+4*second-time.Millisecond, func() { p.setErr(protocol.ActivitySteer, temporalError("the cluster is not reachable")) })
	p.at(3*time.Hour+minute, func() { p.setErr(protocol.ActivitySteer, nil) })
	done := p.sendUpdate(3*time.Hour+2*minute, protocol.Promote, `{"by":"ann","channel":"staging","reason":"looks good"}`)
	p.atStatus(5*time.Hour, func(s protocol.Status) { require.Equal(t, string(entities.StatusConverged), s.Channels[0].Status) })
	p.run(firstInput, minute)

	require.ErrorContains(t, nowhere.err, "nothing was released to shop/web prod yet: there is no rollout to promote")
	require.ErrorContains(t, held.err, "nothing to promote: staging (paused by bob)")
	require.NoError(t, lost.err)
	require.Contains(t, done.message, "promote requested for v1 in staging")
	promoted := "promote v1 in staging at pause 1 on edge"
	require.Equal(t, []string{promoted, promoted}, p.startedActivities("keep", "apply"))
	var lines []string
	for n := range int64(len(p.trail)) {
		if l := p.trail[n+1]; l.Kind == entities.EventRetry {
			lines = append(lines, l.Who.Name+": "+l.Text+entities.Because(l.Reason))
		}
	}
	require.Equal(t, []string{
		"ann: promote of v1", "ann: promote of v1 failed: the cluster is not reachable (type: x, retryable: false)",
		"ann: promote of v1" + entities.Because("looks good"), "ann: promote of v1: Rollout/web continues" + entities.Because("looks good"),
	}, lines)
}

// An aborted rollout has failed, even though its channel is paused.
func TestAbortedRolloutHasFailed_H3(t *testing.T) {
	p := newServiceTest(t)
	addSteppedRollout(p)
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.sendSignal(minute, protocol.Pause, `{"by":"bob","channel":"staging"}`)
	back := p.sendUpdate(2*minute, protocol.Abort, `{"by":"ann","channel":"staging","reason":"errors"}`)
	p.sendSignal(3*minute, protocol.Resume, `{"by":"bob","channel":"staging"}`)
	p.atStatus(2*time.Hour, func(s protocol.Status) {
		require.Equal(t, string(entities.StatusFailed), s.Channels[0].Status)
	})
	p.run(firstInput, minute)
	require.NoError(t, back.err)
	require.Equal(t, []string{"abort v1 in staging at pause 1 on edge"}, p.startedActivities("keep", "apply"))
}
