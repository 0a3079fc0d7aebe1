package runtimes_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

func running(name, version string) entities.Object {
	return entities.Object{
		Name: name, Type: "process", Status: entities.ObjectSucceeded,
		Versions: []entities.ObjectVersion{{Version: version, Active: true}},
	}
}

func TestBoundKeepsSmallObjects(t *testing.T) {
	objects := []entities.Object{running("b", "v1"), running("a", "v1")}
	objects[0].Links = []entities.Link{{Type: "DETAIL", URL: "http://x", Name: "page"}}
	objects[0].Events = []entities.Event{{Timestamp: time.Unix(1, 0), Message: "started"}}
	kept, omitted := runtimes.Bound(objects)
	require.Equal(t, objects, kept)
	require.Zero(t, omitted)

	kept, omitted = runtimes.Bound(nil)
	require.Empty(t, kept)
	require.Zero(t, omitted)
}

func TestBoundTrimsAnObject(t *testing.T) {
	o := running("web", "v1")
	o.Message = "first" + strings.Repeat("é", 300) + "last"
	for i := range 12 {
		o.Versions = append(o.Versions, entities.ObjectVersion{Version: fmt.Sprint("old", i), Drifted: i == 11})
		o.Links = append(o.Links, entities.Link{Type: "LOG", URL: fmt.Sprint("http://x/", i), Name: "log"})
		o.Events = append(o.Events, entities.Event{Timestamp: time.Unix(int64(100-i), 0).UTC(), Message: fmt.Sprint("event ", i)})
	}
	o.Links[0].URL += strings.Repeat("x", 2000) // cut, it would lead nowhere
	o.Events[0].Message = "\x1b[31mred\nsecond line\xff"
	before, err := json.Marshal(o)
	require.NoError(t, err)

	kept, omitted := runtimes.Bound([]entities.Object{o})
	require.Zero(t, omitted)
	got := kept[0]
	require.LessOrEqual(t, len(got.Message), 512)
	require.Regexp(t, "^firsté{80,} … é{160,}last$", got.Message)
	require.Len(t, got.Versions, runtimes.MaxVersions)
	require.Equal(t, []entities.ObjectVersion{{Version: "v1", Active: true}, {Version: "old11", Drifted: true}, {Version: "old0"}}, got.Versions[:3])
	require.Len(t, got.Links, runtimes.MaxLinks)
	require.Equal(t, "http://x/1", got.Links[0].URL)
	require.Len(t, got.Events, runtimes.MaxEvents)
	require.Equal(t, "event 9", got.Events[0].Message, "the newest are kept")
	require.Equal(t, " [31mred\nsecond line\uFFFD", got.Events[9].Message)

	after, err := json.Marshal(o)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "the input is not changed")
}

// The worst come first, then one of each version that runs, then the others.
func TestBoundOrder(t *testing.T) {
	var objects []entities.Object
	for i := range 30 {
		objects = append(objects, running(fmt.Sprintf("ok%02d", i), "v1"))
	}
	objects[20] = running("other", "v2")
	objects[25].Name, objects[25].Versions[0].Drifted = "drifted", true
	objects[27].Name, objects[27].Status = "pending", entities.ObjectPending
	objects[29].Name, objects[29].Status = "failed", entities.ObjectFailed
	kept, omitted := runtimes.Bound(objects)
	require.Equal(t, 10, omitted)
	var names []string
	for _, o := range kept {
		names = append(names, o.Name)
	}
	require.Equal(t, []string{"failed", "pending", "drifted", "ok00", "other", "ok01"}, names[:6])
}

// Twenty objects that are not ready, but as declared, do not hide that another one is at another version.
func TestBoundShowsThatVersionsDiffer_C5_H8(t *testing.T) {
	var objects []entities.Object
	for i := range 30 {
		o := running(fmt.Sprintf("pending%02d", i), "v1")
		o.Status, o.AsDeclared = entities.ObjectPending, true
		objects = append(objects, o)
	}
	require.True(t, asDeclared(objects, "v1"))
	for _, status := range []entities.ObjectStatus{entities.ObjectSucceeded, entities.ObjectPending, entities.ObjectFailed} {
		other := running("other", "v2")
		other.Status, other.AsDeclared = status, status != entities.ObjectSucceeded
		kept, omitted := runtimes.Bound(append(objects[:len(objects):len(objects)], other))
		require.Equal(t, 11, omitted)
		require.False(t, asDeclared(kept, "v1"), status)
	}
}

