package workflows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// fleetTest is a service with one cluster per channel, which workers read while nothing changes. One may hang.
type fleetTest struct {
	*serviceTest
	applied        map[string]string // by channel: the applied version
	hangingChannel string            // a channel
	readsInTask    bool              // new services are read within the task
}

func newFleetTest(t *testing.T, channels ...string) *fleetTest {
	f := &fleetTest{serviceTest: newServiceTest(t), applied: map[string]string{}}
	f.spec.Channels, f.spec.Runtimes = nil, map[string]*entities.RuntimeSpec{}
	for n, name := range channels {
		c := entities.ChannelSpec{
			Name: name, ProgressDeadline: time.Hour, Instances: []entities.InstanceSpec{{Name: entities.OnlyInstance, Runtime: "rt-" + name, Template: "t"}},
		}
		if n > 0 {
			c.Conditions = []entities.Condition{{ID: "channel-stable/" + channels[n-1], Kind: entities.ChannelStable, Channels: channels[n-1 : n]}}
		}
		f.spec.Channels = append(f.spec.Channels, c)
		f.spec.Runtimes["rt-"+name] = &entities.RuntimeSpec{Kind: entities.RuntimeCustom, Digest: "d", Observable: true, Timing: entities.RuntimeTiming{
			PollInterval: 5 * second, SteadyPollInterval: 5 * minute, ApplyTimeout: minute, FetchTimeout: second, MaxAttempts: 1, RetryBackoff: second, RetryMax: minute,
		}}
	}
	f.env.RegisterActivityWithOptions(f.apply, activity.RegisterOptions{Name: protocol.ActivityApply})
	f.env.RegisterActivityWithOptions(func(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		news, err := f.answerObserve(ctx, r)
		return protocol.ObserveAnswer{Readings: news}, err
	}, activity.RegisterOptions{Name: protocol.ActivityObserve})
	f.env.RegisterActivityWithOptions(func(ctx context.Context, r protocol.ObserveAllRequest) (protocol.ObserveAllAnswer, error) {
		if r.Immediate && !f.readsInTask {
			return protocol.ObserveAllAnswer{}, errors.New("not all instances can be read locally")
		}
		news, err := f.answerObserve(ctx, r.Requests...)
		return protocol.ObserveAllAnswer{Readings: news}, err
	}, activity.RegisterOptions{Name: protocol.ActivityObserveAll})
	return f
}

func (f *fleetTest) reading(channel string) entities.Reading {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := entities.Reading{At: f.env.Now()}
	if version := f.applied[channel]; version != "" {
		r.Objects = []entities.Object{{Name: "web", Type: "x", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: version, Active: true}}}}
	}
	return r
}

func (f *fleetTest) apply(_ context.Context, r protocol.ApplyRequest) (protocol.ApplyAnswer, error) {
	channel := r.Instance.ID.Channel
	err := f.recordStart(protocol.ActivityApply, "apply %s to %s", r.Instance.FullVersion, channel)
	f.mu.Lock()
	f.applied[channel] = r.Instance.FullVersion
	f.mu.Unlock()
	after := f.reading(channel)
	return protocol.ApplyAnswer{Reading: &after}, err
}

// answerObserve answers at once if a reading differs from the known one; a hanging runtime is cut off if there are others.
func (f *fleetTest) answerObserve(ctx context.Context, all ...protocol.ObserveRequest) (map[entities.InstanceID]entities.Reading, error) {
	verb, on := "follow", []string{}
	news, hangs := map[entities.InstanceID]entities.Reading{}, false
	for _, r := range all {
		on = append(on, r.Runtime)
		switch {
		case activity.GetInfo(ctx).IsLocalActivity:
			verb = "look"
		case r.Steady:
			verb = "watch"
		}
		for _, ref := range r.Instances {
			reading := f.reading(ref.ID.Channel)
			switch {
			case ref.ID.Channel == f.hangingChannel:
				hangs = true
			case ref.KnownDigest == "" || reading.Digest() != ref.KnownDigest:
				news[ref.ID] = reading
			}
		}
	}
	if activity.GetInfo(ctx).Attempt == 1 {
		require.NoError(f, f.recordStart("", "%s %s", verb, strings.Join(on, " ")))
	}
	switch {
	case len(news) > 0:
		return news, nil
	case hangs:
		return nil, activity.ErrResultPending
	}
	return nil, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: 100 * time.Hour})
}

