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

// A workflow task waits for readings only of what answered at once the last time, a moment ago.
func TestPrompt_A7(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p prompt
		now := time.Now
		require.False(t, p.answers("eu", now()), "unknown")
		p.read("eu", now(), promptly, entities.Reading{})
		require.True(t, p.answers("eu", now()))
		require.False(t, p.answers("us", now()), "another runtime")
		p.read("eu", now(), promptly+time.Millisecond, entities.Reading{})
		require.False(t, p.answers("eu", now()), "slow reading")
		p.read("eu", now(), 0, entities.Reading{Err: &entities.ReadingError{}})
		require.False(t, p.answers("eu", now()), "failed reading")
		p.read("eu", now(), 0, entities.Reading{})
		time.Sleep(promptlyThen)
		require.False(t, p.answers("eu", now()), "expired")
		p.read("us", now(), 0, entities.Reading{})
		require.Len(t, p.last, 1, "expired entries are dropped")
	})
}

// What a workflow task waits for is read whole, or not at all, and not begun where that is not known to be quick.
func TestWhatATaskWaitsForIsReadAtOnceOrNotAtAll_A7(t *testing.T) {
	a, rt := ofFake(t)
	digest := defined(t, a, "eu")
	observe := func(here bool, services ...string) (protocol.ObserveAllAnswer, error) {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivityWithOptions(a.ObserveAll, activity.RegisterOptions{Name: protocol.ActivityObserveAll})
		r := protocol.ObserveAllRequest{Here: here}
		for _, service := range services {
			r.Of = append(r.Of, protocol.ObserveRequest{
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
	require.ErrorContains(t, err, errNotHere.Error())
	require.Zero(t, rt.At("shop", "web", "web").Readings(), "not started")

	quickly := func() {
		a.prompt.read(digest, time.Now(), 0, entities.Reading{}) // however slow this machine is
	}
	_, err = observe(false, "web")
	require.NoError(t, err)
	quickly()
	answer, err := observe(true, "web")
	require.NoError(t, err)
	require.Len(t, answer.Readings, 1)

	quickly()
	a.readings = places{all: 2, each: 1}
	_, err = observe(true, "web", "cart")
	require.ErrorContains(t, err, errNotHere.Error(), "no slot for the second service")
	a.readings = places{all: readingPlaces, each: runtimePlaces}

	quickly()
	t.Cleanup(rt.At("shop", "api", "api").HangReadings())
	_, err = observe(true, "api")
	require.ErrorContains(t, err, errNotHere.Error())
	require.Positive(t, rt.At("shop", "api", "api").Readings())
	require.False(t, a.prompt.answers(digest, time.Now()), "a hanging runtime is not fast")
}
