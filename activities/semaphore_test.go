package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
)

// A hung holder uses its share of the slots and no more. The retry delay grows with the time that it hangs.
func TestKeyedSemaphore_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := keyedSemaphore{total: 3, perKey: 2}
		take := func(key string) (release func(), retryAfter time.Duration) { return p.acquire(key, time.Now()) }
		first, _ := take("a")
		second, _ := take("a")
		require.NotNil(t, first)
		require.NotNil(t, second)
		none, retryAfter := take("a")
		require.Nil(t, none)
		require.Equal(t, minSlotRetry, retryAfter)
		time.Sleep(7 * time.Second)
		_, retryAfter = take("a")
		require.Equal(t, 14*time.Second, retryAfter)
		time.Sleep(time.Hour)
		_, retryAfter = take("a")
		require.Equal(t, maxSlotRetry, retryAfter)

		third, _ := take("b")
		require.NotNil(t, third, "another key is not blocked")
		none, retryAfter = take("c")
		require.Nil(t, none, "total limit reached")
		require.Equal(t, minSlotRetry, retryAfter)
		first()
		fourth, _ := take("c")
		require.NotNil(t, fourth)
		for _, release := range []func(){second, third, fourth} {
			release()
		}
		require.Empty(t, p.held)
		require.Zero(t, p.inUse)
	})
}

// newFakeActivities returns activities with a store of their own, and the runtime in memory that all their runtimes are.
func newFakeActivities(t *testing.T) (*Activities, *fakeruntime.Runtime) {
	t.Helper()
	s, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	rt := fakeruntime.New(nil)
	a := New(s, nil, map[entities.RuntimeKind]Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return rt, nil },
	})
	t.Cleanup(a.Close)
	return a, rt
}

// putFakeRuntime stores a runtime with that name and returns its digest.
func putFakeRuntime(t *testing.T, a *Activities, name string) string {
	t.Helper()
	digest, err := a.Store.PutRuntime(t.Context(), entities.RuntimeDefinition{Name: name, Kind: entities.RuntimeFake})
	require.NoError(t, err)
	return digest
}