// A new service is observed once on all its runtimes, and again when it has converged; not per runtime, nor between two applies.
func TestRuntimesAreObservedTogether_F9(t *testing.T) {
	f := newFleetTest(t, "eu", "us", "asia")
	f.publish(0)
	f.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	f.atStatus(minute, func(s protocol.Status) {
		require.Equal(t, "eu CONVERGED v1, us CONVERGED v1, asia CONVERGED v1", statusOf(s))
	})
	f.sendSignal(2*minute, protocol.Release, `{"version":"v2","by":"ci"}`)
	f.atStatus(3*minute, func(s protocol.Status) {
		require.Equal(t, "eu CONVERGED v2, us CONVERGED v2, asia CONVERGED v2", statusOf(s))
	})
	f.run(firstInput, minute)
	together := " rt-asia rt-eu rt-us"
	require.Equal(t, []string{
		"follow" + together, "watch" + together, // no instance exists yet
		"apply v1 to eu", "apply v1 to us", "apply v1 to asia",
		"apply v2 to eu", "apply v2 to us", "apply v2 to asia", // workers know what each apply ended with
	}, f.startedActivities("keep", "announce"))
}

// With a cached reading, only the applies come between the publication and convergence.
func TestNewServiceIsReadWithinItsTask_F9(t *testing.T) {
	together := " rt-asia rt-eu rt-us"
	f := newFleetTest(t, "eu", "us", "asia")
	f.readsInTask = true
	f.spec.InitialVersion = "v1"
	f.publish(0)
	f.atStatus(minute, func(s protocol.Status) {
		require.Equal(t, "eu CONVERGED v1, us CONVERGED v1, asia CONVERGED v1", statusOf(s))
	})
	f.run(firstInput, minute)
	require.Equal(t, []string{
		"look" + together, "apply v1 to eu", "apply v1 to us", "apply v1 to asia", "watch" + together,
	}, f.startedActivities("keep", "announce"))
}

// A runtime that hangs does not delay others: it is observed separately from then on.
func TestHangingRuntimeIsObservedSeparately_A7(t *testing.T) {
	f := newFleetTest(t, "eu", "us", "asia")
	f.hangingChannel = "us"
	f.publish(0)
	f.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	f.atStatus(minute, func(s protocol.Status) {
		require.Equal(t, "CONVERGED", s.Channels[0].Status)
		require.NotEqual(t, "CONVERGED", s.Channels[1].Status)
	})
	f.run(firstInput, 30*second)
	did := f.startedActivities("keep", "announce")
	require.Equal(t, []string{"follow rt-asia rt-eu rt-us", "follow rt-us", "apply v1 to eu"}, did[:3])
	require.NotContains(t, did, "apply v1 to us", "it has no reading")
}

// An observation request for many runtimes fits into a payload, for any length of their names and any versions.
func TestObservationsOfManyRuntimesFit_F8(t *testing.T) {
	var channels []string
	for n := range 120 {
		channels = append(channels, "c"+longText(n, 62))
	}
	f, sizes := newFleetTest(t, channels...), newSizeRecorder()
	f.env.SetDataConverter(sizes)
	f.env.SetTestTimeout(10 * time.Minute)
	f.spec.Application, f.spec.Service, f.spec.ServiceID = firstInput.Application, firstInput.Service, longText(1, 127)
	renamed := map[string]*entities.RuntimeSpec{}
	for n := range f.spec.Channels {
		c := &f.spec.Channels[n]
		c.Conditions = nil
		rt := f.spec.Runtimes["rt-"+c.Name]
		rt.Digest = entities.DigestOf(n)
		c.Instances[0].Runtime = "r" + longText(n, 62)
		renamed[c.Instances[0].Runtime] = rt
	}
	f.spec.Runtimes = renamed
	f.registerSpill()
	f.publish(0)
	f.sendSignal(second, protocol.Release, fmt.Sprintf(`{"by":"ci","version":%q}`, "v"+longText(1, 127)))
	f.run(firstInput, 5*minute)
	require.Empty(t, sizes.oversized(t))
	require.NotZero(t, sizes.largest["protocol.ObserveAllRequest"])
	require.Len(t, f.applied, 120)
	var together int
	for _, did := range f.startedActivities("keep", "announce", "apply") {
		together = max(together, strings.Count(did, " "))
	}
	require.Equal(t, maxRuntimesPerObservation, together)
}
