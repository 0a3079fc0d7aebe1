package state

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
)

// This file prevents rollbacks below the minimum version that the configuration names (noRollbackBelow): the versions that ran since
// cannot go back to those.

// ReturnsTo is the target of a rollback of an instance: the newest allowed good target other than the current one. If there is none, why
// states what prevents the newest; "" means that there is no good target at all.
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

// Barred returns why an instance may not go back to a target, or "". It is barred if it is below the configured minimum and the current
// target is not. A version that cannot be compared is barred. A person can bypass this for the current release.
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

// aboveFloor reports whether a full version is at or above the configured minimum, as far as it can be compared.
func (s *State) aboveFloor(version string) bool {
	c, _, ok := order.CompareVersions(order.Named(version), s.Spec.NoRollbackBelow)
	return !ok || c >= 0
}

// PassFloor is the command that allows a rollback of an instance below the configured minimum.
func (s *State) PassFloor(i *Instance) string {
	return fmt.Sprintf("to roll back anyway: converge bypass %s/%s %s %s %s --reason …", s.Application, s.Title(), i.present(), i.ID.Channel, entities.NoRollbackBelow)
}

// KeptByFloor reports whether a channel has an instance at a release that may need a bypass to be rolled back.
func (s *State) KeptByFloor(channel string, r *Release) bool {
	return s.Spec.NoRollbackBelow != "" && s.aboveFloor(r.FullVersion) && s.isAt(channel, r)
}

// keptFromPin returns an error for a pin to a target that an instance may not go back to.
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
