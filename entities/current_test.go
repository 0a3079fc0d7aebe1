package entities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var dawn = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func running(version string, status ObjectStatus) Reading {
	return Reading{Objects: []Object{{
		Name: "web", Type: "fake", Status: status, Versions: []ObjectVersion{{Version: version, Active: true}},
	}}}
}

// A channel's state, and a service's, is that of its parts.
func TestRollUp_A4(t *testing.T) {
	good, moved := FetchObjects(running("v1", ObjectSucceeded).Objects, &Target{FullVersion: "v1"}), FetchObjects(running("v0", ObjectPending).Objects, &Target{FullVersion: "v1"})
	require.Equal(t, Current{Known: true, Stable: true, Active: []string{"v1"}}, RollUp([]Current{good, good}))
	require.Equal(t, Current{Known: true, Active: []string{"v0", "v1"}, Reason: "web at another version"}, RollUp([]Current{good, moved}))
	require.Equal(t, moved, RollUp([]Current{moved}))
}

// Objects are only read.
func TestObjectsHaveNoWork_A2(t *testing.T) {
	_, hasWork := any(RuntimeObject{}).(interface {
		HasWork(*Target, Current) (bool, string)
	})
	require.False(t, hasWork)
}

// An id has one text form in maps and messages, and another one for people.
func TestInstanceID(t *testing.T) {
	only, one := Only("prod"), InstanceID{Channel: "prod", Name: "eu-1"}
	require.Equal(t, "prod", only.String())
	require.Equal(t, "prod/main", only.Key())
	require.Equal(t, "prod/eu-1", one.String())
	for _, id := range []InstanceID{only, one} {
		text, err := id.MarshalText()
		require.NoError(t, err)
		var back InstanceID
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, id, back)
	}
	for _, bad := range []string{"", "prod", "/eu", "prod/"} {
		require.Error(t, new(InstanceID).UnmarshalText([]byte(bad)), bad)
	}
	require.Equal(t, []InstanceID{one, only}, SortedIDs(map[InstanceID]int{only: 1, one: 2}))
}

