package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Of builds the status of a service from its state and the last decision about it.
func Of(s *state.State, d *decide.Decision) protocol.Status {
	out := protocol.Status{
		Schema: protocol.StatusSchema, Application: s.Application, Service: s.Title(), Key: key(s), Store: s.Store,
		Channels: []protocol.ChannelStatus{}, Releases: []protocol.ReleaseStatus{}, Pins: pins(s),
		Pauses: append([]entities.Pause{}, s.Pauses...), Refused: append([]entities.Refusal{}, s.Refused...),
		Journal: slices.Clone(s.Journal), Status: string(entities.StatusUnknown), Deletion: deletion(s), Restarts: restarts(s),
	}
	if s.Spec == nil {
		out.Headline = "no configuration yet"
		return out
	}
	out.Incarnation, out.Spec, out.Description = s.Spec.Incarnation, s.SpecDigest, s.Spec.Description
	out.Board = entities.BoardLink(s.Spec.Board, s.Application, s.Title())
	out.Undelivered = s.Undelivered(s.Spec.Notifications)
	if newest := s.Newest(); newest != nil {
		out.Version = newest.FullVersion
	}
	all := make([]entities.Status, 0, len(d.Channels))
	for n := range d.Channels {
		c := channel(s, &d.Channels[n])
		all = append(all, d.Channels[n].Status)
		if c.ObservedAt.After(out.ObservedAt) {
			out.ObservedAt = c.ObservedAt
		}
		out.Channels, out.Notes = append(out.Channels, c), append(out.Notes, notes(&c)...)
		if text := instancesWithoutVersion(s, c.Name); text != "" {
			out.Notes = append(out.Notes, c.Name+": "+text)
		}
	}
	worst := entities.Worst(all...)
	if s.FullyRemoved() {
		worst = entities.StatusDeleted
	}
	out.Status, out.Headline = string(worst), headline(s, d, worst)
	releases(s, d, &out)
	if s.WaitingConfig > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("config i%d waits for the next release", s.WaitingConfig))
	}
	out.Notes = append(out.Notes, s.PendingReturns()...)
	if awaiting := s.PendingIncarnationText(); awaiting != "" {
		out.Notes = append(out.Notes, awaiting)
	}
	if s.RenderFailure != "" {
		out.Notes = append(out.Notes, s.RenderFailure)
	}
	if s.Problem != "" {
		out.Notes = append(out.Notes, s.Problem)
	}
	if pending := s.AuditPending(); pending != "" {
		out.Notes = append(out.Notes, pending)
	}
	return out
}

// key returns the original name of a service that was renamed, or "".
func key(s *state.State) string {
	if s.Title() == s.Service {
		return ""
	}
	return s.Service
}

func pins(s *state.State) []protocol.PinStatus {
	out := make([]protocol.PinStatus, 0, len(s.Pins))
	for _, p := range s.Pins {
		out = append(out, protocol.PinStatus{Channel: p.Channel, Version: p.Version, Who: p.Who, Reason: p.Reason, At: p.At})
	}
	return out
}

func restarts(s *state.State) *entities.Restarts {
	if s.Restarts.Count == 0 {
		return nil
	}
	out := s.Restarts
	return &out
}

func deletion(s *state.State) *protocol.Deletion {
	if s.Deletion == nil {
		return nil
	}
	out := &protocol.Deletion{Who: s.Deletion.Who, Reason: s.Deletion.Reason, At: s.Deletion.At}
	for _, id := range s.Deletion.Removed {
		out.Gone = append(out.Gone, id.String())
	}
	return out
}

