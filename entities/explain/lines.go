package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	journalTail = 8   // lines of the journal that explain shows
	eventTail   = 3   // debug events per object
	textLimit   = 300 // characters of a message of a runtime
)

// Lines explains the status of each channel of a service: why, since when, what would change it and when (A13). An empty channel means all
// channels. Times are in the time zone of now. For an unknown channel it returns one line that lists the known ones.
func Lines(s protocol.Status, channel string, now time.Time) []string {
	return LinesAmong(s, channel, nil, now)
}

// LinesAmong is Lines for a caller that can query other services for what blocks them.
func LinesAmong(s protocol.Status, channel string, others Others, now time.Time) []string {
	w := &writer{status: s, now: now, others: others}
	if len(s.Channels) == 0 {
		w.line("%s has no channels yet%s", name(s), after(": ", s.Headline))
	}
	shown := 0
	for _, c := range s.Channels {
		if channel != "" && c.Name != channel {
			continue
		}
		if shown++; shown > 1 {
			w.line("")
		}
		w.channel(c)
	}
	if channel != "" && shown == 0 {
		w.line("%s has no channel %q; it has %s", name(s), channel, cmp.Or(strings.Join(channelNames(s), ", "), "none"))
		return w.lines
	}
	w.service()
	w.journal(channel)
	w.seen(channel)
	return w.lines
}

type writer struct {
	status protocol.Status
	now    time.Time
	others Others
	lines  []string
}

