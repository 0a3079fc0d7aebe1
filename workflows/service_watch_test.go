package workflows

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A steady instance is observed according to the newest declaration of its runtime, even if nothing else changes; earlier the old
// observation continued.
func TestSteadyObservationsUseTheNewestDeclaration_F9(t *testing.T) {
	p := newServiceTest(t)
	edge := p.spec.Runtimes["edge"]
	edge.Observable, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval = true, second, 5*minute
	readingOf := func(version string) entities.Reading {
		return entities.Reading{At: p.env.Now(), Objects: []entities.Object{{
			Name: "web", Type: "process", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
		}}}
	}
	p.readingAfterApply = func(version string) *entities.Reading { r := readingOf(version); return &r }
	var steady []protocol.ObserveRequest // how, each once
	p.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{}}
		for _, ref := range r.Instances {
			if reading := readingOf(ref.FullVersion); reading.Digest() != ref.KnownDigest {
				answer.Readings[ref.ID] = reading
			}
		}
		if r.Instances = nil; r.Steady && !slices.ContainsFunc(steady, func(o protocol.ObserveRequest) bool {
			return o.Interval == r.Interval && o.RuntimeDigest == r.RuntimeDigest && o.Timeout == r.Timeout
		}) {
			steady = append(steady, r)
		}
		if len(answer.Readings) > 0 {
			return answer, nil
		}
		return answer, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: 100 * time.Hour})
	}, activity.RegisterOptions{Name: protocol.ActivityObserve})

	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(minute, func() { p.spec.Runtimes["edge"].Timing.SteadyPollInterval = minute })
	p.publish(minute + second)
	p.at(2*minute, func() { p.spec.Runtimes["edge"].Digest = "another command" })
	p.publish(2*minute + second)
	p.publish(3 * minute) // nothing new
	p.run(firstInput, minute)

	require.Len(t, steady, 3)
	require.Equal(t, []time.Duration{5 * minute, minute, minute}, []time.Duration{steady[0].Interval, steady[1].Interval, steady[2].Interval})
	require.Equal(t, []string{"d", "d", "another command"}, []string{steady[0].RuntimeDigest, steady[1].RuntimeDigest, steady[2].RuntimeDigest})
}

// clusterTest is a service on one cluster whose changes workers receive. The reading of a version follows the state of its pods at that
// time.
type clusterTest struct {
	*serviceTest
	ready bool
	cold  bool // the worker that has the task has no cache of the cluster
}

func newClusterTest(t *testing.T) *clusterTest {
	s := &clusterTest{serviceTest: newServiceTest(t)}
	s.spec.Channels = s.spec.Channels[:1]
	edge := s.spec.Runtimes["edge"]
	edge.Observable, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval, edge.Timing.GracePeriod = true, 5*second, 5*minute, minute
	s.cached = true
	s.readingAfterApply = func(version string) *entities.Reading { r := s.reading(version); return &r }
	s.env.RegisterActivityWithOptions(s.observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
	return s
}

func (s *clusterTest) reading(version string) entities.Reading {
	status := entities.ObjectPending
	if s.ready {
		status = entities.ObjectSucceeded
	}
	return entities.Reading{At: s.env.Now(), Objects: []entities.Object{{
		Name: "web", Type: "Deployment", Status: status, AsDeclared: true, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
	}}}
}

func (s *clusterTest) observe(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
	verb := "follow"
	switch {
	case activity.GetInfo(ctx).IsLocalActivity:
		verb = "read"
	case r.Steady:
		verb = "watch"
	}
	if activity.GetInfo(ctx).Attempt == 1 {
		require.NoError(s, s.recordStart(protocol.ActivityObserve, "%s %s", verb, r.Instances[0].FullVersion))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	what := verb + " " + r.Instances[0].FullVersion
	if token, hangs := s.hangingApplies[what]; hangs && token == nil { // the first one
		s.hangingApplies[what] = activity.GetInfo(ctx).TaskToken
		return protocol.ObserveAnswer{}, activity.ErrResultPending
	}
	if s.cold && verb == "read" {
		return protocol.ObserveAnswer{}, temporalError("not listed yet")
	}
	reading := s.reading(r.Instances[0].FullVersion)
	if reading.Digest() == r.Instances[0].KnownDigest {
		return protocol.ObserveAnswer{}, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: 100 * time.Hour})
	}
	return protocol.ObserveAnswer{ServedFromWatchCache: s.cached, Readings: map[entities.InstanceID]entities.Reading{r.Instances[0].ID: reading}}, nil
}

