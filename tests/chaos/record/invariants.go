package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Finding is what a check compared, and what it found.
type Finding struct {
	Check      string
	Compared   int      // of what Of names
	Of         string   // such as "applies"
	Violations []string // of the invariant
	Notes      []string // what docs/operating.md says may happen
}

// String is a line for people, and one for each violation and note.
func (f Finding) String() string {
	verdict := "ok"
	if len(f.Violations) > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS", len(f.Violations))
	}
	lines := []string{fmt.Sprintf("%-12s %-14s %d %s", f.Check, verdict, f.Compared, f.Of)}
	for _, v := range f.Violations {
		lines = append(lines, "  ! "+v)
	}
	for _, n := range f.Notes {
		lines = append(lines, "  - "+n)
	}
	return strings.Join(lines, "\n")
}

func (f *Finding) violation(format string, args ...any) {
	f.Violations = append(f.Violations, fmt.Sprintf(format, args...))
}

// checks in the order in which they are reported.
var checks = [...]struct {
	name, of string
	run      func(*Record, *Finding)
}{
	{"alone", "applies", checkAlone},              // no two applies of an instance at a time
	{"forward", "applies", checkForward},          // nothing goes backwards but by a rollback, a pin or a retry
	{"decided", "applies", checkDecided},          // what is applied was decided
	{"gates", "applies", checkGates},              // in production only what was let in, after staging
	{"answered", "verbs", checkAnswered},          // each verb is answered in the end
	{"kept", "verbs", checkKept},                  // what was answered is in history exactly once, what was refused is not
	{"hostile", "attacks", checkHostile},          // what a hostile client sends is not answered as if it were right, and is in no history
	{"published", "publications", checkPublished}, // what was published is an incarnation exactly once
	{"numbered", "lines of history", checkNumbered},
	{"paused", "pauses", checkPaused}, // nothing is decided for what is paused
	{"pinned", "pins", checkPinned},   // nothing but the pin is decided for what is pinned
	{"managed", "services", checkManaged},
	{"rest", "channels", checkRest},   // what is there is what was decided last
	{"final", "channels", checkFinal}, // a last release arrives everywhere
}

// Judge runs all checks.
func Judge(r *Record) []Finding {
	out := make([]Finding, len(checks))
	for n, c := range checks {
		out[n] = Finding{Check: c.name, Of: c.of}
		c.run(r, &out[n])
	}
	return out
}

// HeartbeatTimeout is after how long without a heartbeat another worker takes an apply over, less the time between two of
// them: a freeze that is shorter changes nothing.
const HeartbeatTimeout = 8 * time.Second

// apply is a start with its end, if it came to one.
type apply struct {
	Line
	end *Line
}

// applies are the starts, in the order of the log, each with its end.
func (r *Record) applies() []apply {
	var out []apply
	open := map[string]int{} // instance and process → index
	for n := range r.Applies {
		l := &r.Applies[n]
		key := fmt.Sprint(l.Instance(), " ", l.PID)
		if l.Event == Start {
			open[key] = len(out)
			out = append(out, apply{Line: *l})
		} else if at, ok := open[key]; ok {
			out[at].end = l
			delete(open, key)
		}
	}
	return out
}

func checkAlone(r *Record, f *Finding) {
	running := map[string][]apply{} // by instance: those that began before
	for _, a := range r.applies() {
		f.Compared++
		found := false
		for _, b := range running[a.Instance()] {
			ended := b.end != nil && !b.end.At.After(a.At)
			if ended || b.end == nil && a.Beside != b.PID { // it was killed: had it been alive, the lock would have said so
				continue
			}
			found = true
			text := fmt.Sprintf("%s: %s began at %s beside %s of process %d", a.Instance(), a.Version, clock(a.At), b.Version, b.PID)
			if freeze, ok := r.frozen(b, a.At); ok {
				f.Notes = append(f.Notes, text+", whose worker was frozen: "+freeze.String())
			} else {
				f.violation("%s", text)
			}
		}
		if a.Beside != 0 && !found {
			f.violation("%s: %s began at %s while process %d had the lock", a.Instance(), a.Version, clock(a.At), a.Beside)
		}
		running[a.Instance()] = append(running[a.Instance()], a)
	}
}

