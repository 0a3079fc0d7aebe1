// Package outcome decides from the status of a service whether a wait for it is over: what became of a release, or of the service.
package outcome

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
)

// The codes of outcomes; the exit statuses of the command line (docs/reference.md, Exit codes).
const (
	Done     = 0
	Error    = 1
	Failed   = 2
	TimedOut = 3
	Person   = 8 // it waits for a person
)

// Goal is the target of a wait.
type Goal struct {
	Release  string   // id; empty: the service as it is
	Channel  string   // empty: all of them
	Approval Approval // effect of a channel that waits for an approval
}

// Approval says how a wait treats a release that needs an approval.
type Approval int

// The effects of a channel that waits for an approval.
const (
	EndsAtApproval    Approval = iota // ends the wait when nothing else moves (`wait`)
	EndsAtApprovalNow                 // ends the wait at once (`--stop-at-approval`)
	AwaitsApproval                    // a person may still approve: continue (`release --wait`)
)

// Outcome says whether the wait is over, with the exit code and a reason in one line.
type Outcome struct {
	Final bool
	Code  int
	Why   string
	Next  string // what a person can do, if anything
}

// Final is the outcome with which a wait is over.
func Final(code int, why string) Outcome { return Outcome{Final: true, Code: code, Why: why} }

const nextAfterFailure = "Next: retry, cancel, or release a fix."

// failedOutcome returns the outcome for a failure that can be fixed.
func failedOutcome(why string) Outcome {
	return Outcome{Final: true, Code: Failed, Why: why, Next: nextAfterFailure}
}

// Of decides whether the wait is over. It is not over while a relevant channel can still move without a person. After that, a
// failure counts more than a wait for a person.
func Of(s protocol.Status, g Goal) Outcome {
	if g.Channel != "" {
		if err := s.CheckChannel(g.Channel); err != nil {
			return Final(Error, err.Error())
		}
	}
	if g.Release == "" {
		return outcomeOf(serviceGroups(s, g), g, s.Service)
	}
	r, ok := ReleaseByID(s, g.Release)
	if !ok {
		return Final(Error, fmt.Sprintf("release %s has ended and is no longer listed", g.Release))
	}
	return outcomeOf(releaseGroups(s, r, g), g, s.Service+" "+r.Version)
}

// groups holds the relevant channels, grouped by what can happen next.
type groups struct {
	progressing   []string // continues without a person
	unobserved    []string // its instances cannot be read; continues once they can
	readError     string   // error of the first of them
	waiting       []string // continues without a person once its gates pass
	gates         []string // those gates
	queued        []string // continues when another channel does
	failed        []string
	remedy        string   // remedy for the first degraded one, where a retry does not apply
	degradedCount int      // how many of them are degraded
	rolledBack    []string // rolled back, and stays at that version
	pinned        []string // kept at another version by a pin
	blocked       []string // waits for a failed channel
	failure       string   // the failure of the first of them
	unblock       string   // and what unblocks it
	paused        []string
	approval      []string // can be approved now
	approve       []string // commands that approve
	approvesOther bool     // approval is for another release, which goes first
	unreleased    []string // nothing was ever released to it
	suspended     []string // its rollout is paused at its own step and needs a person
	promote       []string // commands that continue the rollout
	cancelled     []string // also: its current version was cancelled
	skipped       []string // a newer release entered instead
	reported      []string // dry run: a report-only channel would apply it
	converged     []string
	missingConfig []string // configuration that is missing where it converged
}

func outcomeOf(in groups, g Goal, what string) Outcome {
	switch {
	case g.Approval == EndsAtApprovalNow && in.approvableNow():
		return in.approvalOutcome(what)
	case g.Approval == EndsAtApprovalNow && len(in.suspended) > 0:
		return in.stepOutcome(what)
	}
	return in.outcome(g, what)
}

