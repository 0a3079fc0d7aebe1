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
		Journal: slices.Clone(s.Journal), Status: string(entities.StatusUnknown), Deletion: deletion(s),
	}
	if s.Spec == nil {
		out.Headline = "no configuration yet"
		return out
	}
	out.Incarnation, out.Spec, out.Description = s.Spec.Incarnation, s.SpecDigest, s.Spec.Description
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
		if text := joins(s, c.Name); text != "" {
			out.Notes = append(out.Notes, c.Name+": "+text)
		}
	}
	worst := entities.Worst(all...)
	if s.Gone() {
		worst = entities.StatusDeleted
	}
	out.Status, out.Headline = string(worst), headline(s, d, worst)
	releases(s, d, &out)
	if s.WaitingConfig > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("config i%d waits for the next release", s.WaitingConfig))
	}
	out.Notes = append(out.Notes, s.Returns()...)
	if waits := s.AwaitingText(); waits != "" {
		out.Notes = append(out.Notes, waits)
	}
	if s.Unreleased != "" {
		out.Notes = append(out.Notes, s.Unreleased)
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

func deletion(s *state.State) *protocol.Deletion {
	if s.Deletion == nil {
		return nil
	}
	out := &protocol.Deletion{Who: s.Deletion.Who, Reason: s.Deletion.Reason, At: s.Deletion.At}
	for _, id := range s.Deletion.Gone {
		out.Gone = append(out.Gone, id.String())
	}
	return out
}

func channel(s *state.State, c *decide.ChannelDecision) protocol.ChannelStatus {
	remembered := s.Channels[c.Channel]
	if remembered == nil {
		remembered = &state.Channel{}
	}
	insts := s.In(c.Channel)
	out := protocol.ChannelStatus{
		Name: c.Channel, Key: remembered.Key, Runtime: runtimes(s, c.Channel), Status: string(c.Status), Health: string(c.Health), Current: entities.ShownVersions(c.Current.Active),
		ReportOnly: remembered.Reports, Since: remembered.Since, Conditions: []protocol.ConditionStatus{}, Objects: []entities.Object{}, Checks: checks(s, c.Channel, remembered),
	}
	shown := slices.Clone(insts)
	slices.SortStableFunc(shown, func(a, b *state.Instance) int { return drained(a) - drained(b) })
	for _, i := range shown {
		addInstance(&out, i)
		out.Unread = cmp.Or(out.Unread, unread(s, i))
	}
	if mayBeStable(s, c.Channel) {
		out.StableSince, out.StableFrom = remembered.StableSince, remembered.StableFrom
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
		line := protocol.Reason{Code: string(r.Code), Text: r.Text, Since: reasonSince(c.Status, remembered, insts)}
		if n == 0 {
			line.Unblock = unblock(s, c, insts)
		}
		out.Reasons = append(out.Reasons, line)
	}
	for _, j := range c.Gates {
		out.Conditions = append(out.Conditions, protocol.ConditionStatus{
			ID: j.ID, Kind: string(j.Kind), Subject: j.Subject, Verdict: string(j.Verdict), Code: string(j.Code), Reason: j.Reason,
			Since: j.Since, NextCheck: j.Next, Unblock: j.Unblock, Bypassable: j.Bypassable, Plain: j.Plain,
			Elsewhere: j.Elsewhere, Channels: channelsOf(s, c.Channel, j.ID), ApprovedBy: j.Have, Need: j.Need, Errors: j.Errors, Interval: j.Interval,
		})
	}
	instances(s, &out, c)
	out.Fleet = fleet(s, c)
	if s.DownIn(c.Channel) == nil {
		out.Lacks = s.Lacks(c.Channel)
	}
	for _, i := range insts {
		if to := s.Declares(i.ID); to != "" {
			out.MovesTo = to
		}
	}
	for _, l := range c.Left {
		out.Left = append(out.Left, protocol.LeftStatus{
			Instance: l.ID.String(), Runtime: l.Left.Runtime, Version: l.Left.Target.FullVersion, At: l.Left.At, Text: l.Text,
		})
	}
	return out
}

// mayBeStable reports whether a channel's stable time matters: a delivery is in progress, or the rollout has steps that wait for stable
// instances.
func mayBeStable(s *state.State, channel string) bool {
	spec, _ := s.Spec.Channel(channel)
	return spec.Rollout != nil || slices.ContainsFunc(s.In(channel), func(i *state.Instance) bool {
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

// joins names the instances of a fleet that have no version yet and no release on its way, although other instances have one; or "".
func joins(s *state.State, channel string) string {
	var none []string
	all := s.In(channel)
	for _, i := range all {
		coming := slices.ContainsFunc(s.Releases, func(r *state.Release) bool {
			p, ok := r.PhaseIn(channel)
			return ok && !p.Over() && r.Concerns(i.ID)
		})
		if i.Delivery.Target == nil && !coming {
			none = append(none, i.ID.Name)
		}
	}
	if len(none) == 0 || len(none) == len(all) {
		return ""
	}
	if more := len(none) - shownLeft; more > 0 {
		none = append(none[:shownLeft], fmt.Sprintf("%d more", more))
	}
	return "no version deployed yet to " + strings.Join(none, ", ")
}

// notes lists the configuration that a channel lacks, a pending move to another runtime, and objects left on other runtimes.
func notes(c *protocol.ChannelStatus) []string {
	var lines []string
	if c.Lacks != "" {
		lines = append(lines, c.Name+": "+c.Lacks)
	}
	if c.MovesTo != "" {
		lines = append(lines, fmt.Sprintf("%s is on %s until a release moves it to %s", c.Name, cmp.Or(c.Runtime, "other runtimes"), c.MovesTo))
	}
	for n, l := range c.Left {
		if n == shownLeft {
			return append(lines, fmt.Sprintf("%s: %d more on previous runtimes", c.Name, len(c.Left)-n))
		}
		lines = append(lines, l.Instance+": "+l.Text)
	}
	return lines
}

// shownLeft limits how many leftovers on other runtimes, or instances without a version, are named per channel.
const shownLeft = 3

// runtimes returns the runtime of a channel if all its instances are on the same one.
func runtimes(s *state.State, channel string) string {
	c, _ := s.Spec.Channel(channel)
	name := ""
	for _, i := range c.Instances {
		on, _ := s.Runtime(c.ID(i))
		if name != "" && on != name {
			return ""
		}
		name = on
	}
	return name
}

// drained is a sort key: instances on a drained runtime come last.
func drained(i *state.Instance) int {
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
	if l := d.Lease; l != nil && l.Granted.IsZero() && (out.LeaseAsked.IsZero() || l.Asked.Before(out.LeaseAsked)) {
		out.LeaseAsked = l.Asked
	}
	if d.Target != nil && (out.Target == "" || !d.Converged && !i.Drained) {
		out.Target, out.Desired = d.Target.FullVersion, d.Target.FullVersion
	}
}

// unread returns why the current version of an instance cannot be read, or nil. An instance that is no longer declared, or taken down, is
// not read.
func unread(s *state.State, i *state.Instance) *protocol.Unread {
	e := i.Observed.Reading.Err
	if e == nil || !s.Declared(i.ID) || s.DownIn(i.ID.Channel) != nil {
		return nil
	}
	return &protocol.Unread{Code: e.Code, Message: e.Message, Since: i.Observed.ErrSince}
}

// shownInstances limits how many instances of a fleet are listed.
const shownInstances = 50

// instances lists the instances of a fleet, worst status first.
func instances(s *state.State, out *protocol.ChannelStatus, c *decide.ChannelDecision) {
	all := slices.Clone(c.Instances)
	slices.SortStableFunc(all, func(a, b decide.InstanceDecision) int {
		return b.Status.Row().Severity - a.Status.Row().Severity
	})
	for n, d := range all {
		if n == shownInstances {
			out.MoreInstances = len(all) - n
			return
		}
		runtime, _ := s.Runtime(d.ID)
		one := protocol.InstanceStatus{
			Name: d.ID.Name, Runtime: runtime, Status: string(d.Status), Current: entities.ShownVersions(d.Current.Active), Reason: d.Current.Reason,
		}
		if i := s.Instances[d.ID]; i != nil {
			one.Unread = unread(s, i)
		}
		if i := s.Instances[d.ID]; i != nil && i.Delivery.Target != nil {
			one.Target = i.Delivery.Target.FullVersion
			if i.Delivery.Failure != "" {
				one.Reason = i.Delivery.Failure
			}
		}
		one.Reason = cmp.Or(d.Drained, one.Reason)
		out.Instances = append(out.Instances, one)
	}
}

// fleet counts the instances of a fleet, or returns nil if the channel has none.
func fleet(s *state.State, c *decide.ChannelDecision) *protocol.FleetStatus {
	if len(c.Instances) == 0 {
		return nil
	}
	r, at := newRollUp(s), map[string]*protocol.FleetStatus{} // by version
	out := &protocol.FleetStatus{}
	for _, d := range c.Instances {
		if !s.Declared(d.ID) { // a leftover of an instance that left the fleet
			continue
		}
		out.Instances++
		if i := s.Instances[d.ID]; i != nil && i.Delivery.Target != nil {
			version := r.title(i.Delivery.Target.FullVersion)
			if at[version] == nil {
				at[version] = &protocol.FleetStatus{Version: version}
			}
			paused := d.Status == entities.StatusPaused && i.Delivery.Converged && d.Current.Stable // a pause does not change the version
			if d.Status == entities.StatusConverged || paused {
				at[version].At++
			}
			if paused {
				at[version].AtPaused++
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
	if newest := at[r.newest(entities.SortedKeys(at))]; newest != nil {
		out.Version, out.At, out.AtPaused = newest.Version, newest.At, newest.AtPaused
	}
	return out
}

// rollUp orders the target versions of a fleet.
type rollUp struct {
	named map[string]string // the short version by full version; a new configuration may leave instances at an older full version
	order map[string]int    // the position of the newest release of a version, or of a value
}

func newRollUp(s *state.State) rollUp {
	r := rollUp{map[string]string{}, map[string]int{}}
	for n, release := range s.Releases { // oldest first
		r.named[release.FullVersion] = release.Version
		r.order[release.Version] = n + 1
	}
	return r
}

// title returns the version that a full version counts as, in any configuration: the short version with the values added later.
func (r rollUp) title(full string) string {
	if version, known := r.named[full]; known {
		return version
	}
	version, values := entities.SplitVersion(full)
	return entities.JoinVersion(cmp.Or(r.named[version], version), values)
}

// newest returns the version with the newest release. A tie is decided by the values. It returns "" if no release of the versions is known.
func (r rollUp) newest(versions []string) string {
	best, of := "", []int(nil)
	for _, title := range versions {
		version, values := entities.SplitVersion(title)
		orders := []int{r.order[version]}
		for _, v := range values {
			orders = append(orders, r.order[v])
		}
		slices.SortFunc(orders, func(a, b int) int { return b - a })
		if orders[0] > 0 && slices.Compare(orders, of) > 0 {
			best, of = title, orders
		}
	}
	return best
}

func reasonSince(status entities.Status, c *state.Channel, insts []*state.Instance) time.Time {
	for _, i := range insts {
		if status == entities.StatusUnknown && !i.Observed.ErrSince.IsZero() {
			return i.Observed.ErrSince
		}
		if status == entities.StatusUnknown && !i.Delivery.Apply.Untaken.IsZero() {
			return i.Delivery.Apply.Untaken
		}
	}
	return c.Since
}

// resume returns the command that ends the first pause of these instances, or "".
func resume(s *state.State, insts []*state.Instance) string {
	for _, i := range insts {
		if p, ok := s.PauseOf(i.ID); ok {
			return s.ResumeWith(p)
		}
	}
	return ""
}

// unblock returns the command that changes a status that does not end without an action.
func unblock(s *state.State, c *decide.ChannelDecision, insts []*state.Instance) string {
	switch c.Status {
	case entities.StatusPaused:
		return resume(s, insts)
	case entities.StatusManualApproval:
		if approvals := c.Approvals(); len(approvals) > 0 {
			return approvals[0].Unblock
		}
	case entities.StatusSuspended:
		if s.Steers(c.Channel) {
			return fmt.Sprintf("converge rollout promote %s/%s %s", s.Application, s.Title(), c.Channel)
		}
	case entities.StatusCancelled, entities.StatusDeleted:
		return commanded(c)
	case entities.StatusFailed: // how to permit a forbidden rollback matters more than how to retry
		return cmp.Or(commanded(c), again(s, c, insts))
	case entities.StatusFailedRollback, entities.StatusRolledBack:
		return again(s, c, insts)
	}
	return ""
}

// commanded returns the command in the reasons of a channel, or "".
func commanded(c *decide.ChannelDecision) string {
	for _, r := range c.Reasons {
		if r.Code == decide.ReasonCommand {
			return r.Text
		}
	}
	return ""
}

// again returns the command that retries a failed or rolled back version, or "".
func again(s *state.State, c *decide.ChannelDecision, insts []*state.Instance) string {
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
		line := protocol.CheckStatus{
			ID: id, Verdict: string(st.Verdict), Reason: st.Reason, Since: st.Since, At: st.At, Next: st.Next, Errors: st.Errors,
		}
		if st.Verdict == entities.Error {
			line.Next, line.Interval = st.Retry, s.Interval(channel, id)
		}
		out = append(out, line)
	}
	return out
}

// Limits of the listed releases. Services with many channels list fewer.
const (
	shownReleases = 1000
	leastReleases = 60
	shownPhases   = 30_000
)

// releases lists the releases, newest first. Beyond the limit, older waiting releases are only counted, except the next ones.
func releases(s *state.State, d *decide.Decision, out *protocol.Status) {
	room, next := max(leastReleases, min(shownReleases, shownPhases/max(1, len(d.Channels)))), d.Next()
	for _, r := range slices.Backward(s.Releases) {
		if len(out.Releases) >= room && !slices.Contains(next, r) && !inProgress(r) {
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
	out := protocol.ReleaseStatus{ID: r.ID, Version: r.FullVersion, Incarnation: r.Incarnation, Aspect: r.Line(), Sets: r.Sets, By: r.By, Proven: r.Subject != "", At: r.At, Phases: map[string]string{}}
	for _, channel := range entities.SortedKeys(r.Phases) {
		p := r.Phases[channel]
		out.Phases[channel] = string(p.Phase)
		if r.Keeps(channel) {
			if out.Keeps == nil {
				out.Keeps = map[string]string{}
			}
			out.Keeps[channel] = kept(s, r, channel)
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

// kept returns the full version of a release in a channel that keeps its version, or "".
func kept(s *state.State, r *state.Release, channel string) string {
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
		if (x.RunKey() == key || x.Again().RunKey() == key) && e.Running && x.Timeout > 0 {
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
