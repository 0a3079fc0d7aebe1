package decide

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file removes the objects of a channel that a person deleted. No release enters until a person restores the channel.

// decideDown decides about the channel if a person deleted it.
func (v *view) decideDown() bool {
	down := v.s.TakedownOf(v.spec.Name)
	if down == nil {
		return false
	}
	v.insts, v.drained = append(v.insts, v.drained...), nil
	v.skipOvertaken()
	if v.out.Next = v.release(v.slot.Next); v.out.Next != nil {
		v.out.Gates = append(v.out.Gates, Judgement{
			Kind: KindDown, ID: string(KindDown), Verdict: entities.Fail, Reason: down.Text(), Since: down.At, Unblock: v.bringBackCommand(v.spec.Name),
		})
	}
	v.reason(ReasonProgress, down.Text())
	facts := make([]entities.Facts, len(v.insts))
	for n := range v.insts {
		facts[n] = v.takeDown(&v.insts[n])
	}
	v.reason(ReasonCommand, "to bring it back: "+v.bringBackCommand(v.spec.Name))
	v.withdrawApprovalRequests()
	v.returnLeases()
	v.removeLeftovers()
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
	pause, held := v.s.PauseBesidesDrain(i.ID) // the drain of its own runtime does not count here
	switch {
	case i.TakenDown || i.Delivery.Target == nil:
		return entities.Facts{Deleted: true}
	case held && !a.Running:
		v.instanceReason(i, ReasonPause, "paused by %s%s; it is removed afterwards", pause.By, entities.Because(pause.Reason))
		return entities.Facts{Paused: true}
	case a.Running:
		v.instanceReason(i, ReasonProgress, "being removed")
	case v.now.Before(a.NotBefore):
		v.due(a.NotBefore)
	case !v.mode.NoNewWork:
		v.d.Removes = append(v.d.Removes, state.RemoveOp{Instance: i.ID, Target: *i.Delivery.Target})
	}
	if a.Err != "" && a.Attempts > 0 { // otherwise it is the error of an apply
		v.instanceReason(i, ReasonFailure, "the removal failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
	return entities.Facts{Converging: true}
}

func (v *view) bringBackCommand(channel string) string {
	return fmt.Sprintf("converge restart %s/%s %s", v.s.Application, v.s.Title(), channel)
}