// setReady makes pods ready or not, from then on.
func (s *clusterTest) setReady(at time.Duration, ready bool) {
	s.at(at, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ready = ready
	})
}

func (s *clusterTest) sendHint(at time.Duration) {
	s.sendSignal(at, protocol.Refresh, `{"by":"watch of edge","channel":"staging"}`)
}

// runReleases releases v1 and then v2, with a hint a second after each apply, and lists the activities for v2.
func (s *clusterTest) runReleases(in protocol.ServiceInput) (begun []string) {
	s.publish(0)
	s.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.setReady(2*second, true)
	s.sendHint(2*second + second/2)
	s.setReady(minute, false)
	s.at(minute, func() {
		require.Equal(s, "staging CONVERGED v1", statusOf(s.status()))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.started = nil
	})
	s.sendSignal(minute+second, protocol.Release, `{"version":"v2","by":"ci"}`)
	s.setReady(minute+2*second, true)
	s.sendHint(minute + 2*second + second/2)
	s.atStatus(minute+3*second, func(seen protocol.Status) {
		require.Equal(s, "staging CONVERGED v2", statusOf(seen))
		begun = s.startedActivities()
	})
	s.run(in, minute)
	return begun
}

// A hint is read within its task: a release takes one activity, and the observation of steady instances continues.
func TestHintIsReadWithinItsTask_F9(t *testing.T) {
	require.Equal(t, []string{"apply v2 to staging", "read v2"}, newClusterTest(t).runReleases(firstInput))
}

// An instance that workers have not cached is observed by activities, and the observation of steady instances still continues.
func TestUncachedInstanceIsObservedByActivity_F9(t *testing.T) {
	s := newClusterTest(t)
	s.cached = false
	require.Equal(t, []string{"apply v2 to staging", "follow v2", "follow v2"}, s.runReleases(firstInput))
}

// If the worker of the task cannot read at once, an activity does.
func TestHintIsObservedByActivityIfTaskCannotRead_F9(t *testing.T) {
	s := newClusterTest(t)
	s.cold = true
	require.Equal(t, []string{"apply v2 to staging", "read v2", "follow v2"}, s.runReleases(firstInput))
}

// A long apply is followed by hints for the same time after it ended.
func TestHintAfterALongApplyIsRead_F9(t *testing.T) {
	s := newClusterTest(t)
	s.publish(0)
	s.hangApply("v1 to staging")
	s.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.at(30*second, func() {
		require.NoError(t, s.env.CompleteActivity(s.hangingApplies["v1 to staging"], protocol.ApplyAnswer{Reading: s.readingAfterApply("v1"), ServedFromWatchCache: true}, nil))
	})
	s.setReady(32*second, true)
	s.sendHint(33 * second)
	s.atStatus(34*second, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1", statusOf(seen))
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging", "read v1"}, s.startedActivities())
	})
	s.run(firstInput, minute)
}

// A hint that arrives before the workflow has recorded the end of an apply is read: the apply may have ended with the previous state.
func TestHintAtTheEndOfAnApplyIsRead_F9(t *testing.T) {
	begun := []string{"follow ", "watch ", "apply v1 to staging", "read v1"}
	s := newClusterTest(t)
	before := s.reading("v1")
	s.publish(0)
	s.hangApply("v1 to staging")
	s.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.setReady(28*second, true)
	s.sendHint(29 * second)
	s.at(30*second, func() {
		require.NoError(t, s.env.CompleteActivity(s.hangingApplies["v1 to staging"], protocol.ApplyAnswer{Reading: &before, ServedFromWatchCache: true}, nil))
	})
	s.atStatus(31*second, func(protocol.Status) { require.Equal(t, begun, s.startedActivities()) })
	s.atStatus(31*second+attributesDelay, func(seen protocol.Status) { require.Equal(t, "staging CONVERGED v1", statusOf(seen)) })
	s.run(firstInput, minute)
}

