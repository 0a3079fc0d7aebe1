package decide

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file removes the objects of a channel that a person took down. No release enters until a person brings the channel back.

// isDown decides about the channel if it is taken down.
func (v *view) isDown() bool {
	down := v.s.DownIn(v.spec.Name)
	if down == nil {
		return false
	}
	v.insts, v.away = append(v.insts, v.away...), nil
	v.skipOvertaken()
	if v.out.Next = v.release(v.turn.Next); v.out.Next != nil {
		v.out.Gates = append(v.out.Gates, Judgement{
			Kind: KindDown, ID: string(KindDown), Verdict: entities.Fail, Reason: down.Text(), Since: down.At, Unblock: v.bringBack(v.spec.Name),
		})
	}
	v.reason(ReasonProgress, down.Text())
	facts := make([]entities.Facts, len(v.insts))
	for n := range v.insts {
		facts[n] = v.takeDown(&v.insts[n])
	}
	v.reason(ReasonCommand, "to bring it back: "+v.bringBack(v.spec.Name))
	v.stopAsking()
	v.returnLeases()
	v.clearUp()
	all := entities.Facts{}.RollUp(facts)
	v.out.Status, v.out.Health = entities.StatusOf(all), all.Health()
	switch {
	case len(v.insts) == 1:
		v.out.Current = v.insts[0].current
	case v.fleet():
		v.concludeFleet(facts)
	}
	v.d.wakeBy(v.out.Due)
	return true
}

// takeDown removes one instance, unless a pause holds the removal, and returns its progress.
func (v *view) takeDown(i *instance) entities.Facts {
	a := &i.Delivery.Apply
	pause, held := v.s.PausedBeside(i.ID) // the drain of its own runtime does not count here
	switch {
	case i.Down || i.Delivery.Target == nil:
		return entities.Facts{Deleted: true}
	case held && !a.Running:
		v.say(i, ReasonPause, "paused by %s%s; it is removed afterwards", pause.By, entities.Because(pause.Reason))
		return entities.Facts{Paused: true}
	case a.Running:
		v.say(i, ReasonProgress, "being removed")
	case v.now.Before(a.Next):
		v.due(a.Next)
	case !v.mode.Drain:
		v.d.Removes = append(v.d.Removes, state.RemoveOp{Instance: i.ID, Target: *i.Delivery.Target})
	}
	if a.Err != "" && a.Attempts > 0 { // otherwise it is the error of an apply
		v.say(i, ReasonFailure, "the removal failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
	return entities.Facts{Converging: true}
}

func (v *view) bringBack(channel string) string {
	return fmt.Sprintf("converge restart %s/%s %s", v.s.Application, v.s.Title(), channel)
}
