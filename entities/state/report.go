package state

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file is about report-only channels (A25): targets are set there, and nothing is written.

// reportOnlyPrefix is the prefix of texts about targets there.
const reportOnlyPrefix = "report only: "

// IsReportOnly reports whether a channel is report-only, or was when it was last declared.
func (s *State) IsReportOnly(channel string) bool {
	c := s.Channels[channel]
	return c != nil && c.ReportOnly
}

// applyReportMode applies a change of report-only mode. When a channel becomes enforced, targets that did not arrive must enter again:
// their gates passed some time ago.
func (s *State) applyReportMode(spec *entities.ChannelSpec, now time.Time) {
	c, reportOnly := s.Channel(spec.Name), spec.Report != ""
	if c.ReportOnly == reportOnly {
		return
	}
	c.ReportOnly = reportOnly
	for _, i := range s.InstancesIn(spec.Name) { // what counts as the version of its objects depends on it
		i.Observed.request()
	}
	if reportOnly {
		for _, i := range s.InstancesIn(spec.Name) { // a version that another tool brings counts again
			i.Delivery.ReportedOnly = false
		}
		s.AppendJournal(now, spec.Name, "is report-only from now on: nothing is applied")
		s.cancelDependentConfigs(spec.Name, true, now)
		return
	}
	s.AppendJournal(now, spec.Name, "is enforced from now on")
	_, pinned := s.PinOf(spec.Name)
	for _, i := range s.InstancesIn(spec.Name) {
		if d := &i.Delivery; !pinned && d.Target != nil && !d.Converged && d.Rollback == nil && d.Failure == "" {
			d.ReportedOnly = true
		}
	}
	for _, r := range s.Releases {
		if p := r.Phases[spec.Name]; p != nil && p.Phase == maestro.InProgress && s.notAllConverged(spec.Name, r) {
			c.endWindow()
			s.setPhase(Change{Channel: spec.Name, Release: r.ID, Cause: "it was only reported here: its gates are evaluated again"}, maestro.Pending, now)
		}
	}
	s.cancelDependentConfigs(spec.Name, true, now)
}

// notAllConverged reports whether some instance of a channel has not converged at its target of a release.
func (s *State) notAllConverged(channel string, r *Release) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return r.HasPayload(i.ID) && (!i.IsAt(r) || !i.Delivery.Converged) })
}

// revokedBeforeApply reports whether an instance's target came with a release that was cancelled while it was only reported.
func (s *State) revokedBeforeApply(i *Instance) bool {
	d := &i.Delivery
	channelRemoved := d.ReportedOnly && s.TargetRelease(i) == nil && !s.targetPending(i) // with its channel, which was declared again
	return !d.Converged && (d.ReportedOnly || s.IsReportOnly(i.ID.Channel)) && (channelRemoved || s.targetCancelled(i))
}

// targetPending reports whether the target of an instance is pending there, because its gates are evaluated again.
func (s *State) targetPending(i *Instance) bool {
	return slices.ContainsFunc(s.Releases, func(r *Release) bool {
		p := r.Phases[i.ID.Channel]
		return p != nil && p.Phase == maestro.Pending && i.IsAt(r)
	})
}

// targetCancelled reports whether the target of an instance came with a release that was cancelled before it had succeeded there. Another
// tool may still bring it to a report-only channel.
func (s *State) targetCancelled(i *Instance) bool {
	r := s.TargetRelease(i)
	return i.Delivery.Cancelled != "" || r != nil && r.Phases[i.ID.Channel].Phase == maestro.Cancelled
}
