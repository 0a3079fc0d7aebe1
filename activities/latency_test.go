package activities

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A workflow task waits only for readings of runtimes that answered quickly the last time, a moment ago.
func TestLatencyTracker_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p latencyTracker
		now := time.Now
		require.False(t, p.isFast("eu", now()), "unknown")
		p.record("eu", now(), fastLimit, entities.Reading{})
		require.True(t, p.isFast("eu", now()))
		require.False(t, p.isFast("us", now()), "another runtime")
		p.record("eu", now(), fastLimit+time.Millisecond, entities.Reading{})
		require.False(t, p.isFast("eu", now()), "slow reading")
		p.record("eu", now(), 0, entities.Reading{Err: &entities.ReadingError{}})
		require.False(t, p.isFast("eu", now()), "failed reading")
		p.record("eu", now(), 0, entities.Reading{})
		time.Sleep(fastTTL)
		require.False(t, p.isFast("eu", now()), "expired")
		p.record("us", now(), 0, entities.Reading{})
		require.Len(t, p.last, 1, "expired entries are dropped")
	})
}

// A reading that a workflow task waits for is complete or refused. It does not start unless the runtime is known to be fast.
func TestLocalObservationIsCompleteOrRefused_A7(t *testing.T) {
	a, rt := newFakeActivities(t)
	digest := putFakeRuntime(t, a, "eu")
	observe := func(here bool, services ...string) (protocol.ObserveAllAnswer, error) {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(a.ObserveAll, activity.RegisterOptions{Name: protocol.ActivityObserveAll})
		r := protocol.ObserveAllRequest{Immediate: here}
		for _, service := range services {
			r.Requests = append(r.Requests, protocol.ObserveRequest{
				Application: "shop", Service: service, ServiceID: "shop." + service, Runtime: "eu", RuntimeDigest: digest, Timeout: time.Second, Interval: time.Hour,
				Instances: []protocol.InstanceRef{{ID: entities.InstanceID{Channel: service, Name: entities.OnlyInstance}}},
			})
		}
		value, err := env.ExecuteActivity(protocol.ActivityObserveAll, r)
		var answer protocol.ObserveAllAnswer
		if err == nil {
			err = value.Get(&answer)
		}
		return answer, err
	}
	_, err := observe(true, "web")
	require.ErrorContains(t, err, errNotLocal.Error())
	require.Zero(t, rt.At("shop", "web", "web").Readings(), "not started")

	quickly := func() {
		a.latencies.record(digest, time.Now(), 0, entities.Reading{}) // in case this machine is slow
	}
	_, err = observe(false, "web")
	require.NoError(t, err)
	quickly()
	answer, err := observe(true, "web")
	require.NoError(t, err)
	require.Len(t, answer.Readings, 1)

	quickly()
	a.readingSlots = keyedSemaphore{total: 2, perKey: 1}
	_, err = observe(true, "web", "cart")
	require.ErrorContains(t, err, errNotLocal.Error(), "no slot for the second service")
	a.readingSlots = keyedSemaphore{total: maxReadings, perKey: maxRuntimeReadings}

	quickly()
	t.Cleanup(rt.At("shop", "api", "api").HangReadings())
	_, err = observe(true, "api")
	require.ErrorContains(t, err, errNotLocal.Error())
	require.Positive(t, rt.At("shop", "api", "api").Readings())
	require.False(t, a.latencies.isFast(digest, time.Now()), "a hanging runtime is not fast")
}
