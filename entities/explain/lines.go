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
	return LinesWithLookup(s, channel, nil, now)
}

// LinesWithLookup is Lines for a caller that can query other services for what blocks them.
func LinesWithLookup(s protocol.Status, channel string, lookup StatusLookup, now time.Time) []string {
	w := &writer{status: s, now: now, lookup: lookup}
	if len(s.Channels) == 0 {
		w.printf("%s has no channels yet%s", name(s), prefixed(": ", s.Headline))
	}
	shown := 0
	for _, c := range s.Channels {
		if channel != "" && c.Name != channel {
			continue
		}
		if shown++; shown > 1 {
			w.printf("")
		}
		w.channel(c)
	}
	if channel != "" && shown == 0 {
		w.printf("%s has no channel %q; it has %s", name(s), channel, cmp.Or(strings.Join(channelNames(s), ", "), "none"))
		return w.lines
	}
	w.service()
	w.journal(channel)
	w.observationAge(channel)
	return w.lines
}

type writer struct {
	status protocol.Status
	now    time.Time
	lookup StatusLookup
	lines  []string
}

func (w *writer) printf(format string, args ...any) {
	w.lines = append(w.lines, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// channel writes one channel: headline, conditions, reasons, pauses, objects, queued releases, and the next change.
func (w *writer) channel(c protocol.ChannelStatus) {
	w.printf("%s", headline(w.status, c, w.now))
	if c.MissingConfig != "" && c.Status != converged {
		w.printf(" %s", oneLine(withoutKnownCause(c), 2*textLimit))
	}
	w.unread(c)
	w.conditions(c)
	w.rootCause(c)
	w.readings(c)
	w.reasons(c)
	w.lease(c)
	w.bypasses(c)
	w.pauses(c)
	w.pinned(c)
	w.instances(c)
	w.objects(c)
	w.bypassHint(c)
	w.queuedReleases(c)
	w.next(c)
}

// unread says that the current version cannot be read, if neither the status nor a condition says so.
func (w *writer) unread(c protocol.ChannelStatus) {
	if !hiddenUnread(c) || slices.ContainsFunc(c.Conditions, func(k protocol.ConditionStatus) bool { return k.Kind == "reading" && k.Verdict == "ERROR" }) {
		return
	}
	w.printf(" - %s", joined("; ", "the running version cannot be read: "+oneLine(c.Unread.Text(), textLimit), "the values shown are from an earlier reading", since(c.Unread.Since, w.now)))
}

// hiddenUnread reports whether the version in a channel with one instance cannot be read and its status does not show that.
func hiddenUnread(c protocol.ChannelStatus) bool {
	return c.Unread != nil && len(c.Instances) == 0 && c.Status != string(entities.StatusUnknown) && c.Status != string(entities.StatusDeleted)
}

// rootCause names the root cause of a wait, if it is in another channel or in another service.
func (w *writer) rootCause(c protocol.ChannelStatus) {
	at, r := rootChannel(w.status, c)
	if why := dependencyRootCause(w.status, at, w.lookup, w.now); why != "" {
		w.printf("Root cause: %s.", why)
	} else if why := waitReason(w.status, at, r, w.now); at.Name != c.Name && why != "" {
		w.printf("Root cause: %s.", why)
	}
}

// conditions lists the conditions of the next release, with aligned verdicts.
func (w *writer) conditions(c protocol.ChannelStatus) {
	width := idWidth(c)
	for _, k := range c.Conditions {
		text := joined("; ", oneLine(w.conditionReason(c, k), textLimit)+retryText(k, w.now), since(k.Since, w.now))
		w.printf(" %-5s %-*s  %s", k.Verdict, width, k.ID, text)
		w.conditionApprovals(c, k)
		w.extensionOutput(c, k)
		if k.Verdict != "PASS" {
			w.unblock(c, k.ID, k.Unblock)
		}
	}
}

// idWidth is the width of the longest id among the conditions and checks of a channel, so that their verdicts are aligned.
func idWidth(c protocol.ChannelStatus) int {
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
	healthy := 0
	for _, i := range c.Instances {
		if i.Status == converged {
			healthy++
			continue
		}
		w.instance(i)
	}
	if c.MoreInstances > 0 {
		w.printf(" and %s, not listed", plural(c.MoreInstances, "more instance"))
	}
	if healthy > 0 {
		w.printf(" %s CONVERGED", plural(healthy, "instance"))
	}
}

// statusWidth is the length of the longest common status of an instance, for alignment.
const statusWidth = len("FAILED_ROLLBACK")

func (w *writer) instance(i protocol.InstanceStatus) {
	reason := i.Reason
	if i.Unread != nil {
		reason = joined("; ", i.Unread.Text(), since(i.Unread.Since, w.now))
	}
	w.printf(" %-*s %s %s", statusWidth, i.Status, i.Name, joined("; ", "runs "+cmp.Or(i.Current, "nothing")+prefixed(", target ", i.Target), oneLine(reason, textLimit)))
}

// Instances lists the instances of a fleet, worst first. For other channels it is empty.
func Instances(c protocol.ChannelStatus) []string {
	w := &writer{}
	for _, i := range c.Instances {
		w.instance(i)
	}
	if c.MoreInstances > 0 {
		w.printf(" and %s, not listed", plural(c.MoreInstances, "more instance"))
	}
	return w.lines
}

// retryText says when a condition may change without an action.
func retryText(k protocol.ConditionStatus, now time.Time) string {
	switch {
	case k.Verdict == "PASS" || k.NextCheck.IsZero():
		return ""
	case k.Verdict == "ERROR":
		return ", retry in " + Duration(entities.NextRetry(k.Interval, k.Errors, k.NextCheck, now).Sub(now))
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
		w.printf(" - %s", joined("; ", oneLine(r.Text, textLimit), since(r.Since, w.now)))
		w.unblock(c, "", r.Unblock)
	}
}

// withoutKnownCause is the text of the missing configuration without a cause that a listed reason has too.
func withoutKnownCause(c protocol.ChannelStatus) string {
	for _, r := range c.Reasons {
		if _, cause, ok := strings.Cut(r.Text, ": "); ok && cause != "" {
			if text, known := strings.CutSuffix(c.MissingConfig, ": "+cause); known {
				return text
			}
		}
	}
	return c.MissingConfig
}

// commanded reports whether a reason shows a command that helps.
func commanded(c protocol.ChannelStatus) bool {
	return slices.ContainsFunc(c.Reasons, func(r protocol.Reason) bool { return r.Unblock != "" })
}

func (w *writer) pausesOf(c protocol.ChannelStatus) []entities.Pause {
	var out []entities.Pause
	for _, p := range w.status.Pauses {
		all := p.Scope == entities.ScopeApplication || p.Scope == entities.ScopeInstallation
		if all || onRuntime(c, p.Scope) || p.Scope == "" && (p.Channel == "" || p.Channel == c.Name) {
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
		w.printf(" - %s paused by %s, %s%s", pauseScope(w.status, p), cmp.Or(p.By, "someone"), since(p.At, w.now), prefixed(": ", p.Reason))
		w.command(p.ResumeCommand(w.status.Application, w.status.Service))
	}
}

// pauseScope names the scope of a pause.
func pauseScope(s protocol.Status, p entities.Pause) string {
	switch {
	case p.Scope == entities.ScopeApplication:
		return "the whole application " + s.Application
	case p.Scope == entities.ScopeInstallation:
		return "everything"
	case p.Scope != "":
		return p.Scope
	case p.Channel != "":
		return p.Channel
	}
	return "the service"
}

// queuedReleases lists the releases queued for this channel behind the next one, with the reasons of their phases. Adjacent releases
// without details share one line if there are many.
func (w *writer) queuedReleases(c protocol.ChannelStatus) {
	var unexplained []string // in a row
	explained := 0
	for i := len(w.status.Releases) - 1; i >= 0; i-- { // oldest first, the order of the queue
		r := w.status.Releases[i]
		if r.Phases[c.Name] == pending && w.ofOtherAspect(c, r) {
			w.printf("%s waits independently of %s: it is of another aspect.", r.Version, cmp.Or(c.Desired, c.Target))
			w.queuedApprovals(c, r)
			continue
		}
		if r.Phases[c.Name] == pending && r.Version != c.Desired && r.Reasons[c.Name] == "" && len(r.Approvals) == 0 {
			unexplained = append(unexplained, r.Version)
			continue
		}
		w.queuedLine(c, unexplained)
		unexplained = nil
		if explained < maxExplained && w.explainPhase(c, i) {
			explained++
		}
	}
	w.queuedLine(c, unexplained)
}

// ofOtherAspect reports whether a release is of another aspect than the one that the channel waits for.
func (w *writer) ofOtherAspect(c protocol.ChannelStatus, r protocol.ReleaseStatus) bool {
	return slices.ContainsFunc(w.status.Releases, func(next protocol.ReleaseStatus) bool { return next.Version == c.Desired && next.Aspect != r.Aspect })
}

// Limits for queued releases: how many in a row are named, and how many are shown with details.
const (
	maxQueuedNamed = 10
	maxExplained   = 50
)

// explainPhase writes the reason of a release's phase in a channel, if there is one.
func (w *writer) explainPhase(c protocol.ChannelStatus, at int) bool {
	r := w.status.Releases[at]
	phase, reason := r.Phases[c.Name], r.Reasons[c.Name]
	switch {
	case r.Version == c.Desired || phase == "":
		return false
	case phase == pending:
		text := behindText(c)
		if reason != "" {
			text += " (" + oneLine(reason, textLimit) + ")"
		}
		w.printf("%s is %s.", r.Version, text)
		w.queuedApprovals(c, r)
		return true
	case reason != "" && (phase == "failed" || phase == "rolled back" || phase == "skipped") &&
		c.Status != string(entities.StatusConverged) && c.Status != string(entities.StatusOrphaned) && !failureShown(c, r.Version) && !overtaken(w.status.Releases[:at], r, c.Name):
		w.printf("%s %s here: %s.", r.Version, phase, oneLine(reason, textLimit))
		return true
	}
	return false
}

func (w *writer) queuedLine(c protocol.ChannelStatus, versions []string) {
	if n := len(versions); n > maxQueuedNamed {
		w.printf("%d releases, %s to %s, are %s.", n, versions[0], versions[n-1], behindText(c))
		return
	}
	for _, v := range versions {
		w.printf("%s is %s.", v, behindText(c))
	}
}

// behindText names the release that others queue behind.
func behindText(c protocol.ChannelStatus) string {
	return joined(" ", "behind", cmp.Or(c.Desired, c.Target))
}

// failureShown reports whether the reasons of a channel already explain why a version failed there.
func failureShown(c protocol.ChannelStatus, version string) bool {
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
	if c.ApplyEnds.After(w.now) {
		w.printf("Next: the apply ends, or times out %s.", at(c.ApplyEnds, w.now))
		return
	}
	if !c.NextChange.IsZero() && !needsAction(status) {
		w.printf("Next: automatic change %s.", at(c.NextChange, w.now))
		return
	}
	if when, suffix := earliest(c, w.now); !when.IsZero() {
		w.printf("Earliest: %s%s.", clock(when, w.now, false)+" (in "+Duration(when.Sub(w.now))+")", w.withPause(c, suffix))
		return
	}
	w.exitAction(c)
}

// withPause adds a pause to the conditions of the earliest time.
func (w *writer) withPause(c protocol.ChannelStatus, suffix string) string {
	switch {
	case c.Status != string(entities.StatusPaused):
		return suffix
	case suffix == "":
		return ", if resumed by then"
	}
	return suffix + ", and resumed"
}

// exitAction says what ends a status that does not change without an action. It writes nothing if the channel is fine or in progress.
func (w *writer) exitAction(c protocol.ChannelStatus) {
	status := entities.Status(c.Status)
	row := status.Row()
	switch {
	case status == entities.StatusOrphaned && w.declared() && w.status.Deletion == nil:
		w.printf("Next: no automatic change; to delete it: declare the channel again, run converge channel delete %s %s, then remove the channel from the configuration.", name(w.status), c.Name)
		return
	case status == entities.StatusDegraded && slices.ContainsFunc(c.Reasons, func(r protocol.Reason) bool { return r.Code == "command" }):
		w.printf("Next: no automatic change.")
		return
	case row.Exit == entities.ExitConverged, row.Exit == entities.ExitWaiting, status == entities.StatusDegraded:
		return // fine, in progress, or under repair
	case nextMayEnter(c) && (status == entities.StatusFailed || status == entities.StatusFailedRollback):
		w.printf("Next: %s enters once the above passes; else what ends it: %s.", c.Desired, row.EndsBy)
		return
	}
	if status == entities.StatusFailedRollback { // it is tried again
		w.printf("Next: it is tried again; what ends it: %s.", row.EndsBy)
	} else {
		w.printf("Next: no automatic change; what ends it: %s.", row.EndsBy)
	}
	if failed := status == entities.StatusFailed || status == entities.StatusFailedRollback; failed && !commanded(c) {
		w.unblock(c, "", protocol.Retry)
	}
}

// declared reports whether any channel of the service is still declared.
func (w *writer) declared() bool {
	return slices.ContainsFunc(w.status.Channels, func(c protocol.ChannelStatus) bool { return c.Status != string(entities.StatusOrphaned) })
}

// nextMayEnter reports whether another release waits for conditions, none of which has failed.
func nextMayEnter(c protocol.ChannelStatus) bool {
	pending := unmet(c)
	return c.Desired != "" && c.Desired != c.Target && len(pending) > 0 && !slices.ContainsFunc(pending, func(k protocol.ConditionStatus) bool { return k.Verdict == "FAIL" })
}

// needsAction reports whether time alone does not change the channel: the due time is only the next observation.
func needsAction(s entities.Status) bool {
	return s == entities.StatusPaused || s.Row().Exit == entities.ExitFailed && s != entities.StatusDegraded // repaired
}

// service writes the facts about the whole service.
func (w *writer) service() {
	w.deletion()
	w.orphaned()
	if w.status.Board != "" {
		w.printf("Board: %s", w.status.Board)
	}
	if r := w.status.Restarts; r.Repeated(w.now) {
		w.printf("Note: its workflow was %s", restarted(r, w.now))
	}
	for _, u := range w.status.Undelivered {
		w.printf("Undelivered: %s", u.Text())
	}
	for _, n := range w.status.Notes {
		w.printf("Note: %s", n)
	}
	for _, r := range w.status.Refused {
		w.printf("%s", refusal(r, w.now))
	}
}

func (w *writer) journal(channel string) {
	var entries []entities.JournalEntry
	for _, e := range w.status.Journal {
		if channel == "" || e.Channel == "" || e.Channel == channel {
			entries = append(entries, e)
		}
	}
	entries = entries[max(0, len(entries)-journalTail):]
	if len(entries) == 0 {
		return
	}
	w.printf("What happened (times are %s):", w.now.Format("MST"))
	for _, line := range journalLines(entries, w.status, w.now, stamp) {
		w.printf(" %s", line)
	}
}

// Journal writes journal lines as `release --wait` prints them: time with its zone, channel, text.
func Journal(entries []entities.JournalEntry, s protocol.Status, now time.Time) []string {
	return journalLines(entries, s, now, clock)
}

func journalLines(entries []entities.JournalEntry, s protocol.Status, now time.Time, when func(t, ref time.Time, seconds bool) string) []string {
	width := 0
	for _, c := range s.Channels {
		width = max(width, len(c.Name))
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Channel == "" {
			out = append(out, when(e.At, now, true)+" "+e.Text)
			continue
		}
		out = append(out, fmt.Sprintf("%s %-*s  %s", when(e.At, now, true), width, e.Channel, e.Text))
	}
	return out
}

// observationAge says how old the observation is.
func (w *writer) observationAge(channel string) {
	observed, failingSince := w.status.ObservedAt, time.Time{}
	for _, c := range w.status.Channels {
		if channel != "" && c.Name != channel {
			continue
		}
		if c.Name == channel && !c.ObservedAt.IsZero() {
			observed = c.ObservedAt
		}
		if c.Unread != nil && (failingSince.IsZero() || c.Unread.Since.Before(failingSince)) {
			failingSince = c.Unread.Since
		}
	}
	if !failingSince.IsZero() {
		w.printf("Readings have failed since %s (%s); last attempt %s.", clock(failingSince, w.now, true), ago(failingSince, w.now), ago(observed, w.now))
		return
	}
	if observed.IsZero() {
		w.printf("No reading from a runtime yet.")
		return
	}
	w.printf("Last reading from the runtime %s (%s ago).", clock(observed, w.now, true), Duration(w.now.Sub(observed)))
}

// unblock writes the command that unblocks the channel. A known verb alone is completed to a command.
func (w *writer) unblock(c protocol.ChannelStatus, condition, what string) {
	if what == "" {
		return
	}
	w.command(command(w.status, c, condition, what))
}

func (w *writer) command(text string) { w.printf("         %s", text) }

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

// restarted writes how often a workflow was restarted lately, and why the last time.
func restarted(r *entities.Restarts, now time.Time) string {
	return fmt.Sprintf("restarted %s, %s, the last time %s: %s", entities.Times(r.Count), since(r.First, now), ago(r.Last, now), oneLine(r.Why, textLimit))
}

// refusal writes a refused signal.
func refusal(r entities.Refusal, now time.Time) string {
	return fmt.Sprintf("! signal %s from %s refused %s: %s", r.Verb, cmp.Or(r.By, "no one"), ago(r.At, now), oneLine(r.Reason, textLimit))
}

func channelNames(s protocol.Status) []string {
	var out []string
	for _, c := range s.Channels {
		out = append(out, c.Name)
	}
	return out
}

// prefixed puts a lead before a text. An empty text stays empty.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
