package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file describes the gates between a release and a channel, and who approved or bypassed them: approvals, bypasses, extensions,
// checks, pins, leases and rollbacks (A13–A17, A21, A22).

const tailLines = 3 // of an extension's output

// Who names a user. Without proof by a token the name is marked, as in `converge history`.
func Who(w entities.Who) string {
	switch {
	case w.Name == "":
		return "no one"
	case w.Proven:
		return w.Name
	}
	return w.Name + "?"
}

// releaseIn returns the release that a channel is about: the one that waits for it, or else the newest with its target version.
func releaseIn(s protocol.Status, c protocol.ChannelStatus) (protocol.ReleaseStatus, bool) {
	for _, r := range s.Releases { // newest first
		if r.Version == c.Desired && r.Phases[c.Name] != "" {
			return r, true
		}
	}
	return protocol.ReleaseStatus{}, false
}

func (w *writer) release(c protocol.ChannelStatus) (protocol.ReleaseStatus, bool) {
	return releaseIn(w.status, c)
}

// conditionApprovals lists, under an approval, who gave it and their comments.
func (w *writer) conditionApprovals(c protocol.ChannelStatus, k protocol.ConditionStatus) {
	if r, known := w.release(c); known && k.Kind == approval {
		w.approvals(r, k.Subject)
	}
}

// queuedApprovals lists the approvals for a channel of a release that is still queued.
func (w *writer) queuedApprovals(c protocol.ChannelStatus, r protocol.ReleaseStatus) {
	for _, k := range c.Conditions {
		if k.Kind == approval {
			w.approvals(r, k.Subject)
		}
	}
}

func (w *writer) approvals(r protocol.ReleaseStatus, topic string) {
	for _, a := range r.Approvals {
		if a.Topic != topic {
			continue
		}
		verb := "approved"
		if a.Reject {
			verb = "rejected"
		}
		w.printf("         %s by %s at %s%s", verb, Who(a.Who), clock(a.At, w.now, false), prefixed(": ", oneLine(a.Comment, textLimit)))
	}
}

// extensionOutput shows the deadline of an extension, and the end of its output unless it succeeded. A shared extension ran for another
// channel; its condition names that channel.
func (w *writer) extensionOutput(c protocol.ChannelStatus, k protocol.ConditionStatus) {
	r, known := w.release(c)
	if k.Kind != extension || !known {
		return
	}
	for _, e := range r.Extensions {
		if e.Name != k.Subject || e.State == "done" || e.Channel != c.Name && e.Channel != k.Elsewhere {
			continue
		}
		if !e.Deadline.IsZero() {
			w.printf("         times out %s", at(e.Deadline, w.now))
		}
		for _, l := range lastLines(e.Tail, tailLines) {
			w.printf("         | %s", oneLine(l, textLimit))
		}
	}
}

// lastLines returns the last n non-empty lines of a text.
func lastLines(text string, n int) []string {
	var out []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out[max(0, len(out)-n):]
}

// conditionReason returns the reason of a condition. For a bypass it names the user, marked if not proven.
func (w *writer) conditionReason(c protocol.ChannelStatus, k protocol.ConditionStatus) string {
	if r, ok := w.release(c); ok {
		for _, b := range r.Bypasses {
			if b.Channel == c.Name && b.Condition == k.ID && k.Code == "bypassed" {
				return "bypassed by " + Who(b.Who) + prefixed(": ", b.Reason)
			}
		}
	}
	return k.Reason
}

// readings lists the results of checks while a release is judged in the channel, not before: in a post-deployment window, or during a
// repair that uses them.
func (w *writer) readings(c protocol.ChannelStatus) {
	switch entities.Status(c.Status) {
	case entities.StatusSuspended, entities.StatusConverging, entities.StatusDegraded:
	default:
		return
	}
	width := idWidth(c)
	for _, k := range c.Checks {
		text := oneLine(k.Reason, textLimit)
		if k.Errors > 1 {
			text += fmt.Sprintf("; failed to evaluate %d times", k.Errors)
		}
		if k.Verdict == "ERROR" && !k.Next.IsZero() {
			text += ", retry in " + Duration(entities.NextRetry(k.Interval, k.Errors, k.Next, w.now).Sub(w.now))
		}
		w.printf(" %-5s %-*s  %s", k.Verdict, width, k.ID, joined("; ", text, since(k.Since, w.now)))
	}
}

// bypasses lists the conditions that users bypassed for the release, unless they are listed above as conditions.
func (w *writer) bypasses(c protocol.ChannelStatus) {
	r, ok := w.release(c)
	if !ok {
		return
	}
	for _, b := range r.Bypasses {
		if b.Channel != c.Name || hasCondition(c, b.Condition) {
			continue
		}
		w.printf(" - %s passed %s, bypassed by %s at %s: %s", r.Version, b.Condition, Who(b.Who), clock(b.At, w.now, false), oneLine(b.Reason, textLimit))
	}
}

func hasCondition(c protocol.ChannelStatus, id string) bool {
	return slices.ContainsFunc(c.Conditions, func(k protocol.ConditionStatus) bool { return k.ID == id })
}

