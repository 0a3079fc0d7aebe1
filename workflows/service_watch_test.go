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
func TestSteadyObservationsGoByTheNewestDeclaration_F9(t *testing.T) {
	p := newPlay(t)
	edge := p.spec.Runtimes["edge"]
	edge.Observable, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval = true, second, 5*minute
	there := func(version string) entities.Reading {
		return entities.Reading{At: p.env.Now(), Objects: []entities.Object{{
			Name: "web", Type: "process", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
		}}}
	}
	p.found = func(version string) *entities.Reading { r := there(version); return &r }
	var steady []protocol.ObserveRequest // how, each once
	p.env.RegisterActivityWithOptions(func(_ context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{}}
		for _, ref := range r.Instances {
			if reading := there(ref.FullVersion); reading.Digest() != ref.Known {
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

	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	p.at(minute, func() { p.spec.Runtimes["edge"].Timing.SteadyPollInterval = minute })
	p.publishes(minute + second)
	p.at(2*minute, func() { p.spec.Runtimes["edge"].Digest = "another command" })
	p.publishes(2*minute + second)
	p.publishes(3 * minute) // nothing new
	p.acts(first, minute)

	require.Len(t, steady, 3)
	require.Equal(t, []time.Duration{5 * minute, minute, minute}, []time.Duration{steady[0].Interval, steady[1].Interval, steady[2].Interval})
	require.Equal(t, []string{"d", "d", "another command"}, []string{steady[0].RuntimeDigest, steady[1].RuntimeDigest, steady[2].RuntimeDigest})
}

// scene is a play on one cluster whose changes workers receive. The reading of a version follows the state of its pods at that time.
type scene struct {
	*play
	ready bool
	cold  bool // the worker that has the task has no cache of the cluster
}

func newScene(t *testing.T) *scene {
	s := &scene{play: newPlay(t)}
	s.spec.Channels = s.spec.Channels[:1]
	edge := s.spec.Runtimes["edge"]
	edge.Observable, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval, edge.Timing.GracePeriod = true, 5*second, 5*minute, minute
	s.atHand = true
	s.found = func(version string) *entities.Reading { r := s.reading(version); return &r }
	s.env.RegisterActivityWithOptions(s.observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
	return s
}

func (s *scene) reading(version string) entities.Reading {
	status := entities.ObjectPending
	if s.ready {
		status = entities.ObjectSucceeded
	}
	return entities.Reading{At: s.env.Now(), Objects: []entities.Object{{
		Name: "web", Type: "Deployment", Status: status, AsDeclared: true, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
	}}}
}

func (s *scene) observe(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
	verb := "follow"
	switch {
	case activity.GetInfo(ctx).IsLocalActivity:
		verb = "read"
	case r.Steady:
		verb = "watch"
	}
	if activity.GetInfo(ctx).Attempt == 1 {
		require.NoError(s, s.does(protocol.ActivityObserve, "%s %s", verb, r.Instances[0].FullVersion))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	what := verb + " " + r.Instances[0].FullVersion
	if token, hangs := s.hung[what]; hangs && token == nil { // the first one
		s.hung[what] = activity.GetInfo(ctx).TaskToken
		return protocol.ObserveAnswer{}, activity.ErrResultPending
	}
	if s.cold && verb == "read" {
		return protocol.ObserveAnswer{}, temporalError("not listed yet")
	}
	reading := s.reading(r.Instances[0].FullVersion)
	if reading.Digest() == r.Instances[0].Known {
		return protocol.ObserveAnswer{}, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: 100 * time.Hour})
	}
	return protocol.ObserveAnswer{AtHand: s.atHand, Readings: map[entities.InstanceID]entities.Reading{r.Instances[0].ID: reading}}, nil
}

// pods makes pods ready or not, from then on.
func (s *scene) pods(at time.Duration, ready bool) {
	s.at(at, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ready = ready
	})
}

func (s *scene) hint(at time.Duration) {
	s.sends(at, protocol.Refresh, `{"by":"watch of edge","channel":"staging"}`)
}

// plays releases v1 and then v2, with a hint a second after each apply, and lists the activities for v2.
func (s *scene) plays(in protocol.ServiceInput) (begun []string) {
	s.publishes(0)
	s.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.pods(2*second, true)
	s.hint(2*second + second/2)
	s.pods(minute, false)
	s.at(minute, func() {
		require.Equal(s, "staging CONVERGED v1", statusOf(s.status()))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.did = nil
	})
	s.sends(minute+second, protocol.Release, `{"version":"v2","by":"ci"}`)
	s.pods(minute+2*second, true)
	s.hint(minute + 2*second + second/2)
	s.sees(minute+3*second, func(seen protocol.Status) {
		require.Equal(s, "staging CONVERGED v2", statusOf(seen))
		begun = s.work()
	})
	s.acts(in, minute)
	return begun
}

// A hint is read within its task: a release takes one activity, and the observation of steady instances continues.
func TestAHintIsReadInItsTask_F9(t *testing.T) {
	require.Equal(t, []string{"apply v2 to staging", "read v2"}, newScene(t).plays(first))
}

// An instance that workers have not cached is observed by activities, and the observation of steady instances still continues.
func TestWhatIsNotAtHandIsFollowed_F9(t *testing.T) {
	s := newScene(t)
	s.atHand = false
	require.Equal(t, []string{"apply v2 to staging", "follow v2", "follow v2"}, s.plays(first))
}

// If the worker of the task cannot read at once, an activity does.
func TestAHintIsFollowedWhereItsTaskCannotRead_F9(t *testing.T) {
	s := newScene(t)
	s.cold = true
	require.Equal(t, []string{"apply v2 to staging", "read v2", "follow v2"}, s.plays(first))
}

// A long apply is followed by hints for the same time after it ended.
func TestALongApplyIsFollowedByHintsToo_F9(t *testing.T) {
	s := newScene(t)
	s.publishes(0)
	s.hangs("v1 to staging")
	s.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.at(30*second, func() {
		require.NoError(t, s.env.CompleteActivity(s.hung["v1 to staging"], protocol.ApplyAnswer{Reading: s.found("v1"), AtHand: true}, nil))
	})
	s.pods(32*second, true)
	s.hint(33 * second)
	s.sees(34*second, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1", statusOf(seen))
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging", "read v1"}, s.work())
	})
	s.acts(first, minute)
}

// A hint that arrives before the workflow has recorded the end of an apply is read: the apply may have ended with the previous state.
func TestAHintBesideTheEndOfAnApplyIsRead_F9(t *testing.T) {
	begun := []string{"follow ", "watch ", "apply v1 to staging", "read v1"}
	s := newScene(t)
	before := s.reading("v1")
	s.publishes(0)
	s.hangs("v1 to staging")
	s.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.pods(28*second, true)
	s.hint(29 * second)
	s.at(30*second, func() {
		require.NoError(t, s.env.CompleteActivity(s.hung["v1 to staging"], protocol.ApplyAnswer{Reading: &before, AtHand: true}, nil))
	})
	s.sees(31*second, func(protocol.Status) { require.Equal(t, begun, s.work()) })
	s.sees(31*second+shownWithin, func(seen protocol.Status) { require.Equal(t, "staging CONVERGED v1", statusOf(seen)) })
	s.acts(first, minute)
}

// A hint during an observation causes another reading: the observation may have read before it.
func TestAHintBesideAnObservationIsReadAfterIt_F9(t *testing.T) {
	begun := []string{"follow v1", "follow v1"}
	s := newScene(t)
	s.atHand, s.ready = false, true
	s.publishes(0)
	s.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	var before entities.Reading
	s.sees(minute, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1", statusOf(seen))
		s.mu.Lock()
		defer s.mu.Unlock()
		before, s.did = s.reading("v1"), nil
		s.hangs("follow v1")
	})
	s.hint(minute + second)
	s.pods(minute+2*second, false)
	s.hint(minute + 3*second)
	s.at(minute+4*second, func() {
		answer := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{s.spec.IDs()[0]: before}}
		require.NoError(t, s.env.CompleteActivity(s.hung["follow v1"], answer, nil))
	})
	s.sees(minute+5*second, func(protocol.Status) { require.Equal(t, begun, s.work("watch")) })
	s.acts(first, minute)
}