// frozen tells whether the worker that runs an apply was frozen for long enough to lose it, then or just before.
func (r *Record) frozen(a apply, at time.Time) (Fault, bool) {
	for _, f := range r.Faults {
		long := f.Ended.Sub(f.Began) >= HeartbeatTimeout
		if f.Kind == Freeze && f.PID == a.Worker && long && at.After(f.Began) && at.Before(f.Ended.Add(time.Second)) {
			return f, true
		}
	}
	return Fault{}, false
}

// decision is a line of history that set a target.
type decision struct {
	entities.AuditLine
	to    string // full version
	asked bool   // by a rollback, by a pin or its end, or by a person
}

// decisions for a channel, in order.
func (r *Record) decisions(service, channel string) []decision {
	return decisionsIn(r.History[service], channel)
}

func decisionsIn(history []entities.AuditLine, channel string) []decision {
	var out []decision
	pinned := false
	for _, l := range history {
		if l.Channel != channel {
			continue
		}
		switch l.Kind {
		case entities.EventPin:
			pinned = true
		case entities.EventTarget:
			out = append(out, decision{l, l.Version, pinned || l.Who != nil})
			pinned = false
		case entities.EventRollback: // its version is the one that was left
			out = append(out, decision{l, l.Text[strings.LastIndex(l.Text, " ")+1:], true})
			pinned = false
		}
	}
	return out
}

// checkForward: a decision takes a channel back only when it was asked for, and applies follow the decisions in their order:
// what was decided earlier is not applied again once what was decided later was. (One that is under way meanwhile ends.)
func checkForward(r *Record, f *Finding) {
	for _, service := range entities.SortedKeys(r.History) {
		for _, channel := range []string{Staging, Production} {
			before := decision{}
			for _, d := range r.decisions(service, channel) {
				if Before(d.to, before.to) && !d.asked {
					f.violation("%s/%s got the target %s after %s at %s, and nobody asked for it", service, channel, d.to, before.to, clock(d.At))
				}
				before = d
			}
		}
	}
	newest := map[string]int{} // by instance: the newest decision that was applied
	for _, a := range r.applies() {
		f.Compared++
		of := -1
		decisions := r.decisions(a.Service, a.Channel)
		for n, d := range decisions {
			if d.to == a.Version && !d.At.After(a.At) {
				of = n
			}
		}
		if last := newest[a.Instance()]; of >= 0 && of < last {
			f.violation("%s: %s was applied at %s, after %s, which was decided later", a.Instance(), a.Version, clock(a.At), decisions[last].to)
		}
		newest[a.Instance()] = max(newest[a.Instance()], of)
	}
}

func checkDecided(r *Record, f *Finding) {
	for _, a := range r.applies() {
		f.Compared++
		decided := slices.ContainsFunc(r.decisions(a.Service, a.Channel), func(d decision) bool {
			return d.to == a.Version && !d.At.After(a.At)
		})
		if !decided {
			f.violation("%s: %s was applied at %s, and history has no such target", a.Instance(), a.Version, clock(a.At))
		}
	}
}

func checkGates(r *Record, f *Finding) {
	for _, a := range r.applies() {
		if a.Channel != Production {
			continue
		}
		f.Compared++
		var approved, staged bool
		for _, l := range r.History[a.Service] {
			if l.Version != a.Version || l.At.After(a.At) {
				continue
			}
			switch l.Kind {
			case entities.EventApproval:
				approved = approved || strings.HasPrefix(l.Text, "approved")
			case entities.EventBypass:
				approved = approved || l.Channel == Production && l.Text == "bypassed "+Approval
			case entities.EventSucceeded:
				staged = staged || l.Channel == Staging
			}
		}
		if !approved {
			f.violation("%s: %s was applied at %s without an approval", a.Instance(), a.Version, clock(a.At))
		}
		if !staged {
			f.violation("%s: %s was applied at %s before it had succeeded in staging", a.Instance(), a.Version, clock(a.At))
		}
	}
}

