package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file rolls releases back through the gates: manual rollbacks of services that are configured to evaluate gates for them, and the
// return after a pin. The earlier good version comes as a release, for the channels where another one is rolled back, and ahead of all
// pending releases there.

// openRollbackReleases opens the releases that roll one back, one for each version that it returns to. A change of configuration does not
// bring the release that is rolled back again.
func (s *State) openRollbackReleases(r *Release, changes []Change, who entities.Who, now time.Time) string {
	var texts []string
	var moves []Move
	for _, c := range changes {
		r.Phases[c.Channel].Revoked = true
		moves = append(moves, c.Moves...)
		s.withdraw(r, c.Channel, false, r.FullVersion+" is rolled back in "+c.Channel, now)
	}
	for _, by := range s.openReturns(moves, r.Aspect, who, now) {
		by.RollsBack = r.ID
	}
	for _, c := range changes {
		for _, m := range c.Moves {
			if text := c.Channel + " to " + m.Target.FullVersion; !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
		to := c.Moves[0].Target.FullVersion
		s.recordAction(entities.EventRollback, who, r, c.Channel, "to be rolled back to "+to+", which passes all gates first", c.Cause, now)
	}
	return fmt.Sprintf("%s is rolled back in %s once all gates pass, as for a release (rollback.gates is ask)", r.FullVersion, strings.Join(texts, ", "))
}

// openReturns opens a release for each version that instances return to, with the aspect that is rolled back, ahead of all pending
// releases there.
func (s *State) openReturns(moves []Move, aspect string, who entities.Who, now time.Time) (opened []*Release) {
	byVersion := map[string]*Release{}
	for _, m := range moves {
		version := m.Target.FullVersion
		if byVersion[version] == nil {
			byVersion[version] = s.openReturn(m.Target, who, now)
		}
		byVersion[version].addReturn(m, now)
	}
	for _, version := range entities.SortedKeys(byVersion) {
		byVersion[version].Aspect = aspect
		s.moveAhead(byVersion[version])
		opened = append(opened, byVersion[version])
	}
	return opened
}

// openReturn opens a release of an earlier good target, without instances yet.
func (s *State) openReturn(t entities.Target, who entities.Who, now time.Time) *Release {
	r := s.OpenRelease(NewRelease{
		Version: t.FullVersion, FullVersion: t.FullVersion, Incarnation: t.Incarnation, By: who.Name, Who: &who,
		Payloads: map[entities.InstanceID]string{},
	}, now)
	r.Return = true
	return r
}

// addReturn adds an instance to the release.
func (r *Release) addReturn(m Move, now time.Time) {
	r.Payloads[m.Instance] = m.Target.Payload
	if m.Target.Runtime != "" {
		if r.Runtimes == nil {
			r.Runtimes = map[entities.InstanceID]string{}
		}
		r.Runtimes[m.Instance] = m.Target.Runtime
	}
	if m.Version != "" {
		r.setMergedTarget(m)
	}
	r.Phases[m.Instance.Channel] = &PhaseState{Phase: maestro.Pending, Since: now}
}

// rollsBack reports whether a release rolls another one back.
func (r *Release) rollsBack(other *Release) bool { return r != nil && r.RollsBack == other.ID }

// isRollback reports whether this release rolls another one back. A return from a pin rolls nothing back.
func (r *Release) isRollback() bool { return r != nil && r.RollsBack != "" }

// RollbackOf is the release that will roll another one back in a channel once all gates pass, or is doing so; or nil.
func (s *State) RollbackOf(r *Release, channel string) *Release {
	for _, by := range s.Releases {
		if by.rollsBack(r) {
			if p := by.phaseState(channel); p != nil && !p.Phase.Over() {
				return by
			}
		}
	}
	return nil
}

// recordRolledBack records that a release was rolled back in a channel, when the release that does so has entered there or a newer one has
// passed it.
func (s *State) recordRolledBack(by *Release, channel string, now time.Time) {
	if !by.isRollback() {
		return
	}
	r := s.ReleaseByID(by.RollsBack)
	if r == nil {
		return
	}
	if p := r.phaseState(channel); p != nil && p.Phase.Entered() && p.Phase != maestro.RolledBack {
		r.Phases[channel] = &PhaseState{Phase: maestro.RolledBack, Since: now, Reason: "by " + by.By, Revoked: true}
	}
}

// pendingReturn is a pending release that rolls another one back in a channel, or nil.
func (s *State) pendingReturn(channel string) *Release {
	for _, r := range s.Releases {
		if p := r.phaseState(channel); r.Return && p != nil && p.Phase == maestro.Pending {
			return r
		}
	}
	return nil
}

// moveAhead puts a release before all pending releases of its track in its channels: directly after the last one that entered there.
func (s *State) moveAhead(r *Release) {
	others := slices.DeleteFunc(slices.Clone(s.Releases), func(o *Release) bool { return o == r })
	at := 0
	for n, o := range others {
		for _, c := range entities.SortedKeys(r.Phases) {
			if p := o.phaseState(c); p != nil && o.Track() == r.Track() && (p.Phase.Entered() || o.Return && p.Phase == maestro.Pending) {
				at = n + 1
			}
		}
	}
	s.Releases = slices.Insert(others, at, r)
}

// checkPinGates returns an error for a pin of a channel to another than its current target, if a rollback must pass the gates.
func (s *State) checkPinGates(channel, version string, targets map[string]entities.Target) error {
	if !s.Spec.GatedRollback {
		return nil
	}
	for _, i := range s.InstancesIn(channel) {
		if t, ok := targets[i.ID.Name]; ok && !i.Delivery.Target.Same(t) {
			return fmt.Errorf("%s is not at %s, and a rollback must pass all gates there (rollback.gates is ask); roll back first: converge rollback %s/%s --channel %s",
				s.scopeName(channel), version, s.Application, s.Title(), channel)
		}
	}
	return nil
}

// PendingReturns lists the releases that wait to roll another one back, a line each.
func (s *State) PendingReturns() []string {
	var out []string
	for _, r := range s.Releases {
		for _, c := range entities.SortedKeys(r.Phases) {
			if r.Return && r.Phases[c].Phase == maestro.Pending {
				out = append(out, fmt.Sprintf("%s returns to %s once all gates pass, as requested by %s", c, r.FullVersion, r.By))
			}
		}
	}
	return out
}
