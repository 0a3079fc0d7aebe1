package record

import (
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file judges cancellations: what was cancelled in a channel before it had succeeded there does not come back by itself.

// cancellation is that a full version was cancelled in a channel, until a person released or retried it; zero: for good.
type cancellation struct {
	by, until entities.AuditEntry
}

// holds tells whether it was in force when a line was written.
func (c cancellation) holds(n int64) bool { return n > c.by.N && (c.until.N == 0 || n < c.until.N) }

// cancelledIn are the cancellations of what had not succeeded in a channel.
func (r *Record) cancelledIn(service, channel string) []cancellation {
	var out []cancellation
	succeeded := map[string]bool{}
	for _, l := range r.History[service] {
		switch l.Kind {
		case entities.EventSucceeded:
			succeeded[l.Version] = succeeded[l.Version] || l.Channel == channel
		case entities.EventCancel:
			if concerns(l, channel) && !succeeded[l.Version] {
				out = append(out, cancellation{by: l})
			}
		case entities.EventRelease, entities.EventRetry:
			for n := range out {
				elsewhere := l.Kind == entities.EventRetry && l.Channel != "" && l.Channel != channel
				if !elsewhere && out[n].by.Version == l.Version && out[n].until.N == 0 {
					out[n].until = l
				}
			}
		}
	}
	return out
}

// concerns tells whether a line says that something was cancelled in a channel: "cancelled in staging, production, kept in …".
func concerns(l entities.AuditEntry, channel string) bool {
	text, said := strings.CutPrefix(l.Text, "cancelled in ")
	text, _, _ = strings.Cut(text, ", kept in ")
	return said && slices.Contains(strings.Split(text, ", "), channel)
}

// ends is how soon after it was cancelled nothing of a release begins any more: what was on its way to a worker then is given
// up when that worker asks whether to begin.
const ends = HeartbeatTimeout + time.Second

func checkCancelled(r *Record, f *Finding) {
	for _, service := range entities.SortedKeys(r.History) {
		for _, channel := range []string{Staging, Production} {
			for _, c := range r.cancelledIn(service, channel) {
				f.Compared++
				r.comesBack(f, service, channel, c)
			}
		}
	}
}

// comesBack finds decisions and applies of what was cancelled. What a person pins is what that person wants.
func (r *Record) comesBack(f *Finding, service, channel string, c cancellation) {
	for _, d := range r.decisions(service, channel) {
		if d.to == c.by.Version && c.holds(d.N) && (!d.asked || d.Kind == entities.EventRollback) {
			f.violation("%s/%s got the target %s at %s, which was cancelled there at %s", service, channel, d.to, clock(d.At), clock(c.by.At))
		}
	}
	for _, a := range r.applies() {
		late := a.At.After(c.by.At.Add(ends)) && (c.until.N == 0 || a.At.Before(c.until.At))
		if a.Service == service && a.Channel == channel && a.Version == c.by.Version && late {
			f.violation("%s: %s was applied at %s, which was cancelled there at %s", a.Instance(), a.Version, clock(a.At), clock(c.by.At))
		}
	}
}

// wasCancelled tells whether history ends with a version cancelled in a channel.
func (r *Record) wasCancelled(service, channel, version string) bool {
	return slices.ContainsFunc(r.cancelledIn(service, channel), func(c cancellation) bool {
		return c.by.Version == version && c.until.N == 0
	})
}