// A digest covers the objects and versions, never messages, times, events or links.
func TestReadingDigest(t *testing.T) {
	base := Reading{At: dawn, Objects: []Object{
		{Name: "a", Type: "x", Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v1", Active: true}, {Version: "v2"}}},
		{Name: "b", Type: "x", Status: ObjectSucceeded},
	}}
	same := Reading{At: dawn.Add(time.Hour), Objects: []Object{
		{Name: "b", Type: "x", Status: ObjectSucceeded, Message: "fine", Events: []Event{{Message: "pulled"}}, Links: []Link{{URL: "u"}}},
		{Name: "a", Type: "x", Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v2"}, {Version: "v1", Active: true, TargetReplicas: 3}}},
	}}
	require.Equal(t, base.Digest(), same.Digest())
	require.NotEmpty(t, Reading{}.Digest())

	err := func(code, message string) Reading { return Reading{Err: &ReadingError{Code: code, Message: message}} }
	require.Equal(t, err("timeout", "after 30s").Digest(), err("timeout", "after 31s").Digest())
	seen := map[string]bool{}
	for _, r := range []Reading{
		{},
		base, err("timeout", ""), err("unreachable", ""), running("v1", ObjectSucceeded), running("v1", ObjectFailed), running("v2", ObjectSucceeded),
		{Objects: []Object{{Name: "web", Type: "fake", Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v1", Active: true, Drifted: true}}}}},
		{Objects: []Object{{Name: "web", Type: "fake", Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v1"}}}}},
		{Objects: running("v1", ObjectSucceeded).Objects, Omitted: 1},
	} {
		require.False(t, seen[r.Digest()], r)
		seen[r.Digest()] = true
	}
}

// The report of an object, and whether that is stable at v2.
func TestObjectIsStable_C5(t *testing.T) {
	version := func(v string, active, drifted bool) ObjectVersion {
		return ObjectVersion{Version: v, Active: active, Drifted: drifted}
	}
	for _, row := range []struct {
		name   string
		object Object
		want   Current
	}{
		{
			"stable",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v2", true, false)}},
			Current{Active: []string{"v2"}, Stable: true},
		},
		{
			"an old version that is not active does not count",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v1", false, true), version("v2", true, false)}},
			Current{Active: []string{"v2"}, Stable: true},
		},
		{
			"two active versions",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v1", true, false), version("v2", true, false)}},
			Current{Active: []string{"v1", "v2"}, Reason: "web 2 active versions"},
		},
		{
			"drifted",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v2", true, true)}},
			Current{Active: []string{"v2"}, Drifted: true, Reason: "web drifted"},
		},
		{
			"still pending, with replicas",
			Object{Status: ObjectPending, Versions: []ObjectVersion{{Version: "v2", Active: true, AvailableReplicas: 1, TargetReplicas: 3}}},
			Current{Active: []string{"v2"}, Reason: "web 1 of 3 replicas"},
		},
		{
			"target replicas are information only",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v2", Active: true, AvailableReplicas: 1, TargetReplicas: 3}}},
			Current{Active: []string{"v2"}, Stable: true},
		},
		{
			"an unknown version",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("", true, false)}},
			Current{Active: []string{"?"}, Reason: "web at another version"},
		},
		{"absent", Object{Status: ObjectSucceeded}, Current{Reason: "web not running"}},
		{
			"failed at the target",
			Object{Status: ObjectFailed, Message: "OOM", Versions: []ObjectVersion{version("v2", false, false)}},
			Current{Failed: "web FAILED: OOM", Reason: "web FAILED: OOM"},
		},
		{
			"failed at the previous version",
			Object{Status: ObjectFailed, Message: "OOM", Versions: []ObjectVersion{version("v1", true, false)}},
			Current{Active: []string{"v1"}, Reason: "web FAILED: OOM"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.object.Name = "web"
			row.want.Known = true
			require.Equal(t, row.want, RuntimeObject{&row.object}.Fetch(&Target{FullVersion: "v2"}))
		})
	}
}

// A part that is as declared and not ready needs no work: an apply would change nothing. One part that differs is enough for work.
func TestAsDeclaredNeedsNoWork_H8(t *testing.T) {
	target := &Target{FullVersion: "v1"}
	at := func(status ObjectStatus, version string, asDeclared bool) Object {
		return Object{Name: "web", Status: status, AsDeclared: asDeclared, Versions: []ObjectVersion{{Version: version, Active: true}}}
	}
	stable, pending, other := at(ObjectSucceeded, "v1", false), at(ObjectPending, "v1", true), at(ObjectPending, "v1", false)
	missing, older, failed := Object{Name: "web"}, at(ObjectPending, "v0", true), at(ObjectFailed, "v1", true)
	drifted := at(ObjectPending, "v1", true)
	drifted.Versions[0].Drifted = true
	for _, c := range []struct {
		objects                 []Object
		asDeclared, progressing bool
	}{
		{[]Object{pending}, true, true},
		{[]Object{stable, pending}, true, true},
		{[]Object{pending, stable, pending}, true, true},
		{[]Object{pending, failed}, true, false},
		{[]Object{stable, stable}, false, false},
		{[]Object{pending, other}, false, false},
		{[]Object{missing, pending}, false, false},
		{[]Object{older}, false, false},
		{[]Object{pending, drifted, stable}, false, false},
		{nil, false, false},
	} {
		current := FetchObjects(c.objects, target)
		require.Equal(t, c.asDeclared, current.AsDeclared, c.objects)
		require.Equal(t, c.progressing, current.Progressing(), c.objects)
		require.Equal(t, c.progressing, RollUp([]Current{{Known: true, Stable: true}, current}).Progressing())
	}
}