// A hint during an observation causes another reading: the observation may have read before it.
func TestHintDuringAnObservationIsReadAfterIt_F9(t *testing.T) {
	begun := []string{"follow v1", "follow v1"}
	s := newClusterTest(t)
	s.cached, s.ready = false, true
	s.publish(0)
	s.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	var before entities.Reading
	s.atStatus(minute, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1", statusOf(seen))
		s.mu.Lock()
		defer s.mu.Unlock()
		before, s.started = s.reading("v1"), nil
		s.hangApply("follow v1")
	})
	s.sendHint(minute + second)
	s.setReady(minute+2*second, false)
	s.sendHint(minute + 3*second)
	s.at(minute+4*second, func() {
		answer := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{s.spec.IDs()[0]: before}}
		require.NoError(t, s.env.CompleteActivity(s.hangingApplies["follow v1"], answer, nil))
	})
	s.atStatus(minute+5*second, func(protocol.Status) { require.Equal(t, begun, s.startedActivities("watch")) })
	s.run(firstInput, minute)
}

// With many other releases, progress is shown later, and followed by hints alone for longer.
func TestManyOtherReleasesDelayObservation_F9(t *testing.T) {
	s := newClusterTest(t)
	s.otherReleases = 100
	s.publish(0)
	s.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.atStatus(15*second, func(protocol.Status) {
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging"}, s.startedActivities())
	})
	s.atStatus(17*second, func(protocol.Status) {
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging", "follow v1"}, s.startedActivities())
	})
	s.run(firstInput, minute)
}

// Without a hint, an observation starts when the apply has been shown for long enough, and the workflow learns of its end.
func TestApplyWithoutHintsIsObserved_F9(t *testing.T) {
	s := newClusterTest(t)
	s.publish(0)
	s.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.atStatus(second+attributesDelay-second/10, func(protocol.Status) {
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging"}, s.startedActivities())
	})
	s.setReady(second+attributesDelay, true)
	s.atStatus(second+attributesDelay+second, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1", statusOf(seen))
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging", "follow v1"}, s.startedActivities())
	})
	s.run(firstInput, minute)
}

// An instance that has just converged is observed while others change, if no worker reads it: a running observation without it is replaced.
func TestConvergedInstanceIsObservedWhileOthersChange_F9_A7(t *testing.T) {
	p := newServiceTest(t)
	edge := p.spec.Runtimes["edge"]
	edge.Observable, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval = true, second, 30*second
	readingOf := func(version string, status entities.ObjectStatus) entities.Reading {
		return entities.Reading{At: p.env.Now(), Objects: []entities.Object{{
			Name: "web", Type: "process", Status: status, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
		}}}
	}
	now := map[string]entities.Reading{"staging": readingOf("v0", entities.ObjectSucceeded), "prod": readingOf("v0", entities.ObjectSucceeded)}
	var steady []string // the channels of each steady observation
	p.env.RegisterActivityWithOptions(func(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer, channels := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{}}, ""
		for _, ref := range r.Instances {
			channels += ref.ID.Channel + " "
			if reading := now[ref.ID.Channel]; reading.Digest() != ref.KnownDigest {
				answer.Readings[ref.ID] = reading
			}
		}
		if r.Steady && activity.GetInfo(ctx).Attempt == 1 {
			steady = append(steady, channels)
		}
		if len(answer.Readings) > 0 {
			return answer, nil
		}
		retryDelay := 100 * time.Hour
		if len(r.Instances) == 2 { // until the change by the running apply is news
			retryDelay = second
		}
		return answer, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: retryDelay})
	}, activity.RegisterOptions{Name: protocol.ActivityObserve})
	setReading := func(at time.Duration, channel string, status entities.ObjectStatus) {
		p.at(at, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			now[channel] = readingOf("v1", status)
		})
	}
	p.hangApply("v1 to staging")
	p.hangApply("v1 to prod")
	p.publish(0)
	p.sendSignal(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	setReading(5*second, "staging", entities.ObjectPending)
	setReading(10*second, "staging", entities.ObjectSucceeded)
	completeApplyAt := func(at time.Duration, apply string) {
		p.at(at, func() {
			reading := readingOf("v1", entities.ObjectSucceeded)
			require.NoError(t, p.env.CompleteActivity(p.hangingApplies[apply], protocol.ApplyAnswer{Reading: &reading}, nil))
		})
	}
	completeApplyAt(11*second, "v1 to staging")
	p.atStatus(12*second, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod CONVERGING v1", statusOf(seen))
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Contains(t, steady, "staging ")
	})
	setReading(20*second, "prod", entities.ObjectSucceeded)
	completeApplyAt(21*second, "v1 to prod")
	p.run(firstInput, minute)
}