// With many other releases, progress is shown later, and followed by hints alone for longer.
func TestBesideManyOthersItIsFollowedLater_F9(t *testing.T) {
	s := newScene(t)
	s.beside = 100
	s.publishes(0)
	s.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.sees(15*second, func(protocol.Status) {
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging"}, s.work())
	})
	s.sees(17*second, func(protocol.Status) {
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging", "follow v1"}, s.work())
	})
	s.acts(first, minute)
}

// Without a hint, an observation starts when the apply has been shown for long enough, and the workflow learns of its end.
func TestWhatNobodyHintsAtIsFollowed_F9(t *testing.T) {
	s := newScene(t)
	s.publishes(0)
	s.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	s.sees(second+shownWithin-second/10, func(protocol.Status) {
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging"}, s.work())
	})
	s.pods(second+shownWithin, true)
	s.sees(second+shownWithin+second, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1", statusOf(seen))
		require.Equal(t, []string{"follow ", "watch ", "apply v1 to staging", "follow v1"}, s.work())
	})
	s.acts(first, minute)
}

// An instance that has just converged is observed while others change, if no worker reads it: a running observation without it is replaced.
func TestWhatHasJustConvergedIsObserved_F9_A7(t *testing.T) {
	p := newPlay(t)
	edge := p.spec.Runtimes["edge"]
	edge.Observable, edge.Timing.PollInterval, edge.Timing.SteadyPollInterval = true, second, 30*second
	there := func(version string, status entities.ObjectStatus) entities.Reading {
		return entities.Reading{At: p.env.Now(), Objects: []entities.Object{{
			Name: "web", Type: "process", Status: status, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
		}}}
	}
	now := map[string]entities.Reading{"staging": there("v0", entities.ObjectSucceeded), "prod": there("v0", entities.ObjectSucceeded)}
	var steady []string // the channels of each steady observation
	p.env.RegisterActivityWithOptions(func(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		answer, channels := protocol.ObserveAnswer{Readings: map[entities.InstanceID]entities.Reading{}}, ""
		for _, ref := range r.Instances {
			channels += ref.ID.Channel + " "
			if reading := now[ref.ID.Channel]; reading.Digest() != ref.Known {
				answer.Readings[ref.ID] = reading
			}
		}
		if r.Steady && activity.GetInfo(ctx).Attempt == 1 {
			steady = append(steady, channels)
		}
		if len(answer.Readings) > 0 {
			return answer, nil
		}
		again := 100 * time.Hour
		if len(r.Instances) == 2 { // until the change by the running apply is news
			again = second
		}
		return answer, temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: again})
	}, activity.RegisterOptions{Name: protocol.ActivityObserve})
	reads := func(at time.Duration, channel string, status entities.ObjectStatus) {
		p.at(at, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			now[channel] = there("v1", status)
		})
	}
	p.hangs("v1 to staging")
	p.hangs("v1 to prod")
	p.publishes(0)
	p.sends(second, protocol.Release, `{"version":"v1","by":"ci"}`)
	reads(5*second, "staging", entities.ObjectPending)
	reads(10*second, "staging", entities.ObjectSucceeded)
	ends := func(at time.Duration, apply string) {
		p.at(at, func() {
			reading := there("v1", entities.ObjectSucceeded)
			require.NoError(t, p.env.CompleteActivity(p.hung[apply], protocol.ApplyAnswer{Reading: &reading}, nil))
		})
	}
	ends(11*second, "v1 to staging")
	p.sees(12*second, func(seen protocol.Status) {
		require.Equal(t, "staging CONVERGED v1, prod CONVERGING v1", statusOf(seen))
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Contains(t, steady, "staging ")
	})
	reads(20*second, "prod", entities.ObjectSucceeded)
	ends(21*second, "v1 to prod")
	p.acts(first, minute)
}