func channel(s *state.State, c *decide.ChannelDecision) protocol.ChannelStatus {
	stored := s.Channels[c.Channel]
	if stored == nil {
		stored = &state.Channel{}
	}
	insts := s.InstancesIn(c.Channel)
	out := protocol.ChannelStatus{
		Name: c.Channel, Key: stored.Key, Runtime: commonRuntime(s, c.Channel), Status: string(c.Status), Health: string(c.Health), Current: entities.ShownVersions(c.Current.Active),
		ReportOnly: stored.ReportOnly, Since: stored.Since, Conditions: []protocol.ConditionStatus{}, Objects: []entities.Object{}, Checks: checks(s, c.Channel, stored),
	}
	sorted := slices.Clone(insts)
	slices.SortStableFunc(sorted, func(a, b *state.Instance) int { return drainedRank(a) - drainedRank(b) })
	for _, i := range sorted {
		addInstance(&out, i)
		out.Unread = cmp.Or(out.Unread, unread(s, i))
	}
	if stableTimeMatters(s, c.Channel) {
		out.StableSince, out.StableFrom = stored.StableSince, stored.StableFrom
	}
	switch c.Status {
	case entities.StatusConverging, entities.StatusDegraded, entities.StatusRollingBack:
		out.NextChange = c.Due // in other states the due time is for bookkeeping only
	}
	switch {
	case c.Held != nil:
		out.Desired = c.Held.FullVersion
	case c.Next != nil:
		out.Desired = c.Next.FullVersion
	}
	for n, r := range c.Reasons {
		reason := protocol.Reason{Code: string(r.Code), Text: r.Text, Since: reasonSince(c.Status, stored, insts)}
		if n == 0 {
			reason.Unblock = unblockCommand(s, c, insts)
		}
		out.Reasons = append(out.Reasons, reason)
	}
	for _, j := range c.Gates {
		out.Conditions = append(out.Conditions, protocol.ConditionStatus{
			ID: j.ID, Kind: string(j.Kind), Subject: j.Subject, Verdict: string(j.Verdict), Code: string(j.Code), Reason: j.Reason,
			Since: j.Since, NextCheck: j.Next, Unblock: j.Unblock, Bypassable: j.Bypassable, Plain: j.Plain,
			Elsewhere: j.Elsewhere, Channels: channelsOf(s, c.Channel, j.ID), ApprovedBy: j.Have, Need: j.Need, Eligible: j.Eligible, Errors: j.Errors, Interval: j.Interval,
		})
	}
	instances(s, &out, c)
	out.Fleet = fleet(s, c)
	if s.TakedownOf(c.Channel) == nil {
		out.MissingConfig = s.MissingConfig(c.Channel)
	}
	for _, i := range insts {
		if to := s.DeclaredRuntime(i.ID); to != "" {
			out.MovesTo = to
		}
	}
	for _, l := range c.Leftovers {
		out.PreviousPlacements = append(out.PreviousPlacements, protocol.PreviousPlacementStatus{
			Instance: l.ID.String(), Runtime: l.Placement.Runtime, Version: l.Placement.Target.FullVersion, At: l.Placement.At, Text: l.Text,
		})
	}
	return out
}

// stableTimeMatters reports whether a channel's stable time matters: a delivery is in progress, or the rollout has steps that wait for
// stable instances.
func stableTimeMatters(s *state.State, channel string) bool {
	spec, _ := s.Spec.Channel(channel)
	return spec.Rollout != nil || slices.ContainsFunc(s.InstancesIn(channel), func(i *state.Instance) bool {
		return i.Delivery.Target != nil && !i.Delivery.Converged
	})
}

// channelsOf returns the channels that a condition names.
func channelsOf(s *state.State, channel, condition string) []string {
	spec, _ := s.Spec.Channel(channel)
	for _, c := range spec.Conditions {
		if c.ID == condition {
			return c.Channels
		}
	}
	return nil
}

// instancesWithoutVersion names the instances of a fleet that have no version yet and no release on its way, although other instances have
// one; or "".
func instancesWithoutVersion(s *state.State, channel string) string {
	var names []string
	all := s.InstancesIn(channel)
	for _, i := range all {
		pending := slices.ContainsFunc(s.Releases, func(r *state.Release) bool {
			p, ok := r.PhaseIn(channel)
			return ok && !p.Over() && r.HasPayload(i.ID)
		})
		if i.Delivery.Target == nil && !pending {
			names = append(names, i.ID.Name)
		}
	}
	if len(names) == 0 || len(names) == len(all) {
		return ""
	}
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return "no version deployed yet to " + strings.Join(names, ", ")
}