// Readings of a hung runtime leave slots for those of others. A reading without a free slot is retried later, and its workflow is not
// involved.
func TestHangingRuntimeDoesNotBlockOthers_A7(t *testing.T) {
	a, rt := newFakeActivities(t)
	a.readingSlots = keyedSemaphore{total: 3, perKey: 2}
	digests := map[string]string{}
	for _, name := range []string{"hangs", "well"} {
		digests[name] = putFakeRuntime(t, a, name)
	}
	observe := func(service, runtime string) (protocol.ObserveAnswer, error) {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(a.Observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
		value, err := env.ExecuteActivity(protocol.ActivityObserve, protocol.ObserveRequest{
			Application: "shop", Service: service, ServiceID: "shop." + service, Runtime: runtime, RuntimeDigest: digests[runtime], Timeout: time.Minute,
			Instances: []protocol.InstanceRef{{ID: entities.InstanceID{Channel: "prod", Name: entities.OnlyInstance}}},
		})
		var answer protocol.ObserveAnswer
		if err == nil {
			err = value.Get(&answer)
		}
		return answer, err
	}
	var hanging sync.WaitGroup
	t.Cleanup(hanging.Wait) // after all are released
	for n := range 2 {
		service := fmt.Sprint("s", n)
		t.Cleanup(rt.At("shop", service, "prod").HangReadings())
		hanging.Go(func() { _, _ = observe(service, "hangs") })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, rt.Await(ctx, func() bool {
		a.readingSlots.mu.Lock()
		defer a.readingSlots.mu.Unlock()
		return a.readingSlots.inUse == 2 && rt.At("shop", "s0", "prod").Readings()+rt.At("shop", "s1", "prod").Readings() == 2
	}))
	_, err := observe("s2", "hangs")
	var later *temporal.ApplicationError
	require.True(t, errors.As(err, &later), "%v", err)
	require.Equal(t, protocol.ErrUnchanged, later.Type())
	require.Contains(t, later.Message(), "concurrency limit of this worker reached for readings of runtime hangs")
	require.GreaterOrEqual(t, later.NextRetryDelay(), minSlotRetry*9/10)
	answer, err := observe("s3", "well")
	require.NoError(t, err)
	require.Len(t, answer.Readings, 1)

	both := func(service string, known string) (protocol.ObserveAllAnswer, error) {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(a.ObserveAll, activity.RegisterOptions{Name: protocol.ActivityObserveAll})
		var r protocol.ObserveAllRequest
		for _, name := range []string{"hangs", "well"} {
			r.Requests = append(r.Requests, protocol.ObserveRequest{
				Application: "shop", Service: service, ServiceID: "shop." + service, Runtime: name, RuntimeDigest: digests[name], Timeout: time.Minute, Interval: time.Hour,
				Instances: []protocol.InstanceRef{{ID: entities.InstanceID{Channel: name, Name: entities.OnlyInstance}, KnownDigest: known}},
			})
		}
		value, err := env.ExecuteActivity(protocol.ActivityObserveAll, r)
		var answer protocol.ObserveAllAnswer
		if err == nil {
			err = value.Get(&answer)
		}
		return answer, err
	}
	of, err := both("s4", "")
	require.NoError(t, err)
	require.Equal(t, []entities.InstanceID{{Channel: "well", Name: entities.OnlyInstance}}, entities.SortedIDs(of.Readings), "the other runtime is at its limit")
	known := of.Readings[entities.InstanceID{Channel: "well", Name: entities.OnlyInstance}]
	_, err = both("s4", known.Digest())
	require.True(t, errors.As(err, &later), "%v", err)
	require.Equal(t, protocol.ErrUnchanged, later.Type())
	require.GreaterOrEqual(t, later.NextRetryDelay(), minSlotRetry*9/10)
	require.Less(t, later.NextRetryDelay(), 2*maxSlotRetry, "skipped instances are retried soon")

	a.readingSlots.mu.Lock()
	a.readingSlots.total, a.readingSlots.perKey = 6, 3
	a.readingSlots.mu.Unlock()
	t.Cleanup(rt.At("shop", "s5", "hangs").HangReadings())
	hanging.Go(func() { _, _ = both("s5", known.Digest()) })
	require.Eventually(t, func() bool { // the runtime does not notice it
		a.readingSlots.mu.Lock()
		defer a.readingSlots.mu.Unlock()
		return a.readingSlots.inUse == 3 && rt.At("shop", "s5", "well").Readings() > 0
	}, time.Minute, time.Millisecond, "waiting for a hanging runtime holds no slot of another")
}

// The record of an instance is removed with the instance, but not with its previous placement. An unreachable instance keeps its record.
func TestRecordOfAnInstanceEndsWithItsRemoval_A24_F9(t *testing.T) {
	a, _ := newFakeActivities(t)
	a.hints.polling.enabled = true
	digest := putFakeRuntime(t, a, "vm")
	owner := runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only("prod")}
	ref := protocol.InstanceRef{ID: owner.ID, FullVersion: "v1"}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(a.Observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
	env.RegisterActivityWithOptions(a.Remove, activity.RegisterOptions{Name: protocol.ActivityRemove})
	observe := func(runtime string) {
		_, err := env.ExecuteActivity(protocol.ActivityObserve, protocol.ObserveRequest{
			Application: "shop", Service: "web", ServiceID: "id", Runtime: "vm", RuntimeDigest: runtime, Timeout: time.Minute, Interval: time.Second, SteadyPollInterval: time.Hour,
			Instances: []protocol.InstanceRef{ref},
		})
		require.NoError(t, err)
	}
	recorded := func() *protocol.WatchedInstance {
		a.hints.writes.Wait()
		w, err := a.hints.records.get(t.Context(), owner)
		require.NoError(t, err)
		return w
	}
	observe(digest)
	reachable := recorded()
	require.NotNil(t, reachable)

	remove := protocol.RemoveRequest{
		Application: "shop", Service: "web", ServiceID: "id", Runtime: "vm", RuntimeDigest: digest, Instance: ref, Timeout: time.Minute, Sequence: 2,
		Successor: &protocol.Successor{Runtime: "other", RuntimeDigest: putFakeRuntime(t, a, "other"), Instance: ref, Sequence: 2},
	}
	_, err := env.ExecuteActivity(protocol.ActivityRemove, remove)
	require.NoError(t, err)
	require.Equal(t, reachable, recorded())
	require.False(t, a.hints.instances[owner].observing, "hints are not ignored")

	observe("gone") // no runtime has this name
	unreachableRecord := recorded()
	require.NotEqual(t, reachable.Request.Instances[0].KnownDigest, unreachableRecord.Request.Instances[0].KnownDigest, "the next reading differs")

	remove.Successor, remove.Sequence = nil, 3
	_, err = env.ExecuteActivity(protocol.ActivityRemove, remove)
	require.NoError(t, err)
	require.Nil(t, recorded())
}
