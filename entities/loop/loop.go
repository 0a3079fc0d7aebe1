// Package loop repeats decide and commit until the state no longer changes. Only here does a decision become part of the state. It
// imports decide and state only.
package loop

import (
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/state"
)

// Settle decides and commits until nothing changes, and returns the last decision with the changes and the work of every pass. It
// terminates: every change moves a release or an instance in one direction only.
func Settle(s *state.State, now time.Time, mode decide.Mode) *decide.Decision {
	var all decide.Decision
	for {
		d := decide.Decide(s, now, mode)
		s.Commit(d.Changes, &d.Work, now)
		idle := !d.HasEffects()
		all.Join(d)
		if !idle {
			continue
		}
		d.ReplaceWork(&all)
		for n := range d.Channels {
			recordStatus(s, &d.Channels[n], now)
		}
		forgetApprovals(s, d)
		s.Prune()
		s.Offload(d.Next())
		return d
	}
}

// recordStatus records the new status of a channel for people, and removes the readings that its gates do not need any more.
func recordStatus(s *state.State, c *decide.ChannelDecision, now time.Time) {
	if c.Status == entities.StatusManualApproval {
		announceWaiting(s, c, now)
	}
	if s.Channel(c.Channel).Status != c.Status {
		s.RecordStatus(c.Channel, c.Status, c.Texts(), now)
	}
	s.PruneReadings(c.Channel, c.NeededChecks)
	s.Channel(c.Channel).Candidate = candidateID(c.Next)
}

// candidateID is the id of a release that follows a strategy, or "".
func candidateID(r *state.Release) string {
	if r == nil {
		return ""
	}
	return r.ID
}

// forgetApprovals drops the approvals of applies that will not happen any more.
func forgetApprovals(s *state.State, d *decide.Decision) {
	if s.Spec == nil {
		return
	}
	for n := range s.Spec.Channels { // the decision has them in the same order
		s.DropStaleApprovals(&s.Spec.Channels[n], func(id entities.InstanceID) bool { return needsRepair(&d.Channels[n], id) })
	}
}

// needsRepair reports whether an instance needs a repair, in addition to anything else. A single instance has the status of its channel.
func needsRepair(c *decide.ChannelDecision, id entities.InstanceID) bool {
	status, current := c.Status, c.Current
	for n := range c.Instances {
		if i := &c.Instances[n]; i.ID == id {
			status, current = i.Status, i.Current
		}
	}
	return status == entities.StatusDegraded || !current.Stable
}

func announceWaiting(s *state.State, c *decide.ChannelDecision, now time.Time) {
	var approvals []string
	for _, j := range c.Gates {
		if j.Verdict != entities.Pass && j.Kind == decide.KindApproval {
			approvals = append(approvals, j.ID)
		}
	}
	s.AnnounceWaiting(c.Channel, c.Next, approvals, now)
}