// outcome returns the outcome if no channel needs a person at once.
func (in groups) outcome(g Goal, what string) Outcome {
	list := func(names []string) string { return strings.Join(names, ", ") }
	switch {
	case len(in.progressing) > 0:
		return Outcome{Why: what + " is in progress in " + list(in.progressing)}
	case len(in.waiting) > 0:
		return Outcome{Why: what + " waits in " + list(in.waiting) + listAfter(" for ", in.gates)}
	case len(in.unobserved) > 0 && len(in.approval) == 0:
		return Outcome{Why: what + " waits in " + list(in.unobserved) + ", which cannot be read: " + in.readError}
	case len(in.failed)+len(in.rolledBack) > 0:
		return in.failureOutcome(what)
	case len(in.blocked) > 0:
		return in.blockedOutcome(what)
	case len(in.paused) > 0:
		return Final(Person, what+" is paused in "+list(in.paused))
	case len(in.pinned) > 0:
		return Final(Person, what+" is held by a pin in "+list(in.pinned))
	case len(in.approval) > 0:
		out := in.approvalOutcome(what)
		out.Final = g.Approval == EndsAtApproval
		return out
	case len(in.suspended) > 0:
		out := in.stepOutcome(what)
		out.Final = g.Approval == EndsAtApproval
		return out
	case in.onlyReportOnly():
		return Final(Done, Join("; ", what+" would be applied in "+list(in.reported)+", where Converge only reports",
			listAfter("it converged in ", in.converged), listAfter("it waits for that in ", in.queued)))
	case len(in.queued) > 0:
		return Outcome{Why: what + " waits in " + list(in.queued)}
	}
	return in.settledOutcome(what)
}

// failureOutcome is the outcome if the release failed, or was rolled back.
func (in groups) failureOutcome(what string) Outcome {
	why := Join("; ", listAfter(what+" failed in ", in.failed), listAfter(what+" was rolled back in ", in.rolledBack))
	if waiting := append(in.blocked, in.queued...); len(waiting) > 0 {
		why += "; " + strings.Join(waiting, ", ") + " blocked by that"
	}
	out := failedOutcome(why)
	if len(in.rolledBack) == 0 && in.degradedCount == len(in.failed) {
		out.Next = "Next: " + in.remedy + "."
	}
	return out
}

// settledOutcome is the outcome if nothing is left that could move.
func (g *groups) settledOutcome(what string) Outcome {
	list := func(names []string) string { return strings.Join(names, ", ") }
	switch {
	case len(g.cancelled) > 0:
		return Final(Failed, what+" was cancelled in "+list(g.cancelled))
	case len(g.converged) == 0 && len(g.skipped) > 0:
		return Final(Done, what+" was skipped: a newer release entered "+list(g.skipped))
	}
	nothing := listAfter("nothing was released yet to ", g.unreleased)
	if len(g.converged)+len(g.missingConfig) == 0 && nothing != "" {
		return Final(Done, "no version of "+what+" was released yet")
	}
	return Final(Done, Join("; ", what+" converged"+listAfter(" in ", g.converged), nothing, strings.Join(g.missingConfig, ", ")))
}

// blockedOutcome is the outcome if a failure must be fixed or bypassed.
func (g *groups) blockedOutcome(what string) Outcome {
	out := failedOutcome(what + " is blocked in " + strings.Join(g.blocked, ", "))
	if g.failure != "" {
		out.Why += ": " + g.failure
	}
	if g.unblock != "" {
		out.Next = "Next: " + g.unblock + "."
	}
	return out
}

// ApprovableNow returns what a release waits for, if an approval that can be given now would advance it.
func ApprovableNow(s protocol.Status, r protocol.ReleaseStatus) (Outcome, bool) {
	in := releaseGroups(s, r, Goal{})
	return in.approvalOutcome(s.Service + " " + r.Version), in.approvableNow()
}

// approvableNow reports whether an approval would advance the release itself. An approval of an earlier release does so only when this
// release can go no further without a person. Until then this release may still enter first.
func (g *groups) approvableNow() bool {
	return len(g.approval) > 0 && (!g.approvesOther || len(g.progressing)+len(g.waiting) == 0)
}

// onlyReportOnly reports whether only report-only channels are left.
func (g *groups) onlyReportOnly() bool { return len(g.reported) > 0 && len(g.cancelled) == 0 }

