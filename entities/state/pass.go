package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file lets values of an aspect pass a release that goes through a fleet, between two of its steps (B5). That release is set aside
// until then: it is in progress, and does not move. After the values have arrived everywhere, the state is as if they had been there
// first and the release had come on top of them. So only the aspect that failed is rolled back.

// Aside is the stored state of a release that is set aside.
type Aside struct {
	Reason string `json:"reason,omitempty"` // of its phase, before
	// ConvergedAt is since when the instances were stable at it. Its pause continues for instances that stay stable.
	ConvergedAt map[entities.InstanceID]time.Time `json:"arrived,omitempty"`
}

// Aside implements maestro.Release.
func (r *Release) Aside(channel string) bool {
	p := r.phaseState(channel)
	return p != nil && p.Aside != nil
}

// AsideIn is the release that is set aside in a channel, or nil.
func (s *State) AsideIn(channel string) *Release {
	if n := slices.IndexFunc(s.Releases, func(r *Release) bool { return r.Aside(channel) }); n >= 0 {
		return s.Releases[n]
	}
	return nil
}

// setAside lets the release in progress wait for values that are about to pass it.
func (s *State) setAside(c Change, now time.Time) {
	r := s.ReleaseByID(c.Release)
	p := r.Phases[c.Channel]
	p.Aside = &Aside{Reason: p.Reason, ConvergedAt: map[entities.InstanceID]time.Time{}}
	p.Reason = c.Cause
	for _, i := range s.InstancesIn(c.Channel) {
		if i.IsAt(r) {
			p.Aside.ConvergedAt[i.ID] = i.Delivery.ConvergedAt
		}
	}
	s.AppendJournal(now, c.Channel, r.FullVersion+" is set aside: "+c.Cause)
}

// continueAside continues a release that was set aside. Good values that came on top of it count as present before it from now on. If they
// were rolled back, the instance is at the release as before.
func (s *State) continueAside(c Change, now time.Time) {
	r := s.ReleaseByID(c.Release)
	p := r.Phases[c.Channel]
	for _, i := range s.InstancesIn(c.Channel) {
		switch d := &i.Delivery; {
		case i.IsAt(r) && s.rolledBackPassing(d.Rollback, r):
			d.Rollback, p.ResumedAt = nil, now // a failure there is the release's own
		case s.HasValuesOnTop(i, r):
			s.reorderBelow(i, r)
			d.ConvergedAt = cmp.Or(p.Aside.ConvergedAt[i.ID], d.ConvergedAt)
		}
	}
	p.Reason, p.Aside = p.Aside.Reason, nil
	s.AppendJournal(now, c.Channel, r.FullVersion+" continues")
}

// dropStableTimes removes the stable times of instances that are not stable any more at the release set aside.
func (s *State) dropStableTimes(c Change) {
	r := s.AsideIn(c.Channel)
	if r == nil || c.Kind != ChangeUnstable && c.Kind != ChangeFail && c.Kind != ChangePin {
		return
	}
	for _, id := range c.Instances {
		delete(r.Phases[c.Channel].Aside.ConvergedAt, id)
	}
	for _, m := range c.Moves {
		delete(r.Phases[c.Channel].Aside.ConvergedAt, m.Instance)
	}
}

// HasValuesOnTop reports whether values came to an instance on top of a release.
func (s *State) HasValuesOnTop(i *Instance, r *Release) bool {
	return i.Delivery.Target != nil && !i.IsAt(r) && s.targetIncludes(i, r)
}

// rolledBackPassing reports whether the release that was rolled back had passed release r.
func (s *State) rolledBackPassing(b *entities.Rollback, r *Release) bool {
	if b == nil {
		return false
	}
	by := s.ReleaseByID(b.Release)
	return by != nil && by.Track() != r.Track()
}

// reorderBelow changes the order of the values that came to an instance on top of a release: they count as present before it.
func (s *State) reorderBelow(i *Instance, r *Release) {
	d, current, version := &i.Delivery, *i.Delivery.Target, s.VersionOf(i)
	var rollbackTarget MergedTarget
	if by := s.TargetRelease(i); by != nil {
		rollbackTarget = by.RollbackTargets[i.ID]
		delete(by.RollbackTargets, i.ID)
	}
	for _, o := range s.Releases { // the same values may have been released before
		if i.IsAt(o) && o.Track() != r.Track() {
			delete(o.MergedTargets, i.ID)
			if rollbackTarget.Payload != "" {
				o.MergedTargets[i.ID] = rollbackTarget
			}
		}
	}
	r.setMergedTarget(Move{Instance: i.ID, Target: current, Version: version})
	d.EarlierGood = slices.DeleteFunc(slices.Clone(d.EarlierGood), func(t entities.Target) bool {
		return replaceAspect(current.FullVersion, t.FullVersion, r.Track()) == current.FullVersion // of the release, without the values
	})
	if rollbackTarget.Payload != "" {
		d.markGood(rollbackTarget.Target)
		d.markGood(current)
	}
}

// RollbackTargetBelow is the rollback target of a release at an instance after values came on top of it. It is to be rendered unless
// rendered is true. rendered is also true if there is none.
func (s *State) RollbackTargetBelow(i *Instance, r, values *Release) (op RenderOp, rendered bool) {
	_, full := s.MergedVersion(i, values)
	to, of, why := s.aspectRollbackTargetFrom(i, full, r)
	if why != "" {
		return op, true
	}
	op = RenderOp{Instance: i.ID, Release: values.ID, Present: i.currentVersion(), FullVersion: to.FullVersion, Version: of, RollbackTarget: true}
	return op, values.RollbackTargets[i.ID].FullVersion == to.FullVersion
}

func (r *Release) setRollbackTarget(id entities.InstanceID, k MergedTarget) {
	if r.RollbackTargets == nil {
		r.RollbackTargets = map[entities.InstanceID]MergedTarget{}
	}
	r.RollbackTargets[id] = k
}

// checkNotPassed returns an error for an action on a release while values pass it in one of these channels.
func (s *State) checkNotPassed(r *Release, channel string) error {
	for _, c := range s.phaseChannels(r, channel) {
		if why := r.passingReason(c); why != "" {
			return fmt.Errorf("%s in %s: %s", r.FullVersion, s.scopeName(c), why)
		}
	}
	return nil
}

// passingReason returns why a person cannot change a release in a channel, or "": values pass it there.
func (r *Release) passingReason(channel string) string {
	if !r.Aside(channel) {
		return ""
	}
	return r.Phases[channel].Reason + "; wait for that, or roll back the passing release first"
}
