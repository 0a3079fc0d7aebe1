package state

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

var dawn = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// The state is bounded for any input.
func TestBounds(t *testing.T) {
	s := New("shop", "web")
	for i := range 500 {
		s.AppendJournal(dawn, "", fmt.Sprint("line ", i))
		s.RecordRefusal("release", "bob", fmt.Sprint("refusal ", i), dawn)
		s.Answer(Request{Verb: "release", ID: fmt.Sprint("ci-", i), Answer: json.RawMessage(fmt.Sprint(i))}, dawn)
	}
	s.Answer(Request{Verb: "release", Answer: json.RawMessage("0")}, dawn)
	require.Len(t, s.Journal, MaxJournal)
	require.Equal(t, entities.JournalEntry{N: 500, At: dawn, Text: "line 499"}, s.Journal[MaxJournal-1], "the numbering continues")
	require.Len(t, s.Refused, MaxRefused)
	require.Equal(t, "refusal 499", s.Refused[MaxRefused-1].Reason)
	require.Len(t, s.Requests, MaxRequests)

	answer, ok := s.Answered("ci-499")
	require.True(t, ok)
	require.Equal(t, "499", string(answer.Answer))
	for _, unknown := range []string{"ci-399", ""} {
		_, ok = s.Answered(unknown)
		require.False(t, ok, unknown)
	}
}

// A request id belongs to one request: of one verb, content and caller.
func TestRequestIDBelongsToOneRequest(t *testing.T) {
	of := Request{ID: "r1", Verb: "release", Digest: "v1", By: "ci", Subject: "u-1"}
	ci := &entities.Who{Name: "ci", Subject: "u-1"}
	require.NoError(t, of.CheckSame("release", "v1", ci))
	require.NoError(t, of.CheckSame("release", "v1", nil), "the caller is not known yet")
	require.EqualError(t, of.CheckSame("release", "v2", ci), `request id "r1" was already used for another release, by ci; use a new id for each request`)
	require.Error(t, of.CheckSame("pause", "v1", ci))
	require.Error(t, of.CheckSame("release", "v1", &entities.Who{Name: "mallory", Subject: "u-1"}))
	require.Error(t, of.CheckSame("release", "v1", &entities.Who{Name: "ci", Subject: "u-2"}))
	require.Error(t, of.CheckSame("release", "v1", &entities.Who{Name: "ci"}), "who states a name is not the one who proved it")
}

// A caller whose requests need no proof cannot evict a request whose token may come again.
func TestProvenRequestIsNotEvicted(t *testing.T) {
	s := New("shop", "web")
	s.Answer(Request{Verb: "pause", ID: "alice", TokenUntil: dawn.Add(time.Hour)}, dawn)
	for i := range 3 * MaxRequests {
		s.Answer(Request{Verb: "refresh", ID: fmt.Sprint("flood-", i)}, dawn)
	}
	_, known := s.Answered("alice")
	require.True(t, known)
	require.Len(t, s.Requests, MaxRequests+1)
	s.Answer(Request{Verb: "refresh", ID: "later"}, dawn.Add(time.Hour))
	_, known = s.Answered("alice")
	require.False(t, known, "its token has expired")
	require.Len(t, s.Requests, MaxRequests)
}

func TestCheckRelease(t *testing.T) {
	s := New("shop", "web")
	require.EqualError(t, s.CheckRelease("v1", nil, nil), "shop/web has no configuration yet; publish it with: converge config publish DIR")
	s.ApplySpec(&entities.Spec{
		Application: "shop", Service: "web",
		Parameters: []entities.ParamSpec{{Name: "replicas", Type: entities.ParamInt}, {Name: "image", Type: entities.ParamString}},
		Channels:   []entities.ChannelSpec{{Name: "staging"}},
	}, "d1", dawn)
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
		err := s.CheckRelease(row.version, row.parameters, row.channels)
		if row.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, row.want)
		}
	}
	s.ApplySpec(&entities.Spec{Application: "shop", Service: "web"}, "d2", dawn)
	require.EqualError(t, s.CheckRelease("v1", nil, nil), "shop/web is no longer declared")
}

func TestBackoff(t *testing.T) {
	timing := entities.RuntimeTiming{RetryBackoff: 10 * time.Second, RetryMax: time.Minute}
	var got []time.Duration
	for n := 1; n <= 6; n++ {
		got = append(got, backoff(timing, n))
	}
	require.Equal(t, []time.Duration{1e10, 2e10, 4e10, 6e10, 6e10, 6e10}, got)
	require.Equal(t, time.Minute, backoff(timing, 1<<40), "repairs are retried without a limit")
	require.Zero(t, backoff(entities.RuntimeTiming{}, 1<<20))
}

// A run of an extension that the workers put off is no attempt, and is due again. It says no longer that no worker took it.
func TestExtensionPutOffIsNoAttempt_F7(t *testing.T) {
	s := New("shop", "web")
	extension := entities.Extension{Name: "migrate", Stage: "post-approval", MaxAttempts: 1}
	st := &ExtensionState{Running: true, NoWorkerSince: dawn}
	s.Releases = []*Release{{ID: "r1", Extensions: map[string]*ExtensionState{extension.RunKey(): st}}}
	s.ExtensionPutOff(ExtensionOp{Release: "r1", Extension: extension})
	require.Equal(t, &ExtensionState{}, st)
	s.ExtensionPutOff(ExtensionOp{Release: "r2", Extension: extension}) // pruned meanwhile
}
