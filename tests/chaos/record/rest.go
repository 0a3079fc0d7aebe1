package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file judges what holds over time: pauses and pins, that services are managed, and what is there in the end.

// held walks through the history of each service by number: begins and ends name what holds a channel from then on, and
// every decision while it is held is judged.
func (r *Record) held(kind string, judge func(service string, by entities.AuditEntry, d decision)) (holds int) {
	for _, service := range entities.SortedKeys(r.History) {
		for _, channel := range []string{Staging, Production} {
			decisions := r.decisions(service, channel)
			var by *entities.AuditEntry
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
	f.Compared = r.held(entities.EventPause, func(service string, by entities.AuditEntry, d decision) {
		f.violation("%s/%s was paused by %s at %s, and got the target %s at %s",
			service, d.Channel, by.Who.Name, clock(by.At), d.to, clock(d.At))
	})
}

func checkPinned(r *Record, f *Finding) {
	f.Compared = r.held(entities.EventPin, func(service string, by entities.AuditEntry, d decision) {
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

// Unsettled says what of a channel is still to come, by its own reading alone, or "". Who takes readings waits as long as there is anything,
// and what remains then is a violation: a reading in the middle of a change is none.
func (c Rest) Unsettled() string {
	switch entities.Status(c.Status) {
	case entities.StatusFailed, entities.StatusFailedRollback, entities.StatusCancelled:
		return "" // what is there may be anything
	}
	return unless(c.Current == c.Target && c.Site == c.Target, "what is there is not the target")
}

// notAtRest says what of a channel is not as history has it, or "".
func (r *Record) notAtRest(service string, c Rest) string {
	last, outcome := r.lastWord(service, c.Channel)
	switch failed := c.Status == string(entities.StatusFailed) || c.Status == string(entities.StatusFailedRollback); {
	case c.Target != last.to && outcome.Text != "unchanged": // which leaves the name of what is there
		return fmt.Sprintf("the last target in history is %q", last.to)
	case c.Status == string(entities.StatusCancelled):
		return unless(r.wasCancelled(service, c.Channel, c.Target), "history does not say that it was cancelled")
	case failed:
		return unless(outcome.Kind == entities.EventFailed, "history does not say that it failed")
	case c.Unsettled() != "":
		return c.Unsettled()
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

// lastWord is the last decision for a channel that history had when the service was at rest, and how it went.
func (r *Record) lastWord(service, channel string) (last decision, outcome entities.AuditEntry) {
	history := r.History[service]
	if at := slices.IndexFunc(history, func(l entities.AuditEntry) bool { return l.N > r.RestAt[service] }); at >= 0 {
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