// Over the bound: what is kept is small and valid, and is stable only when everything is.
func TestBoundNeverHidesFailures_C5_H8(t *testing.T) {
	version := rapid.Custom(func(t *rapid.T) entities.ObjectVersion {
		return entities.ObjectVersion{
			Version: rapid.SampledFrom([]string{"v1", "v1", "v1", "v2", "", strings.Repeat("<", 400)}).Draw(t, "version"),
			Active:  rapid.IntRange(0, 3).Draw(t, "active") > 0,
			Drifted: rapid.IntRange(0, 9).Draw(t, "drifted") == 0,
		}
	})
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.Just(strings.Repeat("<&>", 500)), rapid.Just(strings.Repeat("é", 300)+"\xff"))
	object := rapid.Custom(func(t *rapid.T) entities.Object {
		o := entities.Object{
			Name: text.Draw(t, "name"), Type: text.Draw(t, "type"), Message: text.Draw(t, "message"),
			Status: rapid.SampledFrom([]entities.ObjectStatus{"SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "PENDING", "FAILED", ""}).Draw(t, "status"),
		}
		o.Orphaned = rapid.IntRange(0, 9).Draw(t, "orphaned") == 0
		if rapid.IntRange(0, 4).Draw(t, "plain") > 0 {
			o.Versions = []entities.ObjectVersion{{Version: rapid.SampledFrom([]string{"v1", "v1", "v1", "v1", "v1", "v2"}).Draw(t, "plain version"), Active: true}}
			o.AsDeclared = rapid.IntRange(0, 2).Draw(t, "as declared") > 0 && o.Status != entities.ObjectSucceeded
		} else {
			o.Versions = rapid.SliceOfN(version, 0, 14).Draw(t, "versions")
		}
		for range rapid.IntRange(0, 14).Draw(t, "events") {
			o.Events = append(o.Events, entities.Event{Message: text.Draw(t, "event")})
			o.Links = append(o.Links, entities.Link{URL: text.Draw(t, "url"), Name: text.Draw(t, "name")})
		}
		return o
	})
	rapid.Check(t, func(t *rapid.T) {
		objects := rapid.SliceOfN(object, 0, 40).Draw(t, "objects")
		kept, omitted := runtimes.Bound(objects)
		if len(kept)+omitted != len(objects) || len(kept) > runtimes.MaxObjects {
			t.Fatalf("%d of %d, %d omitted", len(kept), len(objects), omitted)
		}
		b, err := json.Marshal(kept)
		if err != nil || len(b) > runtimes.MaxReading || !utf8.Valid(b) {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		if len(b) < runtimes.MaxReading/4 && omitted > 0 && len(kept) < runtimes.MaxObjects {
			t.Fatalf("%d omitted although only %d bytes are used", omitted, len(b))
		}
		for _, target := range []string{"v1", "v2", ""} {
			if stable(kept, target) != stable(objects, target) {
				t.Fatalf("stable at %q: %v, of all objects %v", target, stable(kept, target), stable(objects, target))
			}
			if asDeclared(kept, target) != asDeclared(objects, target) {
				t.Fatalf("as declared at %q: %v, of all objects %v", target, asDeclared(kept, target), asDeclared(objects, target))
			}
		}
	})
}

func stable(objects []entities.Object, version string) bool {
	return entities.FetchObjects(objects, &entities.Target{FullVersion: version}).Stable
}

func asDeclared(objects []entities.Object, version string) bool {
	return entities.FetchObjects(objects, &entities.Target{FullVersion: version}).AsDeclared
}

func TestPermanent(t *testing.T) {
	err := fmt.Errorf("apply: %w", runtimes.Permanent(fmt.Errorf("bad path")))
	require.True(t, runtimes.IsPermanent(err))
	require.EqualError(t, err, "apply: bad path")
	require.False(t, runtimes.IsPermanent(fmt.Errorf("apply")))
	require.False(t, runtimes.IsPermanent(nil))
}
