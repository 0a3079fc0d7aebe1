package state

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
)

// This file keeps rollbacks from versions that what has run since cannot go back to (noRollbackBelow).

// ReturnsTo is what a rollback leads an instance to: the newest good target other than the present one that it may go to. Where
// there is none, why says what keeps it from the newest; "" is that there is none at all.
func (s *State) ReturnsTo(i *Instance) (to *entities.Target, why string) {
	good := i.Delivery.pinnable()
	for n := range good {
		if good[n].Same(*i.Delivery.Target) {
			continue
		}
		barred := s.Barred(i, good[n])
		if barred == "" {
			return &good[n], ""
		}
		if why == "" {
			why = barred
		}
	}
	return nil, why
}

// Barred says why an instance may not go back to a target, or "": it is below what the configuration names, and the present one is
// not. What cannot be compared may not. A person can let the release that is there be taken back all the same.
func (s *State) Barred(i *Instance, to entities.Target) string {
	floor := s.Spec.NoRollbackBelow
	if floor == "" || !s.aboveFloor(i.present()) {
		return ""
	}
	c, _, ok := order.CompareVersions(order.Named(to.FullVersion), floor)
	r := s.Brought(i)
	switch {
	case ok && c >= 0, r != nil && r.Bypassed(i.ID.Channel, entities.NoRollbackBelow) != nil:
		return ""
	case !ok:
		return fmt.Sprintf("%s cannot be compared with %s (noRollbackBelow)", to.FullVersion, floor)
	}
	return fmt.Sprintf("%s is below %s (noRollbackBelow)", to.FullVersion, floor)
}

// aboveFloor tells whether a full version is not below what the configuration names, as far as one can tell.
func (s *State) aboveFloor(version string) bool {
	c, _, ok := order.CompareVersions(order.Named(version), s.Spec.NoRollbackBelow)
	return !ok || c >= 0
}

// PassFloor is what a person types to have what is in an instance taken back below what the configuration names.
func (s *State) PassFloor(i *Instance) string {
	return fmt.Sprintf("to go back all the same: converge bypass %s/%s %s %s %s --reason …", s.Application, s.Title(), i.present(), i.ID.Channel, entities.NoRollbackBelow)
}

// KeptByFloor tells whether a release is somewhere in a channel that it cannot be taken back from without a bypass.
func (s *State) KeptByFloor(channel string, r *Release) bool {
	return s.Spec.NoRollbackBelow != "" && s.aboveFloor(r.FullVersion) && s.isAt(channel, r)
}

// keptFromPin refuses to pin a channel to what it may not go back to.
func (s *State) keptFromPin(channel string, targets map[string]entities.Target) error {
	for _, i := range s.In(channel) {
		if t, ok := targets[i.ID.Name]; ok && !i.Delivery.Target.Same(t) {
			if why := s.Barred(i, t); why != "" {
				return fmt.Errorf("%s cannot be pinned there: %s; %s", s.Shown(i.ID), why, s.PassFloor(i))
			}
		}
	}
	return nil
}
