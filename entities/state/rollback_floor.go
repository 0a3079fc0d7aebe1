package state

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/order"
)

// This file prevents rollbacks below the minimum version that the configuration names (noRollbackBelow): the versions that ran since
// cannot return to those.

// RollbackTarget is the target of a rollback of an instance: the newest allowed good target other than the current one. If there is none,
// why states what prevents the newest; "" means that there is no good target at all.
func (s *State) RollbackTarget(i *Instance) (to *entities.Target, why string) {
	good := i.Delivery.knownTargets()
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

// Barred returns why an instance may not return to a target, or "". It is barred if it is below the configured minimum and the current
// target is not. A version that cannot be compared is barred. A person can bypass this for the current release.
func (s *State) Barred(i *Instance, to entities.Target) string {
	floor := s.Spec.NoRollbackBelow
	if floor == "" || !s.aboveFloor(i.currentVersion()) {
		return ""
	}
	c, _, ok := order.CompareVersions(order.BaseVersion(to.FullVersion), floor)
	r := s.TargetRelease(i)
	switch {
	case ok && c >= 0, r != nil && r.BypassOf(i.ID.Channel, entities.NoRollbackBelow) != nil:
		return ""
	case !ok:
		return fmt.Sprintf("%s cannot be compared with %s (noRollbackBelow)", to.FullVersion, floor)
	}
	return fmt.Sprintf("%s is below %s (noRollbackBelow)", to.FullVersion, floor)
}

// aboveFloor reports whether a full version is at or above the configured minimum, as far as it can be compared.
func (s *State) aboveFloor(version string) bool {
	c, _, ok := order.CompareVersions(order.BaseVersion(version), s.Spec.NoRollbackBelow)
	return !ok || c >= 0
}

// FloorBypassCommand is the command that allows a rollback of an instance below the configured minimum.
func (s *State) FloorBypassCommand(i *Instance) string {
	return fmt.Sprintf("to roll back anyway: converge bypass %s/%s %s %s %s --reason …", s.Application, s.Title(), i.currentVersion(), i.ID.Channel, entities.NoRollbackBelow)
}

// HeldByFloor reports whether a channel has an instance at a release that may need a bypass to be rolled back.
func (s *State) HeldByFloor(channel string, r *Release) bool {
	return s.Spec.NoRollbackBelow != "" && s.aboveFloor(r.FullVersion) && s.isAt(channel, r)
}

// checkPinFloor returns an error for a pin to a target that an instance may not return to.
func (s *State) checkPinFloor(channel string, targets map[string]entities.Target) error {
	for _, i := range s.InstancesIn(channel) {
		if t, ok := targets[i.ID.Name]; ok && !i.Delivery.Target.Same(t) {
			if why := s.Barred(i, t); why != "" {
				return fmt.Errorf("%s cannot be pinned there: %s; %s", s.DisplayName(i.ID), why, s.FloorBypassCommand(i))
			}
		}
	}
	return nil
}
