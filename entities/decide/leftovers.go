package decide

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file decides about the objects that instances left on runtimes that they moved away from. Either they stay there and are shown, or
// they are removed once nothing would return to them.

// removeLeftovers decides about the objects that the instances of the channel left elsewhere.
func (v *view) removeLeftovers() {
	for n := range v.insts {
		i := &v.insts[n]
		for k := range i.PreviousPlacements {
			l := &i.PreviousPlacements[k]
			v.out.Leftovers = append(v.out.Leftovers, Leftover{ID: i.ID, Placement: l, Text: v.d.decideLeftover(v.s, i.Instance, l, v.isSettled(i), v.now, v.mode)})
		}
	}
}

// isSettled reports whether an instance stays where it is: the release that moved it succeeded in the whole channel.
func (v *view) isSettled(i *instance) bool {
	d := &i.Delivery
	return !v.changed && v.slot.Holder == maestro.None && v.slot.Aside == maestro.None && v.pin == nil && !i.paused &&
		d.Converged && i.current.Stable && d.Rollback == nil && !d.Apply.Running && !i.startsApply
}

// decideLeftover decides about the objects that an instance left on one runtime, and describes what happens to them.
func (d *Decision) decideLeftover(s *state.State, i *state.Instance, l *state.PreviousPlacement, settled bool, now time.Time, mode Mode) string {
	prefix := fmt.Sprintf("%s was left on %s", l.Target.FullVersion, l.Runtime)
	pause, paused := s.PauseOn(i.ID, l.Runtime)
	switch {
	case l.Apply.Running:
		return prefix + ": being removed"
	case !s.RemovesPlacement(i, l):
		return prefix + ": orphaned; it stays there"
	case !s.RuntimeNamed(l.Runtime).CanRemove:
		return prefix + ": orphaned; the runtime cannot remove objects"
	case s.IsReportOnly(i.ID.Channel):
		return prefix + ": orphaned; report only: it would be removed"
	case paused:
		return fmt.Sprintf("%s: removed after the pause by %s%s", prefix, pause.By, entities.Because(pause.Reason))
	case !settled:
		return prefix + ": removed once " + i.Runtime + " has converged"
	case now.Before(l.Apply.NotBefore):
		d.wakeBy(l.Apply.NotBefore)
	case !mode.NoNewWork:
		d.Removes = append(d.Removes, state.RemoveOp{Instance: i.ID, Target: l.Target, From: l.Runtime})
	}
	if a := &l.Apply; a.Err != "" {
		return fmt.Sprintf("%s: the removal failed %s: %s", prefix, entities.Times(a.Attempts), a.Err)
	}
	return prefix + ": to be removed"
}

// decideLeftovers decides about the objects that an undeclared instance left elsewhere. true: some of them must be removed before the
// instance.
func (d *Decision) decideLeftovers(c *ChannelDecision, s *state.State, i *state.Instance, now time.Time, mode Mode) (remaining bool) {
	for k := range i.PreviousPlacements {
		l := &i.PreviousPlacements[k]
		c.Leftovers = append(c.Leftovers, Leftover{ID: i.ID, Placement: l, Text: d.decideLeftover(s, i, l, !remaining && !i.Delivery.Apply.Running, now, mode)})
		remaining = remaining || s.HasPlacementsToRemove(i)
	}
	return remaining
}
