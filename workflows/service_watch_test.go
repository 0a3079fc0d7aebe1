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

// What is at rest is observed as its runtime is declared by now, though nothing else happens to it; it went on as it had begun.
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
		return answer, temporal.NewApplicationErrorWithOptions("as known", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{NextRetryDelay: 100 * time.Hour})
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