// approvalOutcome is the outcome if only an approver can advance it.
func (g *groups) approvalOutcome(what string) Outcome {
	out := Final(Person, what+" waits for an approval in "+strings.Join(g.approval, ", "))
	if len(g.approve) > 0 {
		out.Next = "Next: " + strings.Join(g.approve, ", or ") + "."
	}
	return out
}

// stepOutcome is the outcome if only a person who promotes the rollout can advance it.
func (g *groups) stepOutcome(what string) Outcome {
	out := Final(Person, what+" waits for a person at a rollout step in "+strings.Join(g.suspended, ", "))
	if len(g.promote) > 0 {
		out.Next = "Next: " + strings.Join(g.promote, ", or ") + "."
	}
	return out
}

// suspendedGroup selects the group of a channel whose rollout waits at its own step.
func (g *groups) suspendedGroup(c protocol.ChannelStatus) *[]string {
	for _, r := range c.Reasons {
		if r.Unblock != "" {
			g.promote = append(g.promote, r.Unblock)
		}
	}
	return &g.suspended
}

// listAfter puts a lead before names. It returns nothing for no names.
func listAfter(lead string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return lead + strings.Join(names, ", ")
}

// Join joins the parts that are not empty.
func Join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), sep)
}

// releaseGroups groups channels by the phase of the release there, and, before it has ended, by the current activity of the channel.
func releaseGroups(s protocol.Status, r protocol.ReleaseStatus, g Goal) groups {
	var out groups
	for _, c := range s.Channels {
		phase := r.Phases[c.Name]
		if phase == "" || g.Channel != "" && c.Name != g.Channel {
			continue
		}
		to := &out.converged
		switch maestro.Phase(phase) {
		case maestro.Failed, maestro.RolledBack:
			to = out.endedGroup(c, maestro.Phase(phase))
		case maestro.Cancelled:
			to = &out.cancelled
		case maestro.Skipped:
			to = &out.skipped
		case maestro.InProgress:
			to = out.inProgressGroup(c)
		case maestro.Pending:
			to = out.pendingGroup(c, r.Version)
		}
		name := c.Name
		if to == &out.approval && c.Desired != r.Version {
			out.approvesOther = true
			name += " behind " + c.Desired
		}
		if kept := r.KeptVersions[name]; to == &out.converged && kept != "" {
			name += " as " + kept
		}
		*to = append(*to, name)
	}
	return out
}

// endedGroup selects the group of a channel in which the release failed or was rolled back. A newer release may have followed.
func (g *groups) endedGroup(c protocol.ChannelStatus, phase maestro.Phase) *[]string {
	switch status := entities.Status(c.Status); {
	case status == entities.StatusRollingBack:
		return &g.progressing // until the rollback is complete
	case status == entities.StatusRolledBack, phase == maestro.RolledBack && status != entities.StatusFailedRollback:
		return &g.rolledBack
	}
	return &g.failed
}

// inProgressGroup selects the group of a channel whose target is the release.
func (g *groups) inProgressGroup(c protocol.ChannelStatus) *[]string {
	switch entities.Status(c.Status) {
	case entities.StatusPaused:
		return &g.paused
	case entities.StatusSuspended:
		return g.suspendedGroup(c)
	case entities.StatusFailed, entities.StatusFailedRollback:
		return &g.failed
	case entities.StatusUnknown:
		return g.unobservedGroup(c)
	case entities.StatusPreconditions, entities.StatusManualApproval, entities.StatusBlocked:
		if c.ReportOnly { // a release that waits is behind this one
			return &g.reported
		}
	}
	return &g.progressing
}

// pendingGroup selects the group of a channel that the release has not entered. If another release is ahead of it there, the channel's wait
// is not the wait of this release. The exception is a wait for a person, because both need it.
func (g *groups) pendingGroup(c protocol.ChannelStatus, version string) *[]string {
	status := entities.Status(c.Status)
	switch {
	case status == entities.StatusPaused:
		return &g.paused
	case status == entities.StatusDeleted: // until a user restores it
		return &g.blocked
	case c.Desired != version && status != entities.StatusManualApproval:
		return &g.queued
	case c.Desired != c.Target && slices.Contains(overridingStatuses, status):
		return g.conditionGroup(c)
	}
	return g.statusGroup(c)
}