// checkHostile looks at what was answered, and at what history says; that no gate was passed, and that nobody acted whom nobody asked
// to, in the name of another either, is for the checks of gates and of what is kept.
func checkHostile(r *Record, f *Finding) {
	for _, a := range r.Attacks {
		if a.Sent {
			f.Compared++
		}
		if a.Answered != "" {
			f.violation("%s was answered at %s: %s", a.What, clock(a.At), a.Answered)
		}
	}
	for _, service := range entities.SortedKeys(r.History) {
		for _, l := range r.History[service] {
			if len(r.Attacks) > 0 && l.Who == nil && strings.Contains(l.Text+l.Reason, "mallory") {
				f.violation("%s: history tells of a hostile client at %s: %s", service, clock(l.At), l.Text)
			}
		}
	}
}

// Approval is the condition of production that a person may bypass.
const Approval = "approval/" + Production

func checkAnswered(r *Record, f *Finding) {
	released := 0
	for _, a := range r.Acts {
		f.Compared++
		if a.Outcome == Unanswered {
			f.violation("%s was not answered from %s to %s: %s", a, clock(a.Sent), clock(a.Done), a.Message)
		}
		if a.Verb == protocol.Release {
			released++
			if a.Outcome == Refused {
				f.violation("%s was refused: %s", a, a.Message)
			}
		}
	}
	if released < r.Releases {
		f.violation("%d releases were asked for, and %d were made", r.Releases, released)
	}
}

// traces are the kinds of history line by which a verb is known; none: it leaves no trace.
var traces = map[string][]string{
	protocol.Release:  {entities.EventRelease},
	protocol.Approve:  {entities.EventApproval},
	protocol.Reject:   {entities.EventApproval},
	protocol.Bypass:   {entities.EventBypass},
	protocol.Pause:    {entities.EventPause},
	protocol.Resume:   {entities.EventPause},
	protocol.Pin:      {entities.EventPin},
	protocol.Unpin:    {entities.EventPin},
	protocol.Cancel:   {entities.EventCancel},
	protocol.Retry:    {entities.EventRetry, entities.EventTarget},
	protocol.Rollback: {entities.EventRollback},
}

// accounts are what history tells of everybody: service and name → kind, channel and version of a line → how often.
type accounts map[string]map[string]int

func (r *Record) accounts() accounts {
	out := accounts{}
	for _, service := range entities.SortedKeys(r.History) {
		for _, l := range r.History[service] {
			if l.Who == nil || l.Kind == entities.EventRules { // what a publication loosens names who published it
				continue
			}
			who := service + " " + l.Who.Name
			if out[who] == nil {
				out[who] = map[string]int{}
			}
			out[who][l.Kind+" "+l.Channel+" "+l.Version]++
		}
	}
	return out
}

// take is what history tells of somebody, who is accounted for by that.
func (t accounts) take(service string, a Act) map[string]int {
	who := service + " " + a.By()
	defer delete(t, who)
	return t[who]
}

func checkKept(r *Record, f *Finding) {
	lines := r.accounts()
	for _, a := range r.Acts {
		switch {
		case a.Verb == protocol.Publish: // each service may have released its new configuration
			for _, service := range entities.SortedKeys(r.History) {
				if found := lines.take(service, a); len(found) > 1 {
					f.violation("%s had more than one effect on %s: %v", a, service, entities.SortedKeys(found))
				} else {
					f.once(a, found)
				}
			}
		case a.Service != "" && traces[a.Verb] != nil:
			f.Compared++
			found := lines.take(a.Service, a)
			f.once(a, found)
			f.kept(a, found)
		}
	}
	for _, who := range entities.SortedKeys(lines) {
		f.violation("%s did what nobody asked for: %v", who, entities.SortedKeys(lines[who]))
	}
}

