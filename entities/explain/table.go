package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Header names the columns of Overview.Rows.
var Header = [...]string{"SERVICE", "CHANNEL", "STATUS", "CURRENT", "TARGET", "SINCE", "WAITS FOR"}

const converged = string(entities.StatusConverged)

// firstRelease is the text for a channel without any release.
const firstRelease = "a first release"

// Row is one line of the table. Only the first row of a service names it.
type Row [len(Header)]string

// Overview is the output of `converge status`: the table, the releases in flight below it, and lines about pauses, notes and refused
// signals.
type Overview struct {
	Rows     []Row
	Releases []Matrix
	Lines    []string
}

// Table builds the overview of several services. With more than one, a service with all channels CONVERGED at one version takes one row.
// Services of several applications are named application/service. With a zero time it shows absolute times instead of ages, so the text
// changes only with its content.
func Table(services []protocol.Status, now time.Time) Overview {
	t := tableBuilder{now: now, fold: len(services) > 1}
	for _, s := range services {
		t.qualified = t.qualified || s.Application != services[0].Application
	}
	for _, s := range services {
		t.rows(s)
	}
	t.out.Releases = matrices(services, t.name, now)
	for _, s := range services {
		t.notes(s)
	}
	return t.out
}

type tableBuilder struct {
	now             time.Time
	fold, qualified bool
	out             Overview
}

func (t *tableBuilder) name(s protocol.Status) string {
	if t.qualified {
		return name(s)
	}
	return s.Service
}

func (t *tableBuilder) rows(s protocol.Status) {
	if version, ok := convergedVersion(s); ok && t.fold {
		row := Row{t.name(s), plural(len(s.Channels), "channel"), converged, cmp.Or(version, "-")}
		row[len(row)-1] = WaitsFor(s.Channels[0], t.now)
		t.out.Rows = append(t.out.Rows, row)
		return
	}
	first := t.name(s)
	if len(s.Channels) == 0 {
		channels := "no channels"
		if s.Status == string(entities.StatusUnmanaged) {
			channels = "-"
		}
		t.out.Rows = append(t.out.Rows, Row{first, channels, cmp.Or(s.Status, "UNKNOWN"), "", "", "", s.Headline})
	}
	for _, c := range s.Channels {
		age := ""
		if !c.Since.IsZero() && !t.now.IsZero() {
			age = Duration(t.now.Sub(c.Since))
		}
		t.out.Rows = append(t.out.Rows, Row{first, c.Name, c.Status, cmp.Or(c.Current, "-"), cmp.Or(c.Target, "-"), age, WaitsFor(c, t.now)})
		first = ""
	}
}

// convergedVersion reports whether all channels are CONVERGED at one version.
func convergedVersion(s protocol.Status) (version string, ok bool) {
	for i, c := range s.Channels {
		if c.Status != converged || i > 0 && c.Current != version {
			return "", false
		}
		version = c.Current
	}
	return version, len(s.Channels) > 0
}

// WaitsFor describes what a channel waits for, in one line: the first condition that has not passed, or else the first reason, and how many
// more there are. It is not cut, because the end of a message often has the cause.
func WaitsFor(c protocol.ChannelStatus, now time.Time) string {
	switch {
	case c.Status == converged && c.Target == "" && c.Current == "":
		return firstRelease
	case c.Status == converged:
		return ""
	}
	all := waitReasons(c, now)
	if len(all) == 0 {
		return ""
	}
	text := causeFirst(strings.Join(strings.Fields(all[0]), " "))
	if len(all) > 1 {
		text += fmt.Sprintf(", +%d", len(all)-1)
	}
	switch {
	case c.ApplyEnds.After(now):
		text += " (times out in " + Duration(c.ApplyEnds.Sub(now)) + ")"
	case !needsAction(entities.Status(c.Status)) && c.NextChange.After(now) && c.NextChange.Sub(now) < time.Hour:
		text += " (in " + Duration(c.NextChange.Sub(now)) + ")"
	}
	return text
}

// failedRE matches the reason of a failure: what failed, which the status says already, and its cause.
var failedRE = regexp.MustCompile(`^(applying \S+, attempt \d+(?: of \d+)?; the last failed|apply failed (?:once|\d+ times)|the rollback to \S+ failed|\S+ failed|\S+ was rolled back|repaired \d+ times since [0-9:]+ UTC): (.+)$`)

// endedRE matches how a command ended, and its last line of output.
var endedRE = regexp.MustCompile(`^(\S.* (?:exited \d+|was ended by signal \S+)): (.+)$`)

// causeFirst begins the reason of a failure with its cause, so that a narrow table has it.
func causeFirst(reason string) string {
	parts := failedRE.FindStringSubmatch(reason)
	if parts == nil {
		return reason
	}
	what, cause := parts[1], parts[2]
	if ended := endedRE.FindStringSubmatch(cause); ended != nil {
		what, cause = ended[1]+"; "+what, ended[2]
	}
	return cause + " (" + what + ")"
}

