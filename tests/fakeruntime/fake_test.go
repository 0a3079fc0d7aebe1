package fakeruntime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/runtimetest"
)

func TestConformance(t *testing.T) {
	for name, readings := range map[string]int{"at once": 0, "after three readings": 3} {
		t.Run(name, func(t *testing.T) {
			runtimetest.Run(t, runtimetest.Harness{New: func(t *testing.T) runtimetest.Subject {
				rt := fakeruntime.New(nil)
				for _, channel := range []string{"staging", "staging/eu", "staging/us", "production", "prod-0", "prod-1", "prod-2"} {
					rt.At("demo", "web", channel).SettleAfter(readings)
				}
				t.Cleanup(func() { require.Empty(t, rt.Overlaps()) })
				return subject(rt)
			}})
		})
	}
}

func subject(rt *fakeruntime.Runtime) runtimetest.Subject {
	staging := rt.At("demo", "web", "staging")
	return runtimetest.Subject{
		Runtime: rt, Fleet: true,
		Changes: func(channel string) int { return rt.At("demo", "web", channel).Changes() },
		FailApply: func(permanent bool) {
			if permanent {
				staging.FailAppliesPermanently(1, "no")
			} else {
				staging.FailApplies(1, "not now")
			}
		},
		FailReading: func() { staging.FailReadings(1, runtimes.CodeFetchFailed) },
		Hang: func(arrived func()) {
			staging.HangApplies()
			staging.HangReadings()
			calls := func() int { return staging.Applies() + staging.Readings() + staging.Removals() }
			begun := calls()
			go func() {
				_ = rt.Await(context.Background(), func() bool { return calls() > begun })
				arrived()
			}()
		},
	}
}

func instance(version string) runtimes.Request {
	owner := runtimes.Owner{Application: "demo", Service: "web", ID: entities.Only("staging")}
	return runtimes.Request{Owner: owner, FullVersion: version, Key: "demo/web/staging/" + version}
}

// Two applies of one instance at a time are what the engine must never do; the fake sees it.
func TestOverlapIsDetected(t *testing.T) {
	rt := fakeruntime.New(nil)
	web := rt.At("demo", "web", "staging")
	release := web.HangApplies()
	first := make(chan error, 1)
	go func() { _, err := rt.Apply(t.Context(), instance("v1")); first <- err }()
	require.NoError(t, rt.Await(t.Context(), web.Applying))
	require.Empty(t, rt.Overlaps())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rt.Apply(ended, instance("v2"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"demo/web/staging: apply of v2 (demo/web/staging/v2) started during another"}, rt.Overlaps())

	release()
	require.NoError(t, <-first)
	require.Equal(t, "v1", web.Version())
}

func TestScript(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	rt := fakeruntime.New(func() time.Time { return now })
	web := rt.At("demo", "web", "staging")
	object := func(o entities.Object) []entities.Object { o.Name, o.Type = "web", "fake"; return []entities.Object{o} }
	one := func(version string) entities.ObjectVersion {
		return entities.ObjectVersion{Version: version, Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}
	}
	runs := []entities.Event{{Timestamp: now, Message: "v1 runs"}}
	observe := func() []entities.Object {
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

	require.Empty(t, observe())
	apply("v1")
	steady := object(entities.Object{Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{one("v1")}, Events: runs})
	require.Equal(t, steady, observe())

	web.SettleAfter(1)
	apply("v2")
	require.Equal(t, object(entities.Object{
		Status: entities.ObjectPending, Message: "moving to v2", Events: runs,
		Versions: []entities.ObjectVersion{one("v1"), {Version: "v2", Replicas: 1, TargetReplicas: 1}},
	}), observe())
	require.Equal(t, entities.ObjectSucceeded, observe()[0].Status)
	require.Equal(t, "v2", web.Version())

	web.SetVersion("v1") // by hand
	require.Equal(t, steady, observe())
	web.SetDrifted(true)
	require.True(t, observe()[0].Versions[0].Drifted)
	web.SetFailed("disk full")
	require.Equal(t, "disk full", observe()[0].Message)
	web.SettleAfter(0)
	apply("v1")
	require.Equal(t, steady, observe())

	web.Break("v3", "crash loop")
	apply("v3")
	require.Equal(t, entities.ObjectFailed, observe()[0].Status)
	web.SetVersion("")
	require.Empty(t, observe())

	web.FailReadings(1, runtimes.CodeTimeout)
	_, err := rt.Observe(t.Context(), instance("v1"))
	var reading *entities.ReadingError
	require.True(t, errors.As(err, &reading))
	require.Equal(t, runtimes.CodeTimeout, reading.Code)

	web.FailApplies(fakeruntime.Always, "quota")
	for range 3 {
		_, err = rt.Apply(t.Context(), instance("v4"))
		require.EqualError(t, err, "apply v4 to demo/web/staging: quota")
	}
	applies := rt.Applies()
	require.Equal(t, fakeruntime.Apply{
		Instance: "demo/web/staging", Version: "v4", Payload: entities.DigestOf((*entities.Payload)(nil)), Key: "demo/web/staging/v4",
		Started: now, Ended: now, Err: "apply v4 to demo/web/staging: quota",
	}, applies[len(applies)-1])
}