// once: no line is there twice.
func (f *Finding) once(a Act, found map[string]int) {
	for _, what := range entities.SortedKeys(found) {
		if found[what] > 1 {
			f.violation("%s is in history %d times: %s", a, found[what], what)
		}
	}
}

// kept: what was answered is there, unless there was nothing to do; what was refused is not.
func (f *Finding) kept(a Act, found map[string]int) {
	there := false
	for what := range found {
		kind, _, _ := strings.Cut(what, " ")
		there = there || slices.Contains(traces[a.Verb], kind)
	}
	switch {
	case a.Outcome == Answered && !there && !strings.Contains(a.Message, " already "):
		f.violation("%s was answered at %s (%s), and is not in history", a, clock(a.Done), cmp.Or(a.Message, "by a signal"))
	case a.Outcome == Refused && len(found) > 0:
		f.violation("%s was refused (%s), and is in history", a, a.Message)
	}
}

func checkPublished(r *Record, f *Finding) {
	times := map[string][]int64{}
	for _, number := range slices.Sorted(maps.Keys(r.Incarnations)) {
		times[r.Incarnations[number]] = append(times[r.Incarnations[number]], number)
	}
	for _, a := range r.Acts {
		if a.Verb != protocol.Publish {
			continue
		}
		f.Compared++
		if numbers := times[a.By()]; a.Outcome == Answered && !slices.Equal(numbers, []int64{a.Incarnation}) {
			f.violation("%s was answered as incarnation %d, and is %v", a, a.Incarnation, numbers)
		}
	}
}

func checkNumbered(r *Record, f *Finding) {
	for _, service := range entities.SortedKeys(r.History) {
		for n, l := range r.History[service] {
			f.Compared++
			if l.N != int64(n+1) {
				f.violation("%s: line %d of history has the number %d: %s %s", service, n+1, l.N, l.Kind, l.Text)
				break
			}
		}
	}
}

// held walks through the history of each service by number: begins and ends name what holds a channel from then on, and
// every decision while it is held is judged.
func (r *Record) held(kind string, judge func(service string, by entities.AuditLine, d decision)) (holds int) {
	for _, service := range entities.SortedKeys(r.History) {
		for _, channel := range []string{Staging, Production} {
			decisions := r.decisions(service, channel)
			var by *entities.AuditLine
			for _, l := range r.History[service] {
				mine := l.Channel == channel || l.Channel == "" && kind == entities.EventPause
				if l.Kind == kind && mine {
					by = nil
					if l.Text == "paused" || strings.HasPrefix(l.Text, "pinned") {
						by, holds = &l, holds+1
					}
				}
				if at := slices.IndexFunc(decisions, func(d decision) bool { return d.N == l.N }); at >= 0 && by != nil {
					judge(service, *by, decisions[at])
				}
			}
		}
	}
	return holds
}

func checkPaused(r *Record, f *Finding) {
	f.Compared = r.held(entities.EventPause, func(service string, by entities.AuditLine, d decision) {
		f.violation("%s/%s was paused by %s at %s, and got the target %s at %s",
			service, d.Channel, by.Who.Name, clock(by.At), d.to, clock(d.At))
	})
}

func checkPinned(r *Record, f *Finding) {
	f.Compared = r.held(entities.EventPin, func(service string, by entities.AuditLine, d decision) {
		if d.to != by.Version {
			f.violation("%s/%s was pinned to %s by %s, and got the target %s at %s",
				service, d.Channel, by.Version, by.Who.Name, d.to, clock(d.At))
		}
	})
}

// managedWithin is how soon a service is managed again once nothing goes wrong any more.
const managedWithin = time.Minute