func hasConditionKind(c protocol.ChannelStatus, kind string) bool {
	return slices.ContainsFunc(c.Conditions, func(k protocol.ConditionStatus) bool { return k.Kind == kind })
}

// pinned says who pinned the channel, unless a condition of the waiting release says so.
func (w *writer) pinned(c protocol.ChannelStatus) {
	for _, p := range w.status.Pins {
		if p.Channel != c.Name || hasConditionKind(c, "pin") {
			continue
		}
		w.printf(" - pinned to %s by %s, %s%s", p.Version, Who(p.Who), since(p.At, w.now), prefixed(": ", oneLine(p.Reason, textLimit)))
		w.command("converge channel unpin " + name(w.status) + " " + c.Name)
	}
}

// lease says that the channel waits for a lease on its runtime, unless a condition says so.
func (w *writer) lease(c protocol.ChannelStatus) {
	if c.LeaseRequestedAt.IsZero() || hasConditionKind(c, "lease") {
		return
	}
	w.printf(" - waits for a lease on runtime/%s, %s", c.Runtime, since(c.LeaseRequestedAt, w.now))
}

// maxShownLeases limits how many lease holders of a runtime are named.
const maxShownLeases = 5

// LeaseHolders says who holds the leases of a runtime that a channel waits for, and how many wait before or behind it.
func LeaseHolders(of protocol.RuntimeStatus, now time.Time) []string {
	if len(of.Held) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("Leases on runtime/%s: %d held, %d waiting:", of.Runtime, len(of.Held), len(of.Waiting))}
	for _, l := range of.Held[:min(len(of.Held), maxShownLeases)] {
		lines = append(lines, " "+joined(", ", l.Name(), since(l.Since, now)))
	}
	if more := len(of.Held) - maxShownLeases; more > 0 {
		lines = append(lines, fmt.Sprintf(" and %d more", more))
	}
	return lines
}

// bypassHint shows the command that bypasses the conditions: once, below all of them. It omits approvals, which are given, and conditions
// that cannot be bypassed.
func (w *writer) bypassHint(c protocol.ChannelStatus) {
	condition := ""
	for _, k := range c.Conditions {
		switch {
		case k.Verdict == "PASS" || notEvaluated(k) || !offersBypass(k):
		case k.Kind == check && k.Verdict == "FAIL": // its own line shows the command
		case condition == "":
			condition = k.ID
		default:
			condition = "CONDITION"
		}
	}
	if condition != "" {
		w.printf("To bypass it: converge bypass %s %s %s %s --reason …", name(w.status), cmp.Or(c.Desired, c.Target), c.Name, condition)
	}
}

// The kinds of condition with their own format. All others share one format.
const (
	approval      = string(entities.ManualApproval)
	channelStable = string(entities.ChannelStable)
	extension     = "extension"
	check         = "check"
)

// offersBypass reports whether to offer a bypass of the condition. It is not offered for plain conditions, such as those that wait until
// the channel is free, nor for approvals, which have their own verb, nor for another channel, which is better fixed.
func offersBypass(k protocol.ConditionStatus) bool {
	return k.Bypassable && !k.Plain && k.Kind != approval && k.Kind != channelStable
}

// notEvaluated reports whether the condition is not evaluated before others pass, and so has no result.
func notEvaluated(k protocol.ConditionStatus) bool { return k.Code == "not-asked" }

// earliest returns the first time at which the release could enter, if a condition gives one, and what else it depends on.
func earliest(c protocol.ChannelStatus, now time.Time) (time.Time, string) {
	var first time.Time
	needsApproval, needsOthers := false, false
	for _, k := range c.Conditions {
		switch {
		case k.Verdict == "PASS" || notEvaluated(k):
		case k.Verdict == "FAIL":
			return time.Time{}, "" // needs an action
		case k.Kind == approval:
			needsApproval = true
		case k.Verdict == "WAIT" && k.NextCheck.After(now) && k.Kind != "preflight":
			if k.NextCheck.After(first) {
				first = k.NextCheck
			}
		default:
			needsOthers = true
		}
	}
	switch {
	case needsApproval && needsOthers:
		return first, ", if approved and the others pass by then"
	case needsApproval:
		return first, ", if approved by then"
	case needsOthers:
		return first, ", if the others pass by then"
	}
	return first, ""
}

// orphaned says how to delete a service that is no longer declared.
func (w *writer) orphaned() {
	for _, c := range w.status.Channels {
		if c.Status != string(entities.StatusOrphaned) {
			return
		}
	}
	if len(w.status.Channels) > 0 && w.status.Deletion == nil {
		w.printf("Next: no automatic change; declare it again, or delete it:")
		w.command("converge channel delete " + name(w.status))
	}
}

// deletion describes the progress of a deletion.
func (w *writer) deletion() {
	d := w.status.Deletion
	if d == nil {
		return
	}
	w.printf("It is being deleted by %s, %s%s", Who(d.Who), since(d.At, w.now), prefixed(": ", oneLine(d.Reason, textLimit)))
	if len(d.Gone) > 0 {
		w.printf("         removed from %s", strings.Join(d.Gone, ", "))
	}
}