// notes lists the configuration that a channel lacks, a pending move to another runtime, and objects left on other runtimes.
func notes(c *protocol.ChannelStatus) []string {
	var lines []string
	if c.MissingConfig != "" {
		lines = append(lines, c.Name+": "+c.MissingConfig)
	}
	if c.MovesTo != "" {
		lines = append(lines, fmt.Sprintf("%s is on %s until a release moves it to %s", c.Name, cmp.Or(c.Runtime, "other runtimes"), c.MovesTo))
	}
	for n, l := range c.PreviousPlacements {
		if n == maxNamed {
			return append(lines, fmt.Sprintf("%s: %d more on previous runtimes", c.Name, len(c.PreviousPlacements)-n))
		}
		lines = append(lines, l.Instance+": "+l.Text)
	}
	return lines
}

// maxNamed limits how many leftovers on other runtimes, or instances without a version, are named per channel.
const maxNamed = 3

// commonRuntime returns the runtime of a channel if all its instances are on the same one.
func commonRuntime(s *state.State, channel string) string {
	c, _ := s.Spec.Channel(channel)
	name := ""
	for _, i := range c.Instances {
		runtime, _ := s.Runtime(c.ID(i))
		if name != "" && runtime != name {
			return ""
		}
		name = runtime
	}
	return name
}

// drainedRank is a sort key: instances on a drained runtime come last.
func drainedRank(i *state.Instance) int {
	if i.Drained {
		return 1
	}
	return 0
}

// addInstance adds the facts of one instance to its channel.
func addInstance(out *protocol.ChannelStatus, i *state.Instance) {
	d := &i.Delivery
	out.Objects = append(out.Objects, i.Observed.Reading.Objects...)
	out.Omitted += i.Observed.Reading.Omitted
	if i.Observed.At.After(out.ObservedAt) {
		out.ObservedAt = i.Observed.At
	}
	if d.Rollback != nil && out.Rollback == nil {
		b := *d.Rollback
		out.Rollback = &b
	}
	if isApplying(i) && (out.ApplyEnds.IsZero() || d.Apply.Until.Before(out.ApplyEnds)) {
		out.ApplyEnds = d.Apply.Until
	}
	if l := d.Lease; l != nil && l.GrantedAt.IsZero() && (out.LeaseRequestedAt.IsZero() || l.RequestedAt.Before(out.LeaseRequestedAt)) {
		out.LeaseRequestedAt = l.RequestedAt
	}
	if d.Target != nil && (out.Target == "" || !d.Converged && !i.Drained) {
		out.Target, out.Desired = d.Target.FullVersion, d.Target.FullVersion
	}
}

// isApplying reports whether the current target of an instance is being applied.
func isApplying(i *state.Instance) bool {
	a, target := &i.Delivery.Apply, i.Delivery.Target
	return a.Running && a.EndRequested.IsZero() && !i.RemovalStarted && target != nil && a.RunningVersion == target.FullVersion
}

// unread returns why the current version of an instance cannot be read, or nil. An instance that is no longer declared, or was deleted, is
// not read.
func unread(s *state.State, i *state.Instance) *protocol.Unread {
	e := i.Observed.Reading.Err
	if e == nil || !s.Declared(i.ID) || s.TakedownOf(i.ID.Channel) != nil {
		return nil
	}
	return &protocol.Unread{Code: e.Code, Message: e.Message, Since: i.Observed.ErrSince}
}

// maxInstances limits how many instances of a fleet are listed.
const maxInstances = 50

// instances lists the instances of a fleet, worst status first.
func instances(s *state.State, out *protocol.ChannelStatus, c *decide.ChannelDecision) {
	all := slices.Clone(c.Instances)
	slices.SortStableFunc(all, func(a, b decide.InstanceDecision) int {
		return b.Status.Row().Severity - a.Status.Row().Severity
	})
	for n, d := range all {
		if n == maxInstances {
			out.MoreInstances = len(all) - n
			return
		}
		out.Instances = append(out.Instances, instance(s, d))
	}
}

