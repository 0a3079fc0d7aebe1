package record

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func at(seconds float64) time.Time {
	return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// told is a history line from "who kind channel version text", where - is nothing.
func told(seconds float64, words string) entities.AuditEntry {
	w := strings.SplitN(words, " ", 5)
	for i := range w {
		w[i] = strings.Trim(w[i], "-")
	}
	l := entities.AuditEntry{At: at(seconds), Kind: w[1], Channel: w[2], Version: w[3], Text: w[4]}
	if w[0] != "" {
		l.Who = &entities.Who{Name: w[0], Proven: true}
	}
	return l
}

// applied is an apply of s1 that took half a second, in a worker of its own process.
func applied(seconds float64, channel, version string, pid int) []Line {
	l := Line{Event: Start, Service: "s1", Channel: channel, Version: version, Attempt: 1, PID: pid, Worker: 900, At: at(seconds)}
	end := l
	end.Event, end.OK, end.At = End, true, at(seconds+0.5)
	return []Line{l, end}
}

func act(n int, verb, channel, version, outcome string) Act {
	return Act{N: n, Verb: verb, Service: "s1", Channel: channel, Version: version, Outcome: outcome, Sent: at(0), Done: at(1), Tries: 1}
}

// good is a short run without a violation: v1 goes everywhere, v2 is rolled back from production, which is pinned meanwhile,
// v3 is rejected, and v9 is the last.
func good() *Record {
	history := []entities.AuditEntry{
		told(1, "c1 release - v1 release of v1"),
		told(1, "- target staging v1 target v1"),
		told(2, "- succeeded staging v1 converged at v1"),
		told(2, "c2 approval - v1 approved production"),
		told(2, "- target production v1 target v1"),
		told(3, "- succeeded production v1 converged at v1"),
		told(4, "c3 release - v2 release of v2"),
		told(4, "- target staging v2 target v1 → v2"),
		told(5, "- succeeded staging v2 converged at v2"),
		told(5, "c4 bypass production v2 bypassed approval/production"),
		told(5, "- target production v2 target v1 → v2"),
		told(6, "- succeeded production v2 converged at v2"),
		told(7, "c5 pause production - paused"),
		told(8, "c6 pause production - resumed"),
		told(9, "c7 rollback production v2 rolled back from v2 to v1"),
		told(10, "- succeeded production v1 rolled back to v1"),
		told(11, "c8 pin production v1 pinned to v1"),
		told(12, "c9 pin production v1 unpinned from v1"),
		told(13, "c10 release - v3 release of v3"),
		told(13, "c11 rejection production v3 rejected production"),
		told(13, "- target staging v3 target v2 → v3"),
		told(14, "- succeeded staging v3 converged at v3"),
		told(20, "c20 release - v9 release of v9"),
		told(20, "c21 approval - v9 approved production"),
		told(20, "- target staging v9 target v3 → v9"),
		told(21, "- succeeded staging v9 converged at v9"),
		told(21, "- target production v9 target v1 → v9"),
		told(22, "- succeeded production v9 converged at v9"),
	}
	for n := range history {
		history[n].N = int64(n + 1)
	}
	published := Act{N: 13, Verb: protocol.Publish, Outcome: Answered, Incarnation: 2}
	wider := []Act{{N: 15, Verb: protocol.Pause, Outcome: Answered}, {N: 16, Verb: protocol.Resume, Outcome: Answered}}
	end := func(target string) []Rest {
		return []Rest{{Staging, "CONVERGED", target, target, target}, {Production, "CONVERGED", target, target, target}}
	}
	return &Record{
		Releases: 3,
		Applies: slices.Concat(
			applied(1, Staging, "v1", 1), applied(2, Production, "v1", 2), applied(4, Staging, "v2", 3), applied(5, Production, "v2", 4),
			applied(9, Production, "v1", 5), applied(13, Staging, "v3", 6), applied(20, Staging, "v9", 7), applied(21, Production, "v9", 8)),
		Acts: append(wider,
			act(1, protocol.Release, "", "v1", Answered), act(2, protocol.Approve, "", "v1", Answered),
			act(3, protocol.Release, "", "v2", Answered), act(4, protocol.Bypass, "", "v2", Answered),
			act(5, protocol.Pause, Production, "", Answered), act(6, protocol.Resume, Production, "", Answered),
			act(7, protocol.Rollback, Production, "", Answered),
			act(8, protocol.Pin, Production, "v1", Answered), act(9, protocol.Unpin, Production, "", Answered),
			act(10, protocol.Release, "", "v3", Answered), act(11, protocol.Reject, "", "v3", Answered),
			act(12, protocol.Approve, "", "v3", Refused), published,
			act(20, protocol.Release, "", "v9", Answered), act(21, protocol.Approve, "", "v9", Answered)),
		Faults: []Fault{
			{Kind: Kill, Target: "worker-1", PID: 901, Began: at(3), Ended: at(4)},
			{Kind: Freeze, Target: "worker-2", PID: 900, Began: at(5), Ended: at(15)},
		},
		History:      map[string][]entities.AuditEntry{"s1": history},
		Proven:       true,
		Incarnations: map[int64]string{1: First, 2: "c13"},
		Application: []entities.AuditEntry{
			{N: 1, At: at(0), Kind: entities.EventPublish, Who: &entities.Who{Name: First}, Text: "incarnation 1"},
			told(13, "c13 publish - - incarnation 2"), told(14, "c15 pause - - shop paused"), told(15, "c16 pause - - shop resumed"),
			told(15, "- restart - - shop continues from its checkpoint"),
		},
		Rest: map[string][]Rest{"s1": {
			{Staging, "CONVERGED", "v3", "v3", "v3"}, {Production, "ROLLED_BACK", "v1", "v1", "v1"},
		}},
		RestAt:  map[string]int64{"s1": 22},
		Final:   map[string][]Rest{"s1": end("v9")},
		Last:    map[string]string{"s1": "v9"},
		Attacks: []Attack{{What: "mallory of service/shop/s1: signal", At: at(2), Sent: true}, {What: "one that was cut off", At: at(3)}},
		Gaps:    []Gap{{Service: "s1", From: at(3), To: at(12)}},
	}
}

func TestGoodRunHasNoViolations(t *testing.T) {
	var lines []string
	for _, f := range Judge(good()) {
		lines = append(lines, f.String())
	}
	require.Equal(t, `alone        ok             8 applies
forward      ok             8 applies
decided      ok             8 applies
gates        ok             4 applies
answered     ok             17 verbs
kept         ok             14 verbs
hostile      ok             1 attacks
proven       ok             17 acts in history
published    ok             1 publications
numbered     ok             28 lines of history
paused       ok             1 pauses
pinned       ok             1 pins
managed      ok             1 services
cancelled    ok             0 cancellations
rest         ok             2 channels
final        ok             2 channels`, strings.Join(lines, "\n"))
}

// line of the history that has this text, for who plants something.
func (r *Record) line(text string) *entities.AuditEntry {
	at := slices.IndexFunc(r.History["s1"], func(l entities.AuditEntry) bool { return l.Text == text })
	return &r.History["s1"][at]
}

// without takes a line out of history, and counts anew.
func (r *Record) without(text string) {
	r.History["s1"] = slices.DeleteFunc(r.History["s1"], func(l entities.AuditEntry) bool { return l.Text == text })
	r.number()
}

// number counts the lines of history anew; the service was at rest before the last release.
func (r *Record) number() {
	for n := range r.History["s1"] {
		l := &r.History["s1"][n]
		if l.N = int64(n + 1); l.Text == "release of v9" {
			r.RestAt["s1"] = l.N - 1
		}
	}
}

// with puts a line behind another one, and counts anew.
func (r *Record) with(after string, l entities.AuditEntry) {
	at := slices.IndexFunc(r.History["s1"], func(l entities.AuditEntry) bool { return l.Text == after })
	r.History["s1"] = slices.Insert(r.History["s1"], at+1, l)
	r.number()
}

// Each check finds what it is for, and says which it was; no other one has anything to say of it.
func TestEachCheckFindsWhatIsPlanted(t *testing.T) {
	for _, c := range []struct {
		check, want string
		plant       func(r *Record)
	}{
		{"alone", "s1/staging: v2 began at 10:00:04.000 beside v1 of process 1", func(r *Record) {
			r.Applies = slices.DeleteFunc(r.Applies, func(l Line) bool { return l.PID == 1 && l.Event == End })
			r.Applies[slices.IndexFunc(r.Applies, func(l Line) bool { return l.PID == 3 })].Beside = 1
			r.Faults = nil
		}},
		{"alone", "s1/staging: v2 began at 10:00:04.000 beside v1 of process 1", func(r *Record) { // it ended later
			r.Applies[1].At = at(4.2)
		}},
		{"alone", "s1/staging: v2 began at 10:00:04.000 while process 1 had the lock", func(r *Record) {
			r.Applies[slices.IndexFunc(r.Applies, func(l Line) bool { return l.PID == 3 })].Beside = 1
		}},
		{"forward", "s1/production: v2 was applied at 10:00:25.000, after v9, which was decided later", func(r *Record) {
			r.Applies = append(r.Applies, applied(25, Production, "v2", 9)...)
		}},
		{"forward", "s1/production got the target v1 after v2 at 10:00:09.000, and nobody asked for it", func(r *Record) {
			l := r.line("rolled back from v2 to v1") // a mere delivery decision brought the old one
			*l = told(9, "- target production v1 target v2 → v1")
			r.without("rolled back from v2 to v1")
			r.Acts = slices.DeleteFunc(r.Acts, func(a Act) bool { return a.Verb == protocol.Rollback })
			r.Rest["s1"][1].Status = "CONVERGED"
		}},
		{"decided", "s1/staging: v10 was applied at 10:00:25.000, and history has no such target", func(r *Record) {
			r.Applies = append(r.Applies, applied(25, Staging, "v10", 9)...)
		}},
		{"gates", "s1/production: v9 was applied at 10:00:21.000 without an approval", func(r *Record) {
			at := slices.IndexFunc(r.History["s1"], func(l entities.AuditEntry) bool { return l.Who != nil && l.Who.Name == "c21" })
			r.History["s1"][at].Text = "rejected production"
		}},
		{"gates", "s1/production: v2 was applied at 10:00:05.000 without an approval", func(r *Record) { // it came too late
			r.line("bypassed approval/production").At = at(5.1)
		}},
		{"gates", "s1/production: v2 was applied at 10:00:05.000 before it had succeeded in staging", func(r *Record) {
			r.line("converged at v2").At = at(5.1)
		}},
		{"answered", "c11 reject s1 v3 was not answered from 10:00:00.000 to 10:00:01.000: late", func(r *Record) {
			a := &r.Acts[slices.IndexFunc(r.Acts, func(a Act) bool { return a.N == 11 })]
			a.Outcome, a.Message = Unanswered, "late"
		}},
		{"answered", "5 releases were asked for, and 4 were made", func(r *Record) { r.Releases = 5 }},
		{"kept", "c5 pause s1 production was answered at 10:00:01.000 (by a signal), and is not in history", func(r *Record) {
			r.without("paused")
		}},
		{"kept", "c3 release s1 v2 is in history 2 times: release  v2", func(r *Record) {
			r.with("release of v2", told(4, "c3 release - v2 release of v2"))
		}},
		{"kept", "c12 approve s1 v3 was refused (), and is in history", func(r *Record) {
			r.with("rejected production", told(13, "c12 approval - v3 approved production"))
		}},
		{"kept", "c10 release s1 v3 has a line in history that it did not ask for: rollback production v2", func(r *Record) { // by a stolen token
			r.line("rolled back from v2 to v1").Who.Name = "c10"
			r.Acts = slices.DeleteFunc(r.Acts, func(a Act) bool { return a.Verb == protocol.Rollback })
		}},
		{"kept", "s1 mallory did what nobody asked for: [cancel  v3]", func(r *Record) {
			r.with("rejected production", told(13, "mallory cancel - v3 cancelled"))
		}},
		{"kept", "c13 publish had more than one effect on s1: [release  v3-i2 release  v3-i3]", func(r *Record) {
			r.with("rejected production", told(13, "c13 release - v3-i2 release of v3-i2"))
			r.with("rejected production", told(13, "c13 release - v3-i3 release of v3-i3"))
		}},
		{"hostile", "mallory of service/shop/s1: signal was answered at 10:00:02.000: done", func(r *Record) { r.Attacks[0].Answered = "done" }},
		{"hostile", "s1: history tells of a hostile client at 10:00:07.000: paused by mallory", func(r *Record) {
			r.with("paused", told(7, "- problem production - paused by mallory"))
		}},
		{"hostile", "the application: mallory did what nobody asked for at 10:00:16.000: shop paused", func(r *Record) {
			r.Application = append(r.Application, told(16, "mallory pause - - shop paused"))
		}},
		{"hostile", "the application: c13 did what nobody asked for at 10:00:16.000: shop pinned to incarnation 1", func(r *Record) {
			r.Application = append(r.Application, told(16, "c13 pin - - shop pinned to incarnation 1"))
		}},
		{"hostile", "the application: c1 did what nobody asked for at 10:00:16.000: shop paused", func(r *Record) { // it was asked of a service
			r.Application = append(r.Application, told(16, "c1 pause - - shop paused"))
		}},
		{"hostile", "incarnation 3 is by mallory, whom nobody asked to publish", func(r *Record) { r.Incarnations[3] = Mallory }},
		{"proven", "s1: c2 has not proven who it is, and did at 10:00:02.000: approved production", func(r *Record) {
			r.line("approved production").Who.Proven = false
		}},
		{"proven", "the application: c13 has not proven who it is, and did at 10:00:13.000: incarnation 2", func(r *Record) {
			r.Application[1].Who.Proven = false
		}},
		{"published", "c13 publish was answered as incarnation 2, and is [2 3]", func(r *Record) { r.Incarnations[3] = "c13" }},
		{"published", "c13 publish was answered as incarnation 2, and is []", func(r *Record) { delete(r.Incarnations, 2) }},
		{"numbered", "s1: line 14 of history has the number 15: pause resumed", func(r *Record) {
			for n := range r.History["s1"][13:] {
				r.History["s1"][13+n].N++
			}
			r.RestAt["s1"]++
		}},
		{"paused", "s1/production was paused by c5 at 10:00:07.000, and got the target v2 at 10:00:07.000", func(r *Record) {
			r.with("paused", told(7, "- target production v2 target v2"))
		}},
		{"pinned", "s1/production was pinned to v1 by c8, and got the target v2 at 10:00:11.500", func(r *Record) {
			r.with("pinned to v1", told(11.5, "- target production v2 target v1 → v2"))
			r.with("unpinned from v1", told(12, "- rollback production v2 rolled back from v2 to v1"))
		}},
		{"managed", "s1 did not answer from 10:00:03.000 for 1m30s, 1m18s of it without any fault", func(r *Record) { r.Gaps[0].To = at(93) }},
		{"managed", "s1 was gone from 10:00:03.000 for 1m30s, 1m18s of it without any fault", func(r *Record) {
			r.Gaps[0].To, r.Gaps[0].Gone = at(93), true
		}},
		{"cancelled", "s1/staging got the target v3 at 10:00:16.000, which was cancelled there at 10:00:15.000", func(r *Record) {
			r.without("converged at v3")
			r.with("target v2 → v3", told(15, "c14 cancel - v3 cancelled in staging"))
			r.with("cancelled in staging", told(16, "- target staging v3 target v3"))
			r.Acts = append(r.Acts, act(14, protocol.Cancel, "", "v3", Answered))
			r.Rest["s1"][0].Status = "CANCELLED"
		}},
		{"cancelled", "s1/staging: v3 was applied at 10:00:13.000, which was cancelled there at 10:00:03.500", func(r *Record) {
			r.without("converged at v3")
			r.with("target v2 → v3", told(3.5, "c14 cancel - v3 cancelled in staging, production"))
			r.Acts = append(r.Acts, act(14, protocol.Cancel, "", "v3", Answered))
			r.Rest["s1"][0].Status = "CANCELLED"
		}},
		{"rest", `s1/staging is CANCELLED (target "v3", current "v3", site "v3"): history does not say that it was cancelled`, func(r *Record) {
			r.Rest["s1"][0].Status = "CANCELLED"
		}},
		{"rest", `s1/production is PAUSED (target "v9", current "v1", site "v1"): the last target in history is "v1"`, func(r *Record) {
			r.Rest["s1"][1] = Rest{Production, "PAUSED", "v9", "v1", "v1"}
		}},
		{"rest", "s1 does not come to rest", func(r *Record) { r.Unrested = []string{"s1 does not come to rest"} }},
		{"rest", `s1/staging is CONVERGED (target "v3", current "v3", site "v2"): what is there is not the target`, func(r *Record) {
			r.Rest["s1"][0].Site = "v2"
		}},
		{"rest", `s1/staging is CONVERGED (target "v2", current "v2", site "v2"): the last target in history is "v3"`, func(r *Record) {
			r.Rest["s1"][0] = Rest{Staging, "CONVERGED", "v2", "v2", "v2"}
		}},
		{"rest", `s1/staging is ROLLED_BACK (target "v3", current "v3", site "v3"): the last decision was no rollback`, func(r *Record) {
			r.Rest["s1"][0].Status = "ROLLED_BACK"
		}},
		{"rest", `s1/staging is FAILED (target "v3", current "v3", site "v3"): history does not say that it failed`, func(r *Record) {
			r.Rest["s1"][0].Status = "FAILED"
		}},
		{"final", `s1/production is CONVERGING (target "v9", current "v9", site "v9") and should be CONVERGED at v9`, func(r *Record) {
			r.Final["s1"][1].Status = "CONVERGING"
		}},
		{"final", "s1 did not answer in the end", func(r *Record) { r.Final = nil }},
	} {
		t.Run(c.check+" "+c.want, func(t *testing.T) {
			r := good()
			c.plant(r)
			var found []string
			for _, f := range Judge(r) {
				for _, v := range f.Violations {
					found = append(found, f.Check+": "+v)
				}
			}
			require.Contains(t, found, c.check+": "+c.want)
			for _, other := range found {
				require.True(t, strings.HasPrefix(other, c.check+": "), "%s", other)
			}
		})
	}
}

// A channel is judged by what history had when it was seen at rest: what came between that and the last release is not held
// against it.
func TestRestIsJudgedByItsOwnMoment(t *testing.T) {
	r := good()
	r.with("converged at v3", told(15, "c30 rollback staging v3 rolled back from v3 to v2"))
	r.Acts = append(r.Acts, act(30, protocol.Rollback, Staging, "", Answered))
	rest := func() []string {
		for _, f := range Judge(r) {
			if f.Check == "rest" {
				return f.Violations
			}
		}
		return nil
	}
	require.Len(t, rest(), 1, "it was rolled back before it was at rest")
	r.RestAt["s1"] = 22 // before the rollback
	require.Empty(t, rest())
}

// What docs/workers.md says that a frozen worker may do is told apart from a violation.
func TestOverlapOfFrozenWorkerIsANote(t *testing.T) {
	r := good()
	r.Applies = slices.DeleteFunc(r.Applies, func(l Line) bool { return l.PID == 6 && l.Event == End })
	begun := applied(14.5, Staging, "v3", 60)
	begun[0].Beside, begun[0].Worker = 6, 902
	r.Applies = append(r.Applies, begun...)
	slices.SortStableFunc(r.Applies, func(a, b Line) int { return a.At.Compare(b.At) })
	f := Judge(r)[0]
	require.Empty(t, f.Violations)
	require.Equal(t, []string{
		"s1/staging: v3 began at 10:00:14.500 beside v3 of process 6, whose worker was frozen: freeze of worker-2 from 10:00:05.000 for 10s",
	}, f.Notes)
	r.Faults[1].Ended = at(9) // too short to be noticed
	require.Len(t, Judge(r)[0].Violations, 1)
}

func TestVersions(t *testing.T) {
	place, flavour := NumberOf("v7p-i3")
	require.Equal(t, [2]int{7, 3}, place)
	require.Equal(t, FailsInProduction, flavour)
	for _, c := range [][2]string{{"", "v1"}, {"v1", "v2"}, {"v9s", "v10"}, {"v7", "v7-i2"}, {"v7-i2", "v7-i10"}, {"v7l-i9", "v8"}} {
		require.True(t, Before(c[0], c[1]), "%v", c)
		require.False(t, Before(c[1], c[0]), "%v", c)
	}
	require.True(t, OutcomeOf("v7p-i3", Production, 5).Fails)
	require.False(t, OutcomeOf("v7p", Staging, 1).Fails)
	require.True(t, OutcomeOf("v7f", Staging, 1).Fails)
	require.False(t, OutcomeOf("v7f", Staging, 2).Fails)
}

// A line that a kill cut off is left out, and none after it.
func TestReadLeavesOutWhatWasCutOff(t *testing.T) {
	whole, err := json.Marshal(applied(1, Staging, "v1", 1)[0])
	require.NoError(t, err)
	lines, err := Read(strings.NewReader(`{"event":"sta` + "\n" + string(whole) + "\n"))
	require.NoError(t, err)
	require.Equal(t, applied(1, Staging, "v1", 1)[:1], lines)
}

// Where only the configuration of a release comes to production, under the version that is there, its gates are those of the release.
func TestGatesFollowTheRelease_B9(t *testing.T) {
	r := good()
	r.Applies = append(r.Applies, applied(31, Production, "v1-i3", 9)...)
	for _, l := range []entities.AuditEntry{
		told(30, "c30 approval - v10-i3 approved production"), told(30, "- succeeded staging v10-i3 converged at v10-i3"),
		told(30, "- target production v1-i3 target v1 → v1-i3"),
	} {
		l.Release = "19"
		r.History["s1"] = append(r.History["s1"], l)
	}
	gates := func() []string {
		f := Finding{}
		checkGates(r, &f)
		return f.Violations
	}
	require.Empty(t, gates())
	r.without("approved production")
	require.Contains(t, gates(), "s1/production: v1-i3 was applied at 10:00:31.000 without an approval")
}
