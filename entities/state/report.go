package state

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file is about report-only channels (A25): targets are set there, and nothing is written.

// onlyReported is the prefix of texts about targets there.
const onlyReported = "report only: "

// ReportsOnly reports whether a channel is report-only, or was when it was last declared.
func (s *State) ReportsOnly(channel string) bool {
	c := s.Channels[channel]
	return c != nil && c.Reports
}

// report applies a change of report-only mode. When a channel becomes enforced, targets that did not arrive must enter again: their gates
// passed some time ago.
func (s *State) report(spec *entities.ChannelSpec, now time.Time) {
	c, reports := s.Channel(spec.Name), spec.Report != ""
	if c.Reports == reports {
		return
	}
	c.Reports = reports
	if reports {
		for _, i := range s.In(spec.Name) { // a version that another tool brings counts again
			i.Delivery.Reported = false
		}
		s.Record(now, spec.Name, "is report-only from now on: nothing is applied")
		s.forgo(spec.Name, true, now)
		return
	}
	s.Record(now, spec.Name, "is enforced from now on")
	_, pinned := s.PinOf(spec.Name)
	for _, i := range s.In(spec.Name) {
		if d := &i.Delivery; !pinned && d.Target != nil && !d.Converged && d.Rollback == nil && d.Failure == "" {
			d.Reported = true
		}
	}
	for _, r := range s.Releases {
		if p := r.Phases[spec.Name]; p != nil && p.Phase == maestro.InProgress && s.unreached(spec.Name, r) {
			c.endWindow()
			s.setPhase(Change{Channel: spec.Name, Release: r.ID, Cause: "it was only reported here: its gates are evaluated again"}, maestro.Pending, now)
		}
	}
	s.forgo(spec.Name, true, now)
}

// unreached reports whether some instance of a channel has not converged at its target of a release.
func (s *State) unreached(channel string, r *Release) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return r.Concerns(i.ID) && (!i.IsAt(r) || !i.Delivery.Converged) })
}

// calledOffUnseen reports whether an instance's target came with a release that was cancelled while it was only reported.
func (s *State) calledOffUnseen(i *Instance) bool {
	d := &i.Delivery
	lost := d.Reported && s.Brought(i) == nil && !s.entersAnew(i) // with its channel, which was declared again
	return !d.Converged && (d.Reported || s.ReportsOnly(i.ID.Channel)) && (lost || s.calledOffHere(i))
}

// entersAnew reports whether the target of an instance is pending there, because its gates are evaluated again.
func (s *State) entersAnew(i *Instance) bool {
	return slices.ContainsFunc(s.Releases, func(r *Release) bool {
		p := r.Phases[i.ID.Channel]
		return p != nil && p.Phase == maestro.Pending && i.IsAt(r)
	})
}

// calledOffHere reports whether the target of an instance came with a release that was cancelled before it had succeeded there. Another
// tool may still bring it to a report-only channel.
func (s *State) calledOffHere(i *Instance) bool {
	r := s.Brought(i)
	return i.Delivery.Cancelled != "" || r != nil && r.Phases[i.ID.Channel].Phase == maestro.Cancelled
}
