package fake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/fake"
	"github.com/converge-engine/converge/runtimes/runtimetest"
)

func TestConformance(t *testing.T) {
	for name, looks := range map[string]int{"at once": 0, "after three looks": 3} {
		t.Run(name, func(t *testing.T) {
			runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
				rt := fake.New(nil)
				for _, channel := range []string{"staging", "production", "prod-0", "prod-1", "prod-2"} {
					rt.At("demo", "web", channel).TakeLooks(looks)
				}
				t.Cleanup(func() { require.Empty(t, rt.Overlaps()) })
				return subject(rt)
			}})
		})
	}
}

func subject(rt *fake.Runtime) runtimetest.Subject {
	staging := rt.At("demo", "web", "staging")
	return runtimetest.Subject{
		Runtime: rt,
		Changes: func(channel string) int { return rt.At("demo", "web", channel).Moves() },
		FailApply: func(permanent bool) {
			if permanent {
				staging.FailAppliesForGood(1, "no")
			} else {
				staging.FailApplies(1, "not now")
			}
		},
		FailLook: func() { staging.FailLooks(1, runtimes.CodeFetchFailed) },
		Hang: func(arrived func()) {
			staging.HangApplies()
			staging.HangLooks()
			calls := func() int { return staging.Applies() + staging.Looks() + staging.Removals() }
			begun := calls()
			go func() {
				_ = rt.Await(context.Background(), func() bool { return calls() > begun })
				arrived()
			}()
		},
	}
}

func instance(version string) runtimes.Instance {
	return runtimes.Instance{Application: "demo", Service: "web", Channel: "staging", FullVersion: version, Key: "demo/web/staging/" + version}
}

// Two applies of one instance at a time are what the engine must never do; the fake sees it.
func TestOverlapIsSeen(t *testing.T) {
	rt := fake.New(nil)
	place := rt.At("demo", "web", "staging")
	release := place.HangApplies()
	first := make(chan error, 1)
	go func() { _, err := rt.Apply(t.Context(), instance("v1")); first <- err }()
	require.NoError(t, rt.Await(t.Context(), place.Applying))
	require.Empty(t, rt.Overlaps())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rt.Apply(ended, instance("v2"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"demo/web/staging: apply of v2 (demo/web/staging/v2) started during another"}, rt.Overlaps())

	release()
	require.NoError(t, <-first)
	require.Equal(t, "v1", place.Version())
}

func TestScript(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	rt := fake.New(func() time.Time { return now })
	place := rt.At("demo", "web", "staging")
	object := func(o entities.Object) []entities.Object { o.Name, o.Type = "web", "fake"; return []entities.Object{o} }
	one := func(version string) entities.ObjectVersion {
		return entities.ObjectVersion{Version: version, Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}
	}
	runs := []entities.Event{{Timestamp: now, Message: "v1 runs"}}
	look := func() []entities.Object {
		t.Helper()
		objects, err := rt.Observe(t.Context(), instance("v1"))
		require.NoError(t, err)
		return objects
	}
	apply := func(version string) {
		t.Helper()
		_, err := rt.Apply(t.Context(), instance(version))
		require.NoError(t, err)
	}

	require.Empty(t, look())
	apply("v1")
	steady := object(entities.Object{Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{one("v1")}, Events: runs})
	require.Equal(t, steady, look())

	place.TakeLooks(1)
	apply("v2")
	require.Equal(t, object(entities.Object{
		Status: entities.ObjectPending, Message: "moving to v2", Events: runs,
		Versions: []entities.ObjectVersion{one("v1"), {Version: "v2", Replicas: 1, TargetReplicas: 1}},
	}), look())
	require.Equal(t, entities.ObjectSucceeded, look()[0].Status)
	require.Equal(t, "v2", place.Version())

	place.SetVersion("v1") // by hand
	require.Equal(t, steady, look())
	place.SetDrifted(true)
	require.True(t, look()[0].Versions[0].Drifted)
	place.SetSick("disk full")
	require.Equal(t, "disk full", look()[0].Message)
	place.TakeLooks(0)
	apply("v1")
	require.Equal(t, steady, look())

	place.Break("v3", "crash loop")
	apply("v3")
	require.Equal(t, entities.ObjectFailed, look()[0].Status)
	place.SetVersion("")
	require.Empty(t, look())

	place.FailLooks(1, runtimes.CodeTimeout)
	_, err := rt.Observe(t.Context(), instance("v1"))
	var reading *entities.ReadingError
	require.True(t, errors.As(err, &reading))
	require.Equal(t, runtimes.CodeTimeout, reading.Code)

	place.FailApplies(fake.Always, "quota")
	for range 3 {
		_, err = rt.Apply(t.Context(), instance("v4"))
		require.EqualError(t, err, "apply v4 to demo/web/staging: quota")
	}
	applies := rt.Applies()
	require.Equal(t, fake.Apply{
		Place: "demo/web/staging", Version: "v4", Payload: entities.DigestOf((*entities.Payload)(nil)), Key: "demo/web/staging/v4",
		Started: now, Ended: now, Err: "apply v4 to demo/web/staging: quota",
	}, applies[len(applies)-1])
}
