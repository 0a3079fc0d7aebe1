package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file has the list of all checks, and those that judge applies by what was decided.

// Finding is what a check compared, and what it found.
type Finding struct {
	Check      string
	Compared   int      // of what Of names
	Of         string   // such as "applies"
	Violations []string // of the invariant
	Notes      []string // what docs/workers.md says may happen
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
	{"proven", "acts in history", checkProven},    // who acts is proven, and somebody whom somebody asked to
	{"published", "publications", checkPublished}, // what was published is an incarnation exactly once
	{"numbered", "lines of history", checkNumbered},
	{"paused", "pauses", checkPaused}, // nothing is decided for what is paused
	{"pinned", "pins", checkPinned},   // nothing but the pin is decided for what is pinned
	{"managed", "services", checkManaged},
	{"cancelled", "cancellations", checkCancelled}, // what was cancelled before it had succeeded comes back by a person's word alone
	{"rest", "channels", checkRest},                // what is there is what was decided last
	{"final", "channels", checkFinal},              // a last release arrives everywhere
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
	entities.AuditEntry
	to    string // full version
	asked bool   // by a rollback, by a pin or its end, or by a person
}

// decisions for a channel, in order.
func (r *Record) decisions(service, channel string) []decision {
	return decisionsIn(r.History[service], channel)
}

func decisionsIn(history []entities.AuditEntry, channel string) []decision {
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

// brought are the releases that what is applied may be of.
func (r *Record) brought(a apply) map[string]bool {
	of := map[string]bool{}
	for _, d := range r.decisions(a.Service, a.Channel) {
		if d.to == a.Version && d.Release != "" && !d.At.After(a.At) {
			of[d.Release] = true
		}
	}
	return of
}

// letIn tells whether what is applied in production was approved, and had succeeded in staging, by then.
func (r *Record) letIn(a apply) (approved, staged bool) {
	brought := r.brought(a)
	for _, l := range r.History[a.Service] {
		if l.Version != a.Version && !brought[l.Release] || l.At.After(a.At) {
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
	return approved, staged
}

// checkGates follows the release that brought what is applied: under the version that was there, where only its configuration came.
func checkGates(r *Record, f *Finding) {
	for _, a := range r.applies() {
		if a.Channel != Production {
			continue
		}
		f.Compared++
		approved, staged := r.letIn(a)
		if !approved {
			f.violation("%s: %s was applied at %s without an approval", a.Instance(), a.Version, clock(a.At))
		}
		if !staged {
			f.violation("%s: %s was applied at %s before it had succeeded in staging", a.Instance(), a.Version, clock(a.At))
		}
	}
}

// Approval is the condition of production that a person may bypass.
const Approval = "approval/" + Production