func checkManaged(r *Record, f *Finding) {
	f.Compared = len(r.History)
	for _, g := range r.Gaps {
		if quiet := r.Quiet(g); quiet > managedWithin {
			how := "did not answer"
			if g.Gone {
				how = "was gone"
			}
			f.violation("%s %s from %s for %s, %s of it without any fault", g.Service, how, clock(g.From),
				g.To.Sub(g.From).Round(time.Second), quiet.Round(time.Second))
		}
	}
}

// Quiet is the longest time within a gap in which nothing was wrong.
func (r *Record) Quiet(g Gap) time.Duration {
	faults := slices.SortedFunc(slices.Values(r.Faults), func(a, b Fault) int { return a.Began.Compare(b.Began) })
	since, longest := g.From, time.Duration(0)
	for _, f := range faults {
		if f.Ended.Before(since) || f.Began.After(g.To) {
			continue
		}
		longest = max(longest, f.Began.Sub(since))
		since = f.Ended
	}
	return max(longest, g.To.Sub(since))
}

func checkRest(r *Record, f *Finding) {
	for _, text := range r.Unrested {
		f.violation("%s", text)
	}
	for _, service := range entities.SortedKeys(r.Rest) {
		for _, c := range r.Rest[service] {
			f.Compared++
			if why := r.notAtRest(service, c); why != "" {
				f.violation("%s/%s is %s (target %q, current %q, site %q): %s", service, c.Channel, c.Status, c.Target, c.Current, c.Site, why)
			}
		}
	}
}

// notAtRest says what of a channel is not as history has it, or "".
func (r *Record) notAtRest(service string, c Rest) string {
	last, outcome := r.lastWord(service, c.Channel)
	switch failed := c.Status == string(entities.StatusFailed) || c.Status == string(entities.StatusFailedRollback); {
	case c.Target != last.to && outcome.Text != "unchanged": // which leaves the name of what is there
		return fmt.Sprintf("the last target in history is %q", last.to)
	case failed:
		return unless(outcome.Kind == entities.EventFailed, "history does not say that it failed")
	case c.Current != c.Target, c.Site != c.Target:
		return "what is there is not the target"
	case c.Status == string(entities.StatusConverged):
		return unless(last.to == "" || outcome.Kind == entities.EventSucceeded, "history does not say that it converged")
	case c.Status == string(entities.StatusRolledBack):
		return unless(last.Kind == entities.EventRollback, "the last decision was no rollback")
	}
	return ""
}

func unless(so bool, why string) string {
	if so {
		return ""
	}
	return why
}

// lastWord is the last decision for a channel before the last release, and how it went.
func (r *Record) lastWord(service, channel string) (last decision, outcome entities.AuditLine) {
	history := r.History[service]
	if at := slices.IndexFunc(history, func(l entities.AuditLine) bool {
		return l.Kind == entities.EventRelease && l.Version == r.Last[service]
	}); at >= 0 {
		history = history[:at]
	}
	for _, d := range decisionsIn(history, channel) {
		last = d
	}
	for _, l := range history {
		if l.Channel == channel && l.N > last.N && (l.Kind == entities.EventSucceeded || l.Kind == entities.EventFailed) {
			outcome = l
		}
	}
	return last, outcome
}

func checkFinal(r *Record, f *Finding) {
	for _, service := range entities.SortedKeys(r.Last) {
		last := r.Last[service]
		for _, c := range r.Final[service] {
			f.Compared++
			if want := (Rest{c.Channel, string(entities.StatusConverged), last, last, last}); c != want {
				f.violation("%s/%s is %s (target %q, current %q, site %q) and should be CONVERGED at %s",
					service, c.Channel, c.Status, c.Target, c.Current, c.Site, last)
			}
		}
		if len(r.Final[service]) == 0 {
			f.violation("%s did not answer in the end", service)
		}
	}
}
