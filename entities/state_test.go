package entities

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The state is bounded whatever comes (DESIGN section 3, continue-as-new).
func TestBounds(t *testing.T) {
	s := NewState("shop", "web")
	for i := range 500 {
		s.Record(dawn, "", fmt.Sprint("line ", i))
		s.Refuse("release", "bob", fmt.Sprint("refusal ", i), dawn)
		s.Answer("release", fmt.Sprint("ci-", i), json.RawMessage(fmt.Sprint(i)))
	}
	s.Answer("release", "", json.RawMessage("0"))
	require.Len(t, s.Journal, MaxJournal)
	require.Equal(t, JournalLine{N: 500, At: dawn, Text: "line 499"}, s.Journal[MaxJournal-1], "lines are numbered on")
	require.Len(t, s.Refused, MaxRefused)
	require.Equal(t, "refusal 499", s.Refused[MaxRefused-1].Reason)
	require.Len(t, s.Requests, MaxRequests)

	answer, ok := s.Answered("release", "ci-499")
	require.True(t, ok)
	require.Equal(t, "499", string(answer))
	for _, unknown := range []struct{ verb, id string }{{"release", "ci-399"}, {"pause", "ci-499"}, {"release", ""}} {
		_, ok = s.Answered(unknown.verb, unknown.id)
		require.False(t, ok, unknown)
	}
}

func oneChannel(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	w.channel("staging", func(*ChannelSpec) {})
	w.publish()
	return w
}

func TestPruneKeepsWhatAChannelIsAt(t *testing.T) {
	w := oneChannel(t)
	_, err := w.release("v1", "")
	require.NoError(t, err)
	w.obey()
	_, err = w.s.PauseScope("", bob, "", w.now)
	require.NoError(t, err)
	for i := range 3 * MaxFinishedReleases {
		version := fmt.Sprint("v", i+2)
		_, err := w.release(version, "")
		require.NoError(t, err)
		_, err = w.s.CancelRelease(version, "", bob, "", w.now)
		require.NoError(t, err)
		w.obey()
	}
	require.Len(t, w.s.Releases, MaxFinishedReleases)
	require.Equal(t, "v1", w.s.Releases[0].Version, "it is what staging is at")
	require.Equal(t, "v31", w.s.Newest().Version)

	r, err := w.release("v32", "")
	require.NoError(t, err)
	require.Equal(t, "32", r.ID, "ids go on")
}

func TestReleasesInFlightAreBounded(t *testing.T) {
	w := oneChannel(t)
	for i := range MaxOpenReleases {
		_, err := w.release(fmt.Sprint("v", i), "")
		require.NoError(t, err)
	}
	_, err := w.release("one-more", "")
	require.EqualError(t, err, "50 releases are in flight, the most that are kept; cancel some first")
	w.channel("staging", func(c *ChannelSpec) { c.Template = "t2" })
	require.Nil(t, w.publish(), "configuration waits for the next release")
	require.EqualValues(t, 2, w.s.Held)
}

// INTERFACE section 1: configChanges hold.
func TestHeldConfiguration(t *testing.T) {
	w := newWorld()
	w.next.ConfigChanges = ConfigHold
	w.channel("staging", func(*ChannelSpec) {})
	w.publish()
	_, err := w.release("v1", "")
	require.NoError(t, err)
	template := func(name string) *Release {
		w.channel("staging", func(c *ChannelSpec) { c.Template = name })
		return w.publish()
	}
	require.Nil(t, template("t2"))
	require.EqualValues(t, 2, w.s.Held)
	require.Nil(t, template("t1"))
	require.Zero(t, w.s.Held, "taken back")
	require.Nil(t, template("t3"))
	require.EqualValues(t, 4, w.s.Held)
	w.s.OpenRelease(NewRelease{Version: "v1", FullVersion: "v1", Incarnation: 1, Payloads: map[string]string{"staging": "t1@v1"}}, w.now)
	require.EqualValues(t, 4, w.s.Held, "a known version brings its own bytes, not these")
	_, err = w.release("v2", "")
	require.NoError(t, err)
	require.Zero(t, w.s.Held)
}

func TestCheckRelease(t *testing.T) {
	w := newWorld()
	require.EqualError(t, w.s.CheckRelease("v1", nil, nil), "shop/web has no configuration yet; publish it with: converge apply DIR")
	w.next.Parameters = []ParamSpec{{Name: "replicas", Type: ParamInt}, {Name: "image", Type: ParamString}}
	w.channel("staging", func(*ChannelSpec) {})
	w.publish()
	for _, row := range []struct {
		version              string
		parameters, channels []string
		want                 string
	}{
		{version: "v1", parameters: []string{"image"}, channels: []string{"staging"}},
		{version: "", want: "no version given"},
		{version: strings.Repeat("v", 129), want: "the version is 129 bytes long; at most 128"},
		{version: "v 1", want: `version "v 1": expected letters, digits and . _ + - : @ ~ =, beginning with a letter or digit`},
		{version: "a\nb", want: `version "a\nb": expected letters, digits and . _ + - : @ ~ =, beginning with a letter or digit`},
		{version: "v1\u202e", want: `version "v1\u202e": expected letters, digits and . _ + - : @ ~ =, beginning with a letter or digit`},
		{version: "v1", parameters: []string{"replica"}, want: `shop/web has no parameter "replica"; expected one of replicas, image`},
		{version: "v1", channels: []string{"prod"}, want: `shop/web has no release channel "prod"; expected one of staging`},
	} {
		err := w.s.CheckRelease(row.version, row.parameters, row.channels)
		if row.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, row.want)
		}
	}
	w.next.Channels = nil
	w.publish()
	require.EqualError(t, w.s.CheckRelease("v1", nil, nil), "shop/web is no longer declared")
}

// DESIGN section 3: a digest says what is there, never messages, times, events or links.
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

func TestBackoff(t *testing.T) {
	timing := RuntimeTiming{RetryBackoff: 10 * time.Second, RetryMax: time.Minute}
	var got []time.Duration
	for n := 1; n <= 6; n++ {
		got = append(got, backoff(timing, n))
	}
	require.Equal(t, []time.Duration{1e10, 2e10, 4e10, 6e10, 6e10, 6e10}, got)
	require.Equal(t, time.Minute, backoff(timing, 1<<40), "a repair may be tried for ever")
	require.Zero(t, backoff(RuntimeTiming{}, 1<<20))
}