func waitReasons(c protocol.ChannelStatus, now time.Time) []string {
	var all []string
	switch entities.Status(c.Status) {
	case entities.StatusPreconditions, entities.StatusManualApproval, entities.StatusBlocked:
		for _, k := range unmet(c) {
			all = append(all, shortText(k, now))
		}
	}
	if len(all) > 0 {
		return all
	}
	if c.Fleet != nil {
		return []string{fleetText(c)}
	}
	if b := c.Rollback; b != nil && c.Status == string(entities.StatusRolledBack) {
		return []string{b.From + " rolled back" + prefixed(": ", b.Reason)}
	}
	for _, r := range c.Reasons {
		if r.Code != "command" {
			all = append(all, r.Text)
		}
	}
	if b := c.Rollback; b != nil && c.Status == string(entities.StatusRollingBack) && len(all) > 0 { // the condition that blocks it says more
		all = append(all[1:], b.From+" is rolling back"+prefixed(": ", b.Reason))
	}
	if hiddenUnread(c) {
		all = slices.Insert(all, 0, c.Unread.Text())
	} else if health := pausedHealth(c); health != "" {
		all = slices.Insert(all, 0, "it is "+health)
	}
	return all
}

// maxNamedInstances limits how many instances of a fleet are named with their status.
const maxNamedInstances = 3

// fleetText summarizes a fleet: "37 of 50 at v9, 1 FAILED: eu-3, 12 CONVERGING".
func fleetText(c protocol.ChannelStatus) string {
	f := c.Fleet
	text, unchanged := fmt.Sprintf("%d of %d at %s", f.AtVersion, f.Instances, cmp.Or(f.Version, "a first release")), f.Instances-f.AtVersion+f.OtherwiseAtVersion
	names := map[string][]string{}
	for _, i := range c.Instances {
		names[i.Status] = append(names[i.Status], i.Name)
	}
	statuses := entities.SortedKeys(f.ByStatus)
	slices.SortStableFunc(statuses, func(a, b string) int {
		return entities.Status(b).Row().Severity - entities.Status(a).Row().Severity
	})
	for _, status := range statuses {
		count := f.ByStatus[status]
		text += fmt.Sprintf(", %d %s", count, status)
		if count <= maxNamedInstances && len(names[status]) == count {
			text += ": " + strings.Join(names[status], " ")
		}
		unchanged -= count
	}
	if unchanged > 0 {
		text += fmt.Sprintf(", %d unchanged", unchanged)
	}
	return text
}

// shortText describes a condition briefly: "go-live 1/2 (alice)", "office-hours opens Mon 09:00 CET".
func shortText(k protocol.ConditionStatus, now time.Time) string {
	name := cmp.Or(k.Subject, k.ID)
	switch {
	case k.Kind == approval && k.Verdict == "WAIT" && k.Need > 0:
		count := fmt.Sprintf("%d/%d", len(k.ApprovedBy), k.Need)
		if len(k.ApprovedBy) > 0 {
			count += " (" + strings.Join(k.ApprovedBy, ", ") + ")"
		}
		return name + " " + count
	case k.Verdict == "WAIT" && k.Reason == "" && k.NextCheck.Sub(now) > time.Minute:
		return name + " " + clock(k.NextCheck, now, false)
	case k.Plain:
		return k.Reason
	}
	return joined(" ", name, k.Reason)
}

// unmet returns the conditions that have not passed, failed and unevaluable ones first. An approval comes first if the status says that it
// can be given now.
func unmet(c protocol.ChannelStatus) []protocol.ConditionStatus {
	rank := func(k protocol.ConditionStatus) int {
		if c.Status == string(entities.StatusManualApproval) && k.Kind == approval {
			return -1
		}
		return map[string]int{"FAIL": 0, "ERROR": 1, "WAIT": 2}[k.Verdict]
	}
	var out []protocol.ConditionStatus
	for _, k := range c.Conditions {
		if k.Verdict != "PASS" && !notEvaluated(k) {
			out = append(out, k)
		}
	}
	sort.SliceStable(out, func(i, j int) bool { return rank(out[i]) < rank(out[j]) })
	return out
}

// addLine adds a line unless it exists: one pause often holds many services.
func (t *tableBuilder) addLine(line string) {
	if !slices.Contains(t.out.Lines, line) {
		t.out.Lines = append(t.out.Lines, line)
	}
}

// ago says how long ago something happened.
func (t *tableBuilder) ago(at time.Time) string { return ago(at, t.now) }

func (t *tableBuilder) notes(s protocol.Status) {
	who := t.name(s)
	for _, p := range s.Pauses {
		what := joined(" ", who, p.Channel)
		if p.Scope != "" {
			what = pauseScope(s, p)
		}
		t.addLine(fmt.Sprintf("PAUSED %s by %s %s%s", what, cmp.Or(p.By, "someone"), t.ago(p.At), prefixed(": ", p.Reason)))
	}
	for _, p := range s.Pins {
		t.addLine(fmt.Sprintf("PINNED %s %s to %s by %s %s%s", who, p.Channel, p.Version, Who(p.Who), t.ago(p.At), prefixed(": ", p.Reason)))
	}
	if d := s.Deletion; d != nil {
		t.addLine(fmt.Sprintf("DELETING %s by %s, started %s%s", who, Who(d.Who), t.ago(d.At), prefixed(": ", d.Reason)))
	}
	if r := s.Restarts; r.Repeated(t.now) {
		t.out.Lines = append(t.out.Lines, "NOTE "+who+": its workflow was "+restarted(r, t.now))
	}
	for _, u := range s.Undelivered {
		t.out.Lines = append(t.out.Lines, "UNDELIVERED "+who+": "+u.Text())
	}
	for _, n := range s.Notes {
		t.out.Lines = append(t.out.Lines, "NOTE "+who+": "+n)
	}
	for _, r := range s.Refused {
		t.out.Lines = append(t.out.Lines, refusal(r, t.now))
	}
}