func (w *writer) line(format string, args ...any) {
	w.lines = append(w.lines, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// channel writes one channel: headline, conditions, reasons, pauses, objects, queued releases, and the next change.
func (w *writer) channel(c protocol.ChannelStatus) {
	w.line("%s", headline(w.status, c, w.now))
	if c.Lacks != "" && c.Status != converged {
		w.line(" %s", c.Lacks)
	}
	w.unread(c)
	w.conditions(c)
	w.root(c)
	w.readings(c)
	w.reasons(c)
	w.lease(c)
	w.bypasses(c)
	w.pauses(c)
	w.pinned(c)
	w.instances(c)
	w.objects(c)
	w.past(c)
	w.behind(c)
	w.next(c)
}

// unread says that the current version cannot be read, if neither the status nor a condition says so.
func (w *writer) unread(c protocol.ChannelStatus) {
	if !hiddenUnread(c) || slices.ContainsFunc(c.Conditions, func(k protocol.ConditionStatus) bool { return k.Kind == "reading" && k.Verdict == "ERROR" }) {
		return
	}
	w.line(" - %s", joined("; ", "the running version cannot be read: "+oneLine(c.Unread.Text(), textLimit), "the values shown are from an earlier reading", since(c.Unread.Since, w.now)))
}

// hiddenUnread reports whether the version in a channel with one instance cannot be read and its status does not show that.
func hiddenUnread(c protocol.ChannelStatus) bool {
	return c.Unread != nil && len(c.Instances) == 0 && c.Status != string(entities.StatusUnknown) && c.Status != string(entities.StatusDeleted)
}

// root names the root cause of a wait, if it is in another channel or in another service.
func (w *writer) root(c protocol.ChannelStatus) {
	at, r := root(w.status, c)
	if why := rootElsewhere(w.status, at, w.others, w.now); why != "" {
		w.line("Root cause: %s.", why)
	} else if why := holds(w.status, at, r, w.now); at.Name != c.Name && why != "" {
		w.line("Root cause: %s.", why)
	}
}

// conditions lists the conditions of the next release, with aligned verdicts.
func (w *writer) conditions(c protocol.ChannelStatus) {
	width := judgedWidth(c)
	for _, k := range c.Conditions {
		text := joined("; ", oneLine(w.said(c, k), textLimit)+again(k, w.now), since(k.Since, w.now))
		w.line(" %-5s %-*s  %s", k.Verdict, width, k.ID, text)
		w.given(c, k)
		w.printed(c, k)
		if k.Verdict != "PASS" {
			w.unblock(c, k.ID, k.Unblock)
		}
	}
}

// judgedWidth is the width of the longest id among the conditions and checks of a channel, so that their verdicts are aligned.
func judgedWidth(c protocol.ChannelStatus) int {
	width := 0
	for _, k := range c.Conditions {
		width = max(width, utf8.RuneCountInString(k.ID))
	}
	for _, k := range c.Checks {
		width = max(width, utf8.RuneCountInString(k.ID))
	}
	return width
}

// instances lists the instances of a fleet that are not as desired.
func (w *writer) instances(c protocol.ChannelStatus) {
	well := 0
	for _, i := range c.Instances {
		if i.Status == converged {
			well++
			continue
		}
		w.instance(i)
	}
	if c.MoreInstances > 0 {
		w.line(" and %s, not listed", plural(c.MoreInstances, "more instance"))
	}
	if well > 0 {
		w.line(" %s CONVERGED", plural(well, "instance"))
	}
}

// longestOf is the length of the longest common status of an instance, for alignment.
const longestOf = len("FAILED_ROLLBACK")

func (w *writer) instance(i protocol.InstanceStatus) {
	reason := i.Reason
	if i.Unread != nil {
		reason = joined("; ", i.Unread.Text(), since(i.Unread.Since, w.now))
	}
	w.line(" %-*s %s %s", longestOf, i.Status, i.Name, joined("; ", "runs "+cmp.Or(i.Current, "nothing")+after(", target ", i.Target), oneLine(reason, textLimit)))
}

// Instances lists the instances of a fleet, worst first. For other channels it is empty.
func Instances(c protocol.ChannelStatus) []string {
	w := &writer{}
	for _, i := range c.Instances {
		w.instance(i)
	}
	if c.MoreInstances > 0 {
		w.line(" and %s, not listed", plural(c.MoreInstances, "more instance"))
	}
	return w.lines
}

// again says when a condition may change without an action.
func again(k protocol.ConditionStatus, now time.Time) string {
	switch {
	case k.Verdict == "PASS" || k.NextCheck.IsZero():
		return ""
	case k.Verdict == "ERROR":
		return ", retry in " + Duration(entities.NextTry(k.Interval, k.Errors, k.NextCheck, now).Sub(now))
	case k.NextCheck.After(now):
		return " (in " + Duration(k.NextCheck.Sub(now)) + ")"
	}
	return ", evaluated again now"
}

// reasons lists the reasons of the status, except conditions.
func (w *writer) reasons(c protocol.ChannelStatus) {
	for _, r := range c.Reasons {
		switch {
		case r.Code == "pause" && len(w.pausesOf(c)) > 0: // listed below, with user and reason
			continue
		case r.Code == "gate" && len(c.Conditions) > 0, r.Code == "command" && commanded(c):
			continue // listed above
		}
		w.line(" - %s", joined("; ", oneLine(r.Text, textLimit), since(r.Since, w.now)))
		w.unblock(c, "", r.Unblock)
	}
}

// commanded reports whether a reason shows a command that helps.
func commanded(c protocol.ChannelStatus) bool {
	return slices.ContainsFunc(c.Reasons, func(r protocol.Reason) bool { return r.Unblock != "" })
}

func (w *writer) pausesOf(c protocol.ChannelStatus) []entities.Pause {
	var out []entities.Pause
	for _, p := range w.status.Pauses {
		whole := p.Scope == entities.ScopeApplication || p.Scope == entities.ScopeInstallation
		if whole || onRuntime(c, p.Scope) || p.Scope == "" && (p.Channel == "" || p.Channel == c.Name) {
			out = append(out, p)
		}
	}
	return out
}

// onRuntime reports whether a pause holds a runtime of one of the channel's instances.
func onRuntime(c protocol.ChannelStatus, scope string) bool {
	return scope == entities.ScopeRuntime+c.Runtime ||
		slices.ContainsFunc(c.Instances, func(i protocol.InstanceStatus) bool { return scope == entities.ScopeRuntime+i.Runtime })
}

func (w *writer) pauses(c protocol.ChannelStatus) {
	for _, p := range w.pausesOf(c) {
		scope, what := pauseScope(w.status, p)
		w.line(" - %s paused by %s, %s%s", scope, cmp.Or(p.By, "someone"), since(p.At, w.now), after(": ", p.Reason))
		w.command("converge resume " + what)
	}
}

// pauseScope names the scope of a pause, and the argument for `resume`.
func pauseScope(s protocol.Status, p entities.Pause) (scope, argument string) {
	switch {
	case p.Scope == entities.ScopeApplication:
		return "the whole application " + s.Application, s.Application
	case p.Scope == entities.ScopeInstallation:
		return "everything", "--all"
	case p.Scope != "":
		return p.Scope, p.Scope
	case p.Channel != "":
		return p.Channel, name(s) + " --channel " + p.Channel
	}
	return "the service", name(s)
}

// behind lists the releases queued for this channel behind the next one, with the reasons of their phases. Adjacent releases without
// details share one line if there are many.
func (w *writer) behind(c protocol.ChannelStatus) {
	var plain []string // in a row
	said := 0
	for i := len(w.status.Releases) - 1; i >= 0; i-- { // oldest first, the order of the queue
		r := w.status.Releases[i]
		if r.Phases[c.Name] == pending && w.beside(c, r) {
			w.line("%s waits independently of %s: it is of another aspect.", r.Version, cmp.Or(c.Desired, c.Target))
			w.givenBefore(c, r)
			continue
		}
		if r.Phases[c.Name] == pending && r.Version != c.Desired && r.Reasons[c.Name] == "" && len(r.Approvals) == 0 {
			plain = append(plain, r.Version)
			continue
		}
		w.queued(c, plain)
		plain = nil
		if said < behindMost && w.explained(c, i) {
			said++
		}
	}
	w.queued(c, plain)
}

// beside reports whether a release is of another aspect than the one that the channel waits for.
func (w *writer) beside(c protocol.ChannelStatus, r protocol.ReleaseStatus) bool {
	return slices.ContainsFunc(w.status.Releases, func(next protocol.ReleaseStatus) bool { return next.Version == c.Desired && next.Aspect != r.Aspect })
}

// Limits for queued releases: how many in a row are named, and how many are shown with details.
const (
	queuedMost = 10
	behindMost = 50
)

// explained writes the reason of a release's phase in a channel, if there is one.
func (w *writer) explained(c protocol.ChannelStatus, at int) bool {
	r := w.status.Releases[at]
	phase, reason := r.Phases[c.Name], r.Reasons[c.Name]
	switch {
	case r.Version == c.Desired || phase == "":
		return false
	case phase == pending:
		text := ahead(c)
		if reason != "" {
			text += " (" + oneLine(reason, textLimit) + ")"
		}
		w.line("%s is %s.", r.Version, text)
		w.givenBefore(c, r)
		return true
	case reason != "" && (phase == "failed" || phase == "rolled back" || phase == "skipped") &&
		c.Status != string(entities.StatusConverged) && c.Status != string(entities.StatusOrphaned) && !shownFailing(c, r.Version) && !overtaken(w.status.Releases[:at], r, c.Name):
		w.line("%s %s here: %s.", r.Version, phase, oneLine(reason, textLimit))
		return true
	}
	return false
}

func (w *writer) queued(c protocol.ChannelStatus, versions []string) {
	if n := len(versions); n > queuedMost {
		w.line("%d releases, %s to %s, are %s.", n, versions[0], versions[n-1], ahead(c))
		return
	}
	for _, v := range versions {
		w.line("%s is %s.", v, ahead(c))
	}
}

// ahead names the release that others queue behind.
func ahead(c protocol.ChannelStatus) string {
	return joined(" ", "behind", cmp.Or(c.Desired, c.Target))
}

// shownFailing reports whether the reasons of a channel already explain why a version failed there.
func shownFailing(c protocol.ChannelStatus, version string) bool {
	return slices.ContainsFunc(c.Reasons, func(r protocol.Reason) bool {
		return r.Code == "failure" && c.Target == version || r.Code == "rollback" && c.Rollback != nil && c.Rollback.From == version
	})
}

// overtaken reports whether a newer release of the aspect succeeded in the channel, or went there with the same version.
func overtaken(newer []protocol.ReleaseStatus, of protocol.ReleaseStatus, channel string) bool {
	return slices.ContainsFunc(newer, func(r protocol.ReleaseStatus) bool {
		return r.Aspect == of.Aspect && (r.Phases[channel] == "succeeded" || r.Version == of.Version && r.Phases[channel] != "")
	})
}

// next says when the next change without an action happens, or that there is none.
func (w *writer) next(c protocol.ChannelStatus) {
	status := entities.Status(c.Status)
	if status == entities.StatusConverged {
		return // nothing is left to change, whichever check is due
	}
	if !c.NextChange.IsZero() && !held(status) {
		w.line("Next: automatic change %s.", at(c.NextChange, w.now))
		return
	}
	if when, provided := earliest(c, w.now); !when.IsZero() {
		w.line("Earliest: %s%s.", clock(when, w.now, false)+" (in "+Duration(when.Sub(w.now))+")", w.unlessPaused(c, provided))
		return
	}
	w.ends(c)
}

// unlessPaused adds a pause to the conditions of the earliest time.
func (w *writer) unlessPaused(c protocol.ChannelStatus, provided string) string {
	switch {
	case c.Status != string(entities.StatusPaused):
		return provided
	case provided == "":
		return ", if resumed by then"
	}
	return provided + ", and resumed"
}

// ends says what ends a status that does not change without an action. It writes nothing if the channel is fine or in progress.
func (w *writer) ends(c protocol.ChannelStatus) {
	status := entities.Status(c.Status)
	row := status.Row()
	switch {
	case status == entities.StatusOrphaned && w.declared() && w.status.Deletion == nil:
		w.line("Next: no automatic change; to take it down: declare the channel again, run converge delete %s %s, then remove the channel from the configuration.", name(w.status), c.Name)
		return
	case status == entities.StatusDegraded && slices.ContainsFunc(c.Reasons, func(r protocol.Reason) bool { return r.Code == "command" }):
		w.line("Next: no automatic change.")
		return
	case row.Exit == entities.ExitConverged, row.Exit == entities.ExitGoesOn, status == entities.StatusDegraded:
		return // fine, in progress, or under repair
	case comes(c) && (status == entities.StatusFailed || status == entities.StatusFailedRollback):
		w.line("Next: %s enters once the above passes; else it ends by: %s.", c.Desired, row.EndsBy)
		return
	}
	w.line("Next: no automatic change; it ends by: %s.", row.EndsBy)
	if failed := status == entities.StatusFailed || status == entities.StatusFailedRollback; failed && !commanded(c) {
		w.unblock(c, "", protocol.Retry)
	}
}

// declared reports whether any channel of the service is still declared.
func (w *writer) declared() bool {
	return slices.ContainsFunc(w.status.Channels, func(c protocol.ChannelStatus) bool { return c.Status != string(entities.StatusOrphaned) })
}

// comes reports whether another release waits for conditions, none of which has failed.
func comes(c protocol.ChannelStatus) bool {
	waits := unmet(c)
	return c.Desired != "" && c.Desired != c.Target && len(waits) > 0 && !slices.ContainsFunc(waits, func(k protocol.ConditionStatus) bool { return k.Verdict == "FAIL" })
}

// held reports whether time alone does not change the channel: the due time is only the next observation.
func held(s entities.Status) bool {
	return s == entities.StatusPaused || s.Row().Exit == entities.ExitFailed && s != entities.StatusDegraded // repaired
}

// service writes the facts about the whole service.
func (w *writer) service() {
	w.deletion()
	w.orphaned()
	for _, n := range w.status.Notes {
		w.line("Note: %s", n)
	}
	for _, r := range w.status.Refused {
		w.line("%s", refusal(r, w.now))
	}
}

func (w *writer) journal(channel string) {
	var kept []entities.JournalLine
	for _, j := range w.status.Journal {
		if channel == "" || j.Channel == "" || j.Channel == channel {
			kept = append(kept, j)
		}
	}
	kept = kept[max(0, len(kept)-journalTail):]
	if len(kept) == 0 {
		return
	}
	w.line("What happened (times are %s):", w.now.Format("MST"))
	for _, l := range journalLines(kept, w.status, w.now, stamp) {
		w.line(" %s", l)
	}
}

// Journal writes journal lines as `release --wait` prints them: time with its zone, channel, text.
func Journal(lines []entities.JournalLine, s protocol.Status, now time.Time) []string {
	return journalLines(lines, s, now, clock)
}

func journalLines(lines []entities.JournalLine, s protocol.Status, now time.Time, when func(t, ref time.Time, seconds bool) string) []string {
	width := 0
	for _, c := range s.Channels {
		width = max(width, len(c.Name))
	}
	out := make([]string, 0, len(lines))
	for _, j := range lines {
		if j.Channel == "" {
			out = append(out, when(j.At, now, true)+" "+j.Text)
			continue
		}
		out = append(out, fmt.Sprintf("%s %-*s  %s", when(j.At, now, true), width, j.Channel, j.Text))
	}
	return out
}

// seen says how old the observation is.
func (w *writer) seen(channel string) {
	seen, failing := w.status.ObservedAt, time.Time{}
	for _, c := range w.status.Channels {
		if channel != "" && c.Name != channel {
			continue
		}
		if c.Name == channel && !c.ObservedAt.IsZero() {
			seen = c.ObservedAt
		}
		if c.Unread != nil && (failing.IsZero() || c.Unread.Since.Before(failing)) {
			failing = c.Unread.Since
		}
	}
	if !failing.IsZero() {
		w.line("Readings have failed since %s (%s); last attempt %s.", clock(failing, w.now, true), ago(failing, w.now), ago(seen, w.now))
		return
	}
	if seen.IsZero() {
		w.line("No reading from a runtime yet.")
		return
	}
	w.line("Last reading from the runtime %s (%s ago).", clock(seen, w.now, true), Duration(w.now.Sub(seen)))
}

// unblock writes the command that unblocks the channel. A known verb alone is completed to a command.
func (w *writer) unblock(c protocol.ChannelStatus, condition, what string) {
	if what == "" {
		return
	}
	w.command(command(w.status, c, condition, what))
}

func (w *writer) command(text string) { w.line("         %s", text) }

func command(s protocol.Status, c protocol.ChannelStatus, condition, what string) string {
	version := cmp.Or(c.Desired, c.Target)
	_, topic, _ := strings.Cut(condition, "/")
	switch what {
	case "approve", "reject":
		return joined(" ", "converge", what, name(s), version, topic)
	case protocol.Retry, protocol.Cancel:
		return joined(" ", "converge", what, name(s), version, "--channel", c.Name)
	case protocol.Pause, protocol.Resume, protocol.Refresh:
		return joined(" ", "converge", what, name(s), "--channel", c.Name)
	}
	return what
}

// refusal writes a refused signal.
func refusal(r entities.Refusal, now time.Time) string {
	return fmt.Sprintf("! signal %s from %s refused %s: %s", r.Verb, cmp.Or(r.By, "nobody"), ago(r.At, now), oneLine(r.Reason, textLimit))
}

func channelNames(s protocol.Status) []string {
	var out []string
	for _, c := range s.Channels {
		out = append(out, c.Name)
	}
	return out
}

// after puts a lead before a text. An empty text stays empty.
func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}
