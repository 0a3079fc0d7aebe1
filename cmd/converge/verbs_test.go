package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

func at(seconds int) time.Time {
	return time.Date(2026, 11, 20, 10, 50, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// webStatus returns the status of shop/web with v9 as release 19: channels as "name STATUS current desired phase", and journal lines
// "seconds channel text".
func webStatus(channels string, journal ...string) protocol.Status {
	s := protocol.Status{Application: "shop", Service: "web", Store: "/store"}
	r := protocol.ReleaseStatus{ID: "19", Version: "v9", At: at(2), Phases: map[string]string{}}
	for _, text := range strings.Split(channels, ", ") {
		w := strings.SplitN(text, " ", 5)
		c := protocol.ChannelStatus{Name: w[0], Status: w[1], Current: w[2], Target: w[3], Desired: w[3], Since: at(0)}
		if c.Status == string(entities.StatusPreconditions) {
			c.Conditions = []protocol.ConditionStatus{{ID: "channel-stable/staging", Verdict: "WAIT"}}
		}
		s.Channels = append(s.Channels, c)
		r.Phases[w[0]] = w[4]
	}
	for i, text := range journal {
		w := strings.SplitN(text, " ", 3)
		var seconds int
		_, _ = fmt.Sscan(w[0], &seconds)
		line := entities.JournalEntry{N: int64(i + 1), At: at(seconds), Channel: w[1], Text: w[2]}
		if w[1] == "-" {
			line.Channel = ""
		}
		if strings.HasPrefix(line.Text, "release ") {
			line.Release = r.ID
		}
		s.Journal = append(s.Journal, line)
	}
	s.Releases = []protocol.ReleaseStatus{r}
	return s
}

// lines is the journal of a release that fails in canary and is rolled back. Each moment contains more of it.
var lines = []string{
	"0 staging CONVERGED at v8 (2m)",
	"2 - release 19: v9 from incarnation 42, by alice",
	"2 staging target v8 → v9",
	"41 staging CONVERGED at v9 (39s)",
	"41 canary target v8 → v9",
	"75 canary FAILED CrashLoopBackOff",
	"93 canary ROLLED_BACK; v9 barred here",
}

func failingStatuses() []any {
	return []any{
		webStatus("staging CONVERGING v8 v9 in progress, canary CONVERGED v8 v8 pending, prod WAITING_PRECONDITIONS v8 v9 pending", lines[:3]...),
		fmt.Errorf("%w: it went away", connection.ErrLost),
		fmt.Errorf("%w: it went away", connection.ErrLost),
		webStatus("staging CONVERGED v9 v9 succeeded, canary CONVERGING v8 v9 in progress, prod WAITING_PRECONDITIONS v8 v9 pending", lines[:5]...),
		webStatus("staging CONVERGED v9 v9 succeeded, canary ROLLING_BACK v9 v8 failed, prod BLOCKED v8 v9 pending", lines[:6]...),
		webStatus("staging CONVERGED v9 v9 succeeded, canary ROLLED_BACK v8 v8 rolled back, prod BLOCKED v8 v9 pending", lines...),
	}
}

var accepted = protocol.ReleaseAnswer{ID: "19", Version: "v9", Incarnation: 42}

func TestReleaseWait(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		statuses   []any
		stopAt     time.Duration
		code       int
		want       string
	}{
		{"failed, rolled back, through a lost connection", "release shop/web v9 --wait", failingStatuses(), 0, outcome.Failed, `release 19: web v9 from incarnation 42
10:50:02 UTC staging  target v8 → v9
10:50:41 UTC staging  CONVERGED at v9 (39s)
10:50:41 UTC canary   target v8 → v9
10:51:15 UTC canary   FAILED CrashLoopBackOff
10:51:33 UTC canary   ROLLED_BACK; v9 barred here
web v9 was rolled back in canary; prod blocked by that. Next: retry, cancel, or release a fix. See: converge explain shop/web
! connection lost: it went away; retrying
! reconnected
`},
		{"Ctrl-C stops watching", "release shop/web v9 --wait", failingStatuses()[:1], 5 * time.Second, exitInterrupted, `release 19: web v9 from incarnation 42
10:50:02 UTC staging  target v8 → v9
! stopped watching; web continues. See: converge status shop/web
`},
		{"timed out", "release shop/web v9 --wait --timeout 5ms", failingStatuses()[:1], 0, outcome.TimedOut, `release 19: web v9 from incarnation 42
10:50:02 UTC staging  target v8 → v9
! converge: timed out after 5ms: web v9 is in progress in staging
`},
		{"stop at approval", "release shop/web v9 --wait --stop-at-approval", []any{webStatus("staging WAITING_MANUAL_APPROVAL v8 v9 pending")}, 0, outcome.Person, `release 19: web v9 from incarnation 42
web v9 waits for an approval in staging. See: converge explain shop/web
`},
		{"converged", "release shop/web v9 --wait", []any{webStatus("staging CONVERGED v9 v9 succeeded")}, 0, outcome.Done, `release 19: web v9 from incarnation 42
web v9 converged in staging.
`},
		{"without waiting", "release shop/web v9", []any{webStatus("staging CONVERGED v8 v8 pending")}, 0, outcome.Done, "release 19: web v9 from incarnation 42\n"},
		{"json", "release shop/web v9 -o json", []any{webStatus("staging CONVERGED v8 v8 pending")}, 0, outcome.Done, `{
  "id": "19",
  "version": "v9",
  "incarnation": 42
}
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": tt.statuses}, answer: accepted})
			c.stopAt = tt.stopAt
			code, output := c.run(t, tt.line)
			require.Equal(t, tt.want, output)
			require.Equal(t, tt.code, code)
			require.Equal(t, []string{`service/shop/web release {"by":"alice","requestId":"ID","version":"v9"}`}, c.api.updates)
		})
	}
}

// A lost call is retried with the same request id: there is one release.
func TestReleaseIsRetriedUnderOneRequestID(t *testing.T) {
	c := newConsole(t, &fakeAPI{
		statuses: map[string][]any{"service/shop/web": {webStatus("staging CONVERGED v8 v8 pending")}}, answer: accepted,
		refuse: []error{fmt.Errorf("%w: reset", connection.ErrLost), fmt.Errorf("%w: reset", connection.ErrLost)},
	})
	code, output := c.run(t, "release shop/web v9 --request-id ci-811 -p replicas=3 -p canary:replicas=1")
	require.Equal(t, "release 19: web v9 from incarnation 42\n! connection lost: reset; retrying\n! connection lost: reset; retrying\n", output)
	require.Equal(t, outcome.Done, code)
	want := `service/shop/web release {"by":"alice","requestId":"ID","version":"v9","parameters":{"replicas":3},"channelParameters":{"canary":{"replicas":1}}}`
	require.Equal(t, []string{want, want, want}, c.api.updates)
}

func TestVerbMessages(t *testing.T) {
	web := []any{webStatus("staging CONVERGED v9 v9 succeeded, prod PAUSED v8 v9 pending")}
	two := map[string][]any{"application/shop": web, "service/shop/web": web, "service/shop/api": web, "service/blog/site": web}
	lost := fmt.Errorf("%w: reset", connection.ErrLost)
	for _, tt := range []struct {
		line   string
		refuse []error
		answer any
		input  string
		code   int
		want   string
	}{
		{line: "pause shop/web -c prod --reason drill", answer: protocol.Answer{Message: "paused"}, want: "paused\n"},
		{line: "pause shop/web", refuse: []error{&connection.RefusedError{Reason: "already paused"}}, code: 1, want: "! converge: refused: already paused\n"},
		{line: "pause shop", code: 1, want: "! converge: pause 2 services of shop requires --yes when not running interactively\n"},
		{line: "pause shop --yes", answer: protocol.Answer{Message: "paused"}, want: "paused\n"},
		{line: "pause shop", input: "y\n", answer: protocol.Answer{Message: "paused"}, want: "paused\n! pause 2 services of shop? [y/N] "},
		{line: "pause shop", input: "\n", code: 1, want: "! pause 2 services of shop? [y/N] converge: not confirmed; nothing changed\n"},
		{line: "resume shop/web -o json", answer: protocol.Answer{Message: "resumed"}, want: "[\n  {\n    \"service\": \"shop/web\",\n    \"message\": \"resumed\"\n  }\n]\n"},
		{line: "release shop/web v10 --request-id ci", answer: accepted, code: 1, want: "! converge: request id ci was accepted before, as release 19 of version v9; nothing new was released\n"},
		{line: "cancel shop/web v9", answer: protocol.Answer{Message: "cancelled"}, want: "cancelled\n"},
		{line: "cancel shop/web --except v9", answer: protocol.Answer{Message: "2 releases, v7 to v8, cancelled in prod"}, want: "2 releases, v7 to v8, cancelled in prod\n"},
		{line: "cancel shop/web", code: 1, want: "! converge: expected one of VERSION, --older-than and --except\n"},
		{line: "cancel shop/web v9 --older-than v9", code: 1, want: "! converge: expected one of VERSION, --older-than and --except\n"},
		{line: "cancel shop@autumn --except v9", code: 1, want: "! converge: expected one of VERSION, --older-than and --except\n"},
		{line: "retry shop/web v9", refuse: []error{lost, lost, lost}, code: 1, want: "! connection lost: reset; retrying\n! connection lost: reset; retrying\n! converge: retry shop/web: connection lost: reset; it may have been accepted: see converge status shop/web, or converge admin doctor if that gets no answer\n"},
		{line: "channel refresh shop/wob", code: 1, want: "! converge: no service shop/wob; did you mean shop/web?\n"},
		{line: "channel refresh nothing/site", code: 1, want: "! converge: no service nothing/site; did you mean blog/site?\n"},
		{line: "status shap", code: 1, want: "! converge: no application shap with services; did you mean shop?\n"},
		{line: "wait shop/web", code: 8, want: "web is paused in prod. See: converge explain shop/web\n"},
		{line: "wait shop/web -c staging", want: "web converged in staging.\n"},
		{line: "wait shop/web v9 --channel staging", want: "web v9 converged in staging.\n"},
		{line: "wait shop/web v1", code: 1, want: "! converge: shop/web has no release v1; known releases: v9\n"},
		{line: "explain shop/web nowhere", code: 1, want: "! converge: shop/web has no release channel \"nowhere\"; expected one of staging, prod\n"},
		{line: "explain shop/web staging", want: "shop/web staging runs v9, as desired, since 10:50 UTC (20s ago).\nNo reading from a runtime yet.\n"},
		{line: "status shop/web", want: header + "web\tstaging\tCONVERGED\tv9\tv9\t20s\t\nweb\tprod\tPAUSED\tv8\tv9\t20s\t\n\nRELEASE\tstaging\tprod\tWAITS FOR\nweb v9\tsucceeded\tpending\tprod is paused\n"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			c := newConsole(t, &fakeAPI{statuses: two, answer: tt.answer, refuse: tt.refuse})
			if tt.input != "" {
				c.CanPrompt, c.In = true, strings.NewReader(tt.input)
			}
			code, output := c.run(t, tt.line)
			require.Equal(t, tt.want, output)
			require.Equal(t, tt.code, code)
		})
	}
}

// header is the first line of a piped status.
const header = "SERVICE\tCHANNEL\tSTATUS\tCURRENT\tTARGET\tSINCE\tWAITS FOR\n"

// A service that does not answer hides no other service.
func TestStatusShowsTheServicesThatAnswered(t *testing.T) {
	web := webStatus("staging CONVERGED v9 v9 succeeded, prod CONVERGED v9 v9 succeeded")
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{
		"service/shop/api": {fmt.Errorf("%w for service/shop/api", connection.ErrNoWorker)}, "service/shop/web": {web},
	}})
	code, output := c.run(t, "status shop")
	require.Equal(t, header+"web\tstaging\tCONVERGED\tv9\tv9\t20s\t\nweb\tprod\tCONVERGED\tv9\tv9\t20s\t\n! converge: no worker answers for service/shop/api\n", output)
	require.Equal(t, outcome.Error, code)
}

// Every running object, healthy or not, is listed with a useful reference for the user, and its text contains no control characters
// (C9).
func TestStatusListsObjects_C9_G6(t *testing.T) {
	s := webStatus("staging CONVERGED v9 v9 succeeded, prod CONVERGED v9 v9 succeeded")
	s.Channels[0].Objects = []entities.Object{{
		Name: "web", Type: "Function", Status: entities.ObjectSucceeded, Message: "fine\x1b[2J",
		Versions: []entities.ObjectVersion{{Version: "v9", Active: true, Replicas: 2, AvailableReplicas: 2}},
		Links:    []entities.Link{{Type: "DETAIL", URL: "https://console.shop.dev/web", Name: "web"}, {Type: "LOG", URL: "https://logs.shop.dev/web", Name: "web"}},
		Events:   []entities.Event{{Timestamp: at(5), Message: "started\nPASS"}},
	}}
	api := func() *fakeAPI { return &fakeAPI{statuses: map[string][]any{"service/shop/web": {s}}} }
	objects := ` SUCCEEDED Function/web v9 2/2: fine\x1b[2J
      10:50:05 UTC started PASS
      web (details): https://console.shop.dev/web
      web (log): https://logs.shop.dev/web
`
	_, output := newConsole(t, api()).run(t, "status shop/web --objects")
	require.Equal(t, header+"web\tstaging\tCONVERGED\tv9\tv9\t20s\t\nweb\tprod\tCONVERGED\tv9\tv9\t20s\t\n\nshop/web staging\n"+objects+"\nshop/web prod: no objects\n", output)
}

// An error that all services share is not printed a thousand times.
func TestErrorsOfManyAreCounted(t *testing.T) {
	statuses := map[string][]any{}
	for i := range 6 {
		statuses[fmt.Sprintf("service/shop/s%d", i)] = []any{fmt.Errorf("%w for s%d", connection.ErrNoWorker, i)}
	}
	code, output := newConsole(t, &fakeAPI{statuses: statuses}).run(t, "status shop")
	require.Equal(t, `! converge: no worker answers for s0
! converge: no worker answers for s1
! converge: no worker answers for s2
! converge: and 3 more
`, output)
	require.Equal(t, outcome.Error, code)
}

// When piped, watching appends only the changes.
func TestStatusWatchPiped(t *testing.T) {
	moving := webStatus("staging CONVERGING v8 v9 in progress")
	moving.Channels[0].Reasons = []protocol.Reason{{Text: "1 of 2 replicas"}}
	done := webStatus("staging CONVERGED v9 v9 succeeded")
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {moving, moving, fmt.Errorf("%w: reset", connection.ErrLost), done}}})
	c.stopAt = 10 * time.Second
	code, output := c.run(t, "status shop/web --watch")
	require.Equal(t, header+`web	staging	CONVERGING	v8	v9		1 of 2 replicas
RELEASE	staging	WAITS FOR
web v9	in progress	
web	staging	CONVERGED	v9	v9		
! connection lost: reset; retrying
`, output)
	require.Equal(t, exitInterrupted, code)
}

// Times are shown in the time zone of the user.
func TestExplainInLocalTime(t *testing.T) {
	s := webStatus("staging CONVERGED v9 v9 succeeded", "2 staging CONVERGED at v9")
	s.Channels[0].Objects = []entities.Object{{Name: "web", Type: "process", Status: entities.ObjectSucceeded}}
	s.Channels[0].ObservedAt = at(10)
	c := newConsole(t, &fakeAPI{statuses: map[string][]any{"service/shop/web": {s}}})
	c.Now = func() time.Time { return now.In(time.FixedZone("CET", 3600)) }
	_, output := c.run(t, "explain shop/web staging")
	require.Equal(t, `shop/web staging runs v9, as desired, since 11:50 CET (20s ago).
 SUCCEEDED process/web
What happened (times are CET):
 11:50:02 staging  CONVERGED at v9
Last reading from the runtime 11:50:10 CET (10s ago).
`, output)
}

// A command that timed out is reported as such, not with an unusual exit code.
func TestLogsOfATimedOutCommand_C6(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	head := func(e store.LogEntry) string {
		e.Kind, e.At, e.Duration = store.LogApply, at, 2*time.Second
		return logLines(read.Log{LogEntry: e}, false, at.Add(time.Minute))[0]
	}
	require.Equal(t, "2026-11-23 09:00:00 UTC apply: timed out after 2s (1m ago)", head(store.LogEntry{ExitCode: -1, TimedOut: true}))
	require.Equal(t, "2026-11-23 09:00:00 UTC apply: no exit code after 2s (1m ago)", head(store.LogEntry{ExitCode: -1}))
	require.Equal(t, "2026-11-23 09:00:00 UTC apply: exit 3 after 2s (1m ago)", head(store.LogEntry{ExitCode: 3}))
}
