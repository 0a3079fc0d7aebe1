package activities

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// News that only adds details to a recent notification is delayed. News that affects a decision, and requested readings, are not.
func TestDetailsAreDelayed(t *testing.T) {
	t.Parallel()
	reading := func(version string, status entities.ObjectStatus) entities.Reading {
		return entities.Reading{Objects: []entities.Object{{
			Name: "web", Type: "Deployment", Status: status, Versions: []entities.ObjectVersion{{Version: version, Active: true}},
		}}}
	}
	ref := protocol.InstanceRef{ID: staging.ID, FullVersion: "v2", KnownDigest: "what was notified"}
	unknown := ref
	unknown.KnownDigest = ""
	newer := ref
	newer.FullVersion = "v3"
	for _, c := range []struct {
		name  string
		last  entities.Reading
		now   entities.Reading
		ref   protocol.InstanceRef
		every time.Duration
		waits bool
	}{
		{"another pod", reading("v1", entities.ObjectPending), reading("v2", entities.ObjectPending), ref, time.Minute, true},
		{"ready", reading("v2", entities.ObjectPending), reading("v2", entities.ObjectSucceeded), ref, time.Minute, false},
		{"failed", reading("v2", entities.ObjectPending), reading("v2", entities.ObjectFailed), ref, time.Minute, false},
		{"unknown", reading("v1", entities.ObjectPending), entities.Reading{Err: &entities.ReadingError{Code: "timeout"}}, ref, time.Minute, false},
		{"requested", reading("v1", entities.ObjectPending), reading("v2", entities.ObjectPending), unknown, time.Minute, false},
		{"another target", reading("v1", entities.ObjectPending), reading("v2", entities.ObjectPending), newer, time.Minute, false},
		{"observed often", reading("v1", entities.ObjectPending), reading("v2", entities.ObjectPending), ref, time.Nanosecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &Activities{}
			a.hints = newHints(a)
			t.Cleanup(a.hints.stop)
			a.hints.begin(staging)
			a.hints.recordNotification(staging, shapeOf(c.last, ref))
			w := &trackedObservation{a: a, sendsHints: true, request: protocol.ObserveRequest{
				Application: staging.Application, Service: staging.Service, Interval: c.every, Instances: []protocol.InstanceRef{c.ref},
			}}
			news := map[entities.InstanceID]entities.Reading{staging.ID: c.now}
			wait := w.delayDetails(news)
			require.LessOrEqual(t, wait, notifyGap)
			require.Equal(t, c.waits, wait > 0)
			require.Equal(t, !c.waits, slices.Contains(slices.Collect(maps.Keys(news)), staging.ID))
		})
	}
}

// A runtime without a watch is observed every interval, and every change is news.
func TestDetailsWithoutAWatchAreNotDelayed(t *testing.T) {
	t.Parallel()
	w := &trackedObservation{a: &Activities{}, request: protocol.ObserveRequest{Instances: []protocol.InstanceRef{ref}}}
	news := map[entities.InstanceID]entities.Reading{ref.ID: {}}
	require.Zero(t, w.delayDetails(news))
	require.Len(t, news, 1)
}

// The interval of an unsteady instance grows only if a watch reports changes, and never beyond the steady interval.
func TestObserveIntervalGrows(t *testing.T) {
	t.Parallel()
	at := func(notes bool, interval time.Duration, attempt int32) time.Duration {
		return (&trackedObservation{sendsHints: notes, request: protocol.ObserveRequest{Interval: interval}}).interval(attempt)
	}
	require.Equal(t, 5*time.Second, at(true, 5*time.Second, 1))
	require.Equal(t, 10*time.Second, at(true, 5*time.Second, 4))
	require.Equal(t, maxObserveInterval, at(true, 5*time.Second, 1000))
	require.Equal(t, 5*time.Second, at(false, 5*time.Second, 1000))
	require.Equal(t, 5*time.Minute, at(true, 5*time.Minute, 1000))
}
