package decide

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file decides about what instances have left on runtimes that they moved from: it stays there and is shown, or is
// taken down once nothing would return to it.

// clearUp decides about what the instances of the channel have left elsewhere.
func (v *view) clearUp() {
	for n := range v.insts {
		i := &v.insts[n]
		for k := range i.Left {
			l := &i.Left[k]
			v.out.Left = append(v.out.Left, LeftBehind{ID: i.ID, Left: l, Text: v.d.left(v.s, i.Instance, l, v.settled(i), v.now, v.mode)})
		}
	}
}

// settled tells whether an instance is where it is to be for good: what it moved for has succeeded in the whole channel.
func (v *view) settled(i *instance) bool {
	d := &i.Delivery
	return !v.changed && v.turn.Holder == maestro.None && v.turn.Aside == maestro.None && v.pin == nil && !i.paused &&
		d.Converged && i.current.Stable && d.Rollback == nil && !d.Apply.Running && !i.applies
}

// left decides about one thing that an instance has left, and says what becomes of it.
func (d *Decision) left(s *state.State, i *state.Instance, l *state.Left, settled bool, now time.Time, mode Mode) string {
	what := fmt.Sprintf("%s was left on %s", l.Target.FullVersion, l.Runtime)
	pause, paused := s.PauseOn(i.ID, l.Runtime)
	switch {
	case l.Apply.Running:
		return what + ": being taken down"
	case !s.RemovesLeft(i, l):
		return what + ": orphaned, it stays there"
	case !s.RuntimeNamed(l.Runtime).CanRemove:
		return what + ": orphaned, since the runtime cannot remove"
	case s.ReportsOnly(i.ID.Channel):
		return what + ": orphaned; report only: it would be taken down"
	case paused:
		return fmt.Sprintf("%s: taken down after the pause by %s%s", what, pause.By, entities.Because(pause.Reason))
	case !settled:
		return what + ": taken down once " + i.Runtime + " has converged"
	case now.Before(l.Apply.Next):
		d.wakeBy(l.Apply.Next)
	case !mode.Drain:
		d.Removes = append(d.Removes, state.RemoveOp{Instance: i.ID, Target: l.Target, From: l.Runtime})
	}
	if a := &l.Apply; a.Err != "" {
		return fmt.Sprintf("%s: taking it down failed %s: %s", what, entities.Times(a.Attempts), a.Err)
	}
	return what + ": to be taken down"
}

// leftOf decides about what an instance that is no longer declared has left elsewhere; true: there is some to be taken down
// before the instance itself.
func (d *Decision) leftOf(c *ChannelDecision, s *state.State, i *state.Instance, now time.Time, mode Mode) (first bool) {
	for k := range i.Left {
		l := &i.Left[k]
		c.Left = append(c.Left, LeftBehind{ID: i.ID, Left: l, Text: d.left(s, i, l, !first && !i.Delivery.Apply.Running, now, mode)})
		first = first || s.LeavesToRemove(i)
	}
	return first
}