// instance is the status of one instance of a fleet.
func instance(s *state.State, d decide.InstanceDecision) protocol.InstanceStatus {
	runtime, _ := s.Runtime(d.ID)
	entry := protocol.InstanceStatus{
		Name: d.ID.Name, Runtime: runtime, Status: string(d.Status), Current: entities.ShownVersions(d.Current.Active), Reason: d.Current.Reason,
	}
	if i := s.Instances[d.ID]; i != nil {
		entry.Unread = unread(s, i)
	}
	if i := s.Instances[d.ID]; i != nil && i.Delivery.Target != nil {
		entry.Target = i.Delivery.Target.FullVersion
		if i.Delivery.Failure != "" {
			entry.Reason = i.Delivery.Failure
		}
	}
	entry.Reason = cmp.Or(d.Drained, entry.Reason)
	return entry
}

// FleetStatus is a fleet as it is now, whole: a status lists no more than 50 of its instances.
type FleetStatus struct {
	Counts    protocol.FleetStatus
	Step      string                    // progress of a release that goes in steps
	Instances []protocol.InstanceStatus // in the order in which they are declared, which is that of the steps
}

// Fleet returns the fleet of a channel, or nil if it is none. It decides, and changes nothing.
func Fleet(s *state.State, channel string, now time.Time) *FleetStatus {
	d := decide.Decide(s, now, decide.Mode{})
	for n := range d.Channels {
		c := &d.Channels[n]
		counts := fleet(s, c)
		if c.Channel != channel || counts == nil {
			continue
		}
		out := &FleetStatus{Counts: *counts, Step: c.Step}
		for _, i := range c.Instances {
			out.Instances = append(out.Instances, instance(s, i))
		}
		return out
	}
	return nil
}

// fleet counts the instances of a fleet, or returns nil if the channel has none.
func fleet(s *state.State, c *decide.ChannelDecision) *protocol.FleetStatus {
	if len(c.Instances) == 0 {
		return nil
	}
	r, byVersion := newVersionOrder(s), map[string]*protocol.FleetStatus{} // by version
	out := &protocol.FleetStatus{}
	for _, d := range c.Instances {
		if !s.Declared(d.ID) { // a leftover of an instance that left the fleet
			continue
		}
		out.Instances++
		if i := s.Instances[d.ID]; i != nil && i.Delivery.Target != nil {
			version := r.title(i.Delivery.Target.FullVersion)
			if byVersion[version] == nil {
				byVersion[version] = &protocol.FleetStatus{Version: version}
			}
			otherwise := isOtherwiseAtVersion(d, i)
			if d.Status == entities.StatusConverged || otherwise {
				byVersion[version].AtVersion++
			}
			if otherwise {
				byVersion[version].OtherwiseAtVersion++
			}
		}
		if d.Status == entities.StatusConverged {
			continue
		}
		if out.ByStatus == nil {
			out.ByStatus = map[string]int{}
		}
		out.ByStatus[string(d.Status)]++
	}
	if newest := byVersion[r.newest(entities.SortedKeys(byVersion))]; newest != nil {
		out.Version, out.AtVersion, out.OtherwiseAtVersion = newest.Version, newest.AtVersion, newest.OtherwiseAtVersion
	}
	return out
}

// isOtherwiseAtVersion reports whether an instance that is not CONVERGED is at its version: a pause does not change it, and a rollback has ended.
func isOtherwiseAtVersion(d decide.InstanceDecision, i *state.Instance) bool {
	return d.Status == entities.StatusRolledBack || d.Status == entities.StatusPaused && i.Delivery.Converged && d.Current.Stable
}

// versionOrder orders the target versions of a fleet.
type versionOrder struct {
	shortNames map[string]string // the short version by full version; a new configuration may leave instances at an older full version
	order      map[string]int    // the position of the newest release of a version, or of a value
}