// overridingStatuses lists the statuses that describe the current version. They are shown instead of what the next release waits for.
var overridingStatuses = []entities.Status{entities.StatusFailed, entities.StatusFailedRollback, entities.StatusDegraded, entities.StatusUnknown}

// conditionGroup groups a channel by what the next release waits for, because its status does not show that.
func (g *groups) conditionGroup(c protocol.ChannelStatus) *[]string {
	failed := func(k protocol.ConditionStatus) bool { return k.Verdict == string(entities.Fail) }
	switch {
	case slices.ContainsFunc(c.Conditions, failed):
		g.noteFailedGate(c)
		return &g.blocked
	case len(commands(c)) > 0:
		return g.approvalGroup(c)
	case c.Unread != nil:
		return g.unobservedGroup(c)
	case slices.ContainsFunc(c.Conditions, Unmet):
		return g.preconditionGroup(c)
	}
	return &g.progressing
}

// unobservedGroup selects the group of a channel whose instances cannot be read. Before the first attempt it counts as moving.
func (g *groups) unobservedGroup(c protocol.ChannelStatus) *[]string {
	if c.Unread == nil {
		return &g.progressing
	}
	if g.readError == "" {
		g.readError = c.Unread.Text()
	}
	return &g.unobserved
}

// approvalGroup selects the group of a channel that can be approved now.
func (g *groups) approvalGroup(c protocol.ChannelStatus) *[]string {
	for _, command := range commands(c) {
		if !slices.Contains(g.approve, command) {
			g.approve = append(g.approve, command)
		}
	}
	return &g.approval
}

// preconditionGroup selects the group of a channel that waits for conditions other than approvals.
func (g *groups) preconditionGroup(c protocol.ChannelStatus) *[]string {
	switch {
	case onlyDryRunPending(c):
		return &g.reported
	case pinned(c):
		return &g.pinned
	case waitsForChannel(c):
		return &g.queued
	}
	for _, k := range c.Conditions {
		if Unmet(k) && !slices.Contains(g.gates, k.ID) {
			g.gates = append(g.gates, k.ID)
		}
	}
	return &g.waiting
}

// statusGroup groups a channel that the next release may not enter yet.
func (g *groups) statusGroup(c protocol.ChannelStatus) *[]string {
	switch entities.Status(c.Status) {
	case entities.StatusBlocked:
		g.noteFailedGate(c)
		return &g.blocked
	case entities.StatusSuspended:
		return g.suspendedGroup(c)
	case entities.StatusManualApproval:
		return g.approvalGroup(c)
	case entities.StatusPreconditions:
		return g.preconditionGroup(c)
	case entities.StatusUnknown:
		return g.unobservedGroup(c)
	}
	return &g.progressing
}

// noteFailedGate records what blocks the first blocked channel.
func (g *groups) noteFailedGate(c protocol.ChannelStatus) {
	for _, k := range c.Conditions {
		if g.failure != "" || k.Verdict != string(entities.Fail) {
			continue
		}
		if g.failure, g.unblock = k.Reason, k.Unblock; !k.Plain {
			g.failure = Join(": ", k.ID, k.Reason)
		}
	}
}

// onlyDryRunPending reports whether only dry-run changes are pending for a channel. Its desired version then equals its target.
func onlyDryRunPending(c protocol.ChannelStatus) bool {
	return c.ReportOnly && (c.Desired == "" || c.Desired == c.Target) && !slices.ContainsFunc(c.Conditions, Unmet)
}

// Unmet reports whether a condition was evaluated and does not pass.
func Unmet(k protocol.ConditionStatus) bool {
	return k.Verdict != string(entities.Pass) && k.Code != string(decide.CodeNotEvaluated)
}

// commands returns the commands that give the approvals a channel waits for.
func commands(c protocol.ChannelStatus) []string {
	var out []string
	for _, k := range c.Conditions {
		if k.Verdict == string(entities.Wait) && strings.HasPrefix(k.ID, "approval/") && k.Unblock != "" && !slices.Contains(out, k.Unblock) {
			out = append(out, k.Unblock)
		}
	}
	return out
}

