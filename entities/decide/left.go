package decide

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file decides about the objects that instances left on runtimes that they moved away from. Either they stay there and are shown, or
// they are taken down once nothing would return to them.

// clearUp decides about the objects that the instances of the channel left elsewhere.
func (v *view) clearUp() {
	for n := range v.insts {
		i := &v.insts[n]
		for k := range i.Left {
			l := &i.Left[k]
			v.out.Left = append(v.out.Left, LeftBehind{ID: i.ID, Left: l, Text: v.d.left(v.s, i.Instance, l, v.settled(i), v.now, v.mode)})
		}
	}
}

// settled reports whether an instance stays where it is: the release that moved it succeeded in the whole channel.
func (v *view) settled(i *instance) bool {
	d := &i.Delivery
	return !v.changed && v.turn.Holder == maestro.None && v.turn.Aside == maestro.None && v.pin == nil && !i.paused &&
		d.Converged && i.current.Stable && d.Rollback == nil && !d.Apply.Running && !i.applies
}

// left decides about the objects that an instance left on one runtime, and describes what happens to them.
func (d *Decision) left(s *state.State, i *state.Instance, l *state.Left, settled bool, now time.Time, mode Mode) string {
	what := fmt.Sprintf("%s was left on %s", l.Target.FullVersion, l.Runtime)
	pause, paused := s.PauseOn(i.ID, l.Runtime)
	switch {
	case l.Apply.Running:
		return what + ": being removed"
	case !s.RemovesLeft(i, l):
		return what + ": orphaned; it stays there"
	case !s.RuntimeNamed(l.Runtime).CanRemove:
		return what + ": orphaned; the runtime cannot remove objects"
	case s.ReportsOnly(i.ID.Channel):
		return what + ": orphaned; report only: it would be removed"
	case paused:
		return fmt.Sprintf("%s: removed after the pause by %s%s", what, pause.By, entities.Because(pause.Reason))
	case !settled:
		return what + ": removed once " + i.Runtime + " has converged"
	case now.Before(l.Apply.Next):
		d.wakeBy(l.Apply.Next)
	case !mode.Drain:
		d.Removes = append(d.Removes, state.RemoveOp{Instance: i.ID, Target: l.Target, From: l.Runtime})
	}
	if a := &l.Apply; a.Err != "" {
		return fmt.Sprintf("%s: the removal failed %s: %s", what, entities.Times(a.Attempts), a.Err)
	}
	return what + ": to be removed"
}

// leftOf decides about the objects that an undeclared instance left elsewhere. true: some of them must be taken down before the instance.
func (d *Decision) leftOf(c *ChannelDecision, s *state.State, i *state.Instance, now time.Time, mode Mode) (first bool) {
	for k := range i.Left {
		l := &i.Left[k]
		c.Left = append(c.Left, LeftBehind{ID: i.ID, Left: l, Text: d.left(s, i, l, !first && !i.Delivery.Apply.Running, now, mode)})
		first = first || s.LeavesToRemove(i)
	}
	return first
}