func newVersionOrder(s *state.State) versionOrder {
	r := versionOrder{map[string]string{}, map[string]int{}}
	for n, release := range s.Releases { // oldest first
		r.shortNames[release.FullVersion] = release.Version
		r.order[release.Version] = n + 1
	}
	return r
}

// title returns the version that a full version counts as, in any configuration: the short version with the values added later.
func (r versionOrder) title(full string) string {
	if version, known := r.shortNames[full]; known {
		return version
	}
	version, values := entities.SplitVersion(full)
	return entities.JoinVersion(cmp.Or(r.shortNames[version], version), values)
}

// newest returns the version with the newest release. A tie is decided by the values. It returns "" if no release of the versions is known.
func (r versionOrder) newest(versions []string) string {
	best, bestOrders := "", []int(nil)
	for _, title := range versions {
		version, values := entities.SplitVersion(title)
		orders := []int{r.order[version]}
		for _, v := range values {
			orders = append(orders, r.order[v])
		}
		slices.SortFunc(orders, func(a, b int) int { return b - a })
		if orders[0] > 0 && slices.Compare(orders, bestOrders) > 0 {
			best, bestOrders = title, orders
		}
	}
	return best
}

func reasonSince(status entities.Status, c *state.Channel, insts []*state.Instance) time.Time {
	for _, i := range insts {
		if status == entities.StatusUnknown && !i.Observed.ErrSince.IsZero() {
			return i.Observed.ErrSince
		}
		if status == entities.StatusUnknown && !i.Delivery.Apply.NoWorkerSince.IsZero() {
			return i.Delivery.Apply.NoWorkerSince
		}
	}
	return c.Since
}

// resumeCommand returns the command that ends the first pause of these instances, or "".
func resumeCommand(s *state.State, insts []*state.Instance) string {
	for _, i := range insts {
		if p, ok := s.PauseOf(i.ID); ok {
			return s.ResumeCommand(p)
		}
	}
	return ""
}

// unblockCommand returns the command that changes a status that does not end without an action.
func unblockCommand(s *state.State, c *decide.ChannelDecision, insts []*state.Instance) string {
	switch c.Status {
	case entities.StatusPaused:
		return resumeCommand(s, insts)
	case entities.StatusManualApproval:
		if approvals := c.Approvals(); len(approvals) > 0 {
			return approvals[0].Unblock
		}
	case entities.StatusSuspended:
		if s.HasPromotableRollout(c.Channel) {
			return fmt.Sprintf("converge promote %s/%s %s", s.Application, s.Title(), c.Channel)
		}
	case entities.StatusCancelled, entities.StatusDeleted:
		return commandReason(c)
	case entities.StatusFailed: // how to permit a forbidden rollback matters more than how to retry
		return cmp.Or(commandReason(c), retryCommand(s, c, insts))
	case entities.StatusFailedRollback, entities.StatusRolledBack:
		return retryCommand(s, c, insts)
	}
	return ""
}

// commandReason returns the command in the reasons of a channel, or "".
func commandReason(c *decide.ChannelDecision) string {
	for _, r := range c.Reasons {
		if r.Code == decide.ReasonCommand {
			return r.Text
		}
	}
	return ""
}

// retryCommand returns the command that retries a failed or rolled back version, or "".
func retryCommand(s *state.State, c *decide.ChannelDecision, insts []*state.Instance) string {
	version := ""
	for _, i := range insts {
		d := &i.Delivery
		switch {
		case version != "":
		case c.Status == entities.StatusRolledBack && d.Rollback != nil:
			version = d.Rollback.From
		case c.Status != entities.StatusRolledBack && d.Failure != "":
			version = d.Target.FullVersion
		}
	}
	if version == "" {
		return ""
	}
	return fmt.Sprintf("release a fix, or: converge retry %s/%s %s", s.Application, s.Title(), version)
}