func pinned(c protocol.ChannelStatus) bool {
	return slices.ContainsFunc(c.Conditions, func(k protocol.ConditionStatus) bool { return k.ID == "pin" && k.Verdict != string(entities.Pass) })
}

// waitsForChannel reports whether a channel waits for another channel. Its other conditions cannot advance it before that one passes. A
// condition that only needs time does not count.
func waitsForChannel(c protocol.ChannelStatus) bool {
	return slices.ContainsFunc(c.Conditions, func(k protocol.ConditionStatus) bool {
		return Unmet(k) && strings.HasPrefix(k.ID, string(entities.ChannelStable)+"/") && k.NextCheck.IsZero()
	})
}

// serviceGroups groups channels by status alone, in the order of the table of statuses for `wait`.
func serviceGroups(s protocol.Status, g Goal) groups {
	var out groups
	if len(s.Channels) == 0 {
		out.progressing = append(out.progressing, "no channel yet")
	}
	for _, c := range s.Channels {
		if g.Channel != "" && c.Name != g.Channel {
			continue
		}
		if c.Status == string(entities.StatusOrphaned) {
			continue // orphaned on purpose: nothing to wait for
		}
		to := out.serviceGroup(s, c)
		if *to = append(*to, c.Name); c.MissingConfig != "" {
			out.missingConfig = append(out.missingConfig, c.Name+": "+c.MissingConfig)
		}
	}
	return out
}

// serviceGroup groups a declared channel.
func (g *groups) serviceGroup(s protocol.Status, c protocol.ChannelStatus) *[]string {
	switch status := entities.Status(c.Status); {
	case status == entities.StatusPaused:
		return &g.paused
	case status == entities.StatusRolledBack:
		return &g.rolledBack
	case status == entities.StatusCancelled:
		return &g.cancelled
	case status.Row().Exit == entities.ExitFailed && status != entities.StatusBlocked:
		g.noteRemedy(c)
		return &g.failed
	case status.Row().Exit != entities.ExitConverged:
		return g.statusGroup(c)
	case status != entities.StatusDeleted && hasOpenRelease(s, c.Name):
		return &g.queued
	case neverReleased(c):
		return &g.unreleased
	}
	return &g.converged
}

// noteRemedy records the remedy for a degraded channel, in which nothing failed that could be retried.
func (g *groups) noteRemedy(c protocol.ChannelStatus) {
	if c.Status != string(entities.StatusDegraded) {
		return
	}
	if g.degradedCount++; g.remedy != "" {
		return
	}
	g.remedy = "wait for its repair (see converge explain), or release a fix"
	for _, r := range c.Reasons {
		if r.Code == string(decide.ReasonCommand) {
			g.remedy = r.Text
		}
	}
}

// neverReleased reports whether nothing was ever released to a channel.
func neverReleased(c protocol.ChannelStatus) bool {
	return c.Status == string(entities.StatusConverged) && c.Target == "" && c.Current == ""
}

// hasOpenRelease reports whether a release has yet to reach a channel that is currently healthy.
func hasOpenRelease(s protocol.Status, channel string) bool {
	return slices.ContainsFunc(s.Releases, func(r protocol.ReleaseStatus) bool {
		p := maestro.Phase(r.Phases[channel])
		return p != "" && !p.Over()
	})
}

// ReleaseWhere finds the newest release that matches.
func ReleaseWhere(s protocol.Status, match func(protocol.ReleaseStatus) bool) (protocol.ReleaseStatus, bool) {
	if i := slices.IndexFunc(s.Releases, match); i >= 0 { // newest first
		return s.Releases[i], true
	}
	return protocol.ReleaseStatus{}, false
}

// ReleaseByID finds a release.
func ReleaseByID(s protocol.Status, id string) (protocol.ReleaseStatus, bool) {
	return ReleaseWhere(s, func(r protocol.ReleaseStatus) bool { return r.ID == id })
}