// checks returns the newest results of the checks that are active.
func checks(s *state.State, channel string, c *state.Channel) []protocol.CheckStatus {
	var out []protocol.CheckStatus
	for _, id := range entities.SortedKeys(c.Checks) {
		st := c.Checks[id]
		status := protocol.CheckStatus{
			ID: id, Verdict: string(st.Verdict), Reason: st.Reason, Since: st.Since, At: st.At, Next: st.Next, Errors: st.Errors,
		}
		if st.Verdict == entities.Error {
			status.Next, status.Interval = st.Retry, s.CheckInterval(channel, id)
		}
		out = append(out, status)
	}
	return out
}

// Limits of the listed releases. Services with many channels list fewer.
const (
	maxReleases = 1000
	minReleases = 60
	maxPhases   = 30_000
)

// releases lists the releases, newest first. Beyond the limit, older waiting releases are only counted, except the next ones.
func releases(s *state.State, d *decide.Decision, out *protocol.Status) {
	limit, next := max(minReleases, min(maxReleases, maxPhases/max(1, len(d.Channels)))), d.Next()
	for _, r := range slices.Backward(s.Releases) {
		if len(out.Releases) >= limit && !slices.Contains(next, r) && !inProgress(r) {
			out.MoreReleases++
			continue
		}
		out.Releases = append(out.Releases, release(s, r))
	}
	if out.MoreReleases > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d older releases are not listed", out.MoreReleases))
	}
}

func inProgress(r *state.Release) bool {
	// The order does not matter.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase == maestro.InProgress {
			return true
		}
	}
	return false
}

func release(s *state.State, r *state.Release) protocol.ReleaseStatus {
	out := protocol.ReleaseStatus{ID: r.ID, Version: r.FullVersion, Incarnation: r.Incarnation, Aspect: r.Track(), ValuesText: r.ValuesText, By: r.By, Proven: r.Subject != "", At: r.At, Phases: map[string]string{}}
	for _, channel := range entities.SortedKeys(r.Phases) {
		p := r.Phases[channel]
		out.Phases[channel] = string(p.Phase)
		if r.KeepsVersion(channel) {
			if out.KeptVersions == nil {
				out.KeptVersions = map[string]string{}
			}
			out.KeptVersions[channel] = keptVersion(s, r, channel)
		}
		if p.Reason != "" {
			if out.Reasons == nil {
				out.Reasons = map[string]string{}
			}
			out.Reasons[channel] = p.Reason
		}
	}
	out.Approvals, out.Bypasses = slices.Clone(r.Approvals), slices.Clone(r.Bypasses)
	for _, key := range entities.SortedKeys(r.Extensions) {
		e := r.Extensions[key]
		out.Extensions = append(out.Extensions, protocol.ExtensionStatus{
			Key: key, Name: entities.ExtensionName(key), State: extensionState(e), Deadline: deadline(s.Spec, key, e), ExtensionProgress: e.ExtensionProgress,
		})
	}
	return out
}

// keptVersion returns the full version of a release in a channel that keeps its version, or "".
func keptVersion(s *state.State, r *state.Release, channel string) string {
	spec, _ := s.Spec.Channel(channel)
	for _, i := range spec.Instances {
		if t := r.Target(spec.ID(i)); t.FullVersion != "" {
			return t.FullVersion
		}
	}
	return ""
}

// deadline returns when a running extension times out. It is zero if none runs or there is no timeout.
func deadline(spec *entities.Spec, key string, e *state.ExtensionState) time.Time {
	c, _ := spec.Channel(e.Channel)
	for _, x := range c.Extensions {
		if (x.RunKey() == key || x.Repeating().RunKey() == key) && e.Running && x.Timeout > 0 {
			return e.Since.Add(x.Timeout)
		}
	}
	return time.Time{}
}

func extensionState(e *state.ExtensionState) string {
	switch {
	case e.Running:
		return "running"
	case e.Cancelled && !e.Done:
		return "cancelled"
	case e.Done:
		return "done"
	case e.Failed:
		return "failed"
	}
	return "waiting"
}
