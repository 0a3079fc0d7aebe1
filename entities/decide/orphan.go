package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// decideOrphans decides about the instances that are not declared any more: of removed channels, or of fleets that shrank.
func (d *Decision) decideOrphans(s *state.State, now time.Time, mode Mode) {
	orphaned := false
	// The order does not affect the result.
	//workflowcheck:ignore
	for id := range s.Instances {
		orphaned = orphaned || !s.Declared(id)
	}
	if !orphaned {
		return // the usual case: no need to sort
	}
	byChannel := map[string][]entities.InstanceID{}
	for _, id := range entities.SortedIDs(s.Instances) {
		if !s.Declared(id) {
			byChannel[id.Channel] = append(byChannel[id.Channel], id)
		}
	}
	for _, channel := range entities.SortedKeys(byChannel) {
		d.decideOrphansIn(s, channel, byChannel[channel], now, mode)
	}
}

// decideOrphansIn decides about the orphans of one channel, and shows them as a channel of their own. If the channel is still declared,
// they are listed among its instances.
func (d *Decision) decideOrphansIn(s *state.State, channel string, ids []entities.InstanceID, now time.Time, mode Mode) {
	c := ChannelDecision{Channel: channel}
	var facts []entities.Facts
	var parts []entities.Current
	for _, id := range ids {
		i := s.Instances[id]
		leftoversFirst := d.decideLeftovers(&c, s, i, now, mode)
		f, reason := d.decideOrphan(s, i, leftoversFirst, now, mode)
		current := serviceInstance{i}.Fetch(i.Delivery.Target)
		facts, parts = append(facts, f), append(parts, current)
		if len(ids) > 1 {
			reason = id.Name + ": " + reason
		}
		c.Reasons = append(c.Reasons, Reason{ReasonProgress, reason})
		c.Instances = append(c.Instances, InstanceDecision{ID: id, Status: entities.StatusOf(f), Current: current})
	}
	if n := slices.IndexFunc(d.Channels, func(c ChannelDecision) bool { return c.Channel == channel }); n >= 0 {
		d.Channels[n].Instances = append(d.Channels[n].Instances, c.Instances...)
		d.Channels[n].Leftovers = append(d.Channels[n].Leftovers, c.Leftovers...)
		return
	}
	c.Status, c.Current = entities.StatusOf(entities.Facts{}.RollUp(facts)), entities.RollUp(parts)
	c.Health = c.Status
	if len(ids) == 1 {
		c.Instances = nil
	}
	d.Channels = append(d.Channels, c)
}

// decideOrphan decides about one instance that is not declared any more. It is left in place and shown (D10), or removed if the
// configuration or a person requires that, the last channel first, one after another. leftoversFirst: the objects that it left on other
// runtimes go before it.
func (d *Decision) decideOrphan(s *state.State, i *state.Instance, leftoversFirst bool, now time.Time, mode Mode) (entities.Facts, string) {
	facts := entities.Facts{Orphaned: true, Deleted: s.IsRemoved(i.ID)}
	runtime, _ := s.Runtime(i.ID)
	pause, paused := s.PauseOf(i.ID)
	running := i.Delivery.Apply.Running
	if l := i.Delivery.Lease; l != nil && !running {
		d.returnLease(i.ID, l)
	}
	switch {
	case facts.Deleted:
		return facts, "removed"
	case !s.WillRemove(i):
		return facts, "no longer declared; its objects were left in place"
	case s.IsReportOnly(i.ID.Channel):
		return facts, "no longer declared; its channel was report-only: its objects were left in place"
	case i.Delivery.Target == nil:
		return facts, "no longer declared; nothing is deployed on " + runtime
	case !s.CanRemove(i.ID):
		return facts, "no longer declared; runtime " + runtime + " cannot remove objects: they were left in place"
	case paused:
		return entities.Facts{Paused: true}, fmt.Sprintf("paused by %s%s; it is removed afterwards", pause.By, entities.Because(pause.Reason))
	case running && !i.RemovalStarted:
		return facts, "an apply is still running; it is removed afterwards"
	case running:
		return facts, "being removed"
	case leftoversFirst:
		return facts, "to be removed after its objects on other runtimes"
	}
	return facts, d.remove(s, i, now, mode)
}

// remove starts the removal of an instance, once the instances after it are gone.
func (d *Decision) remove(s *state.State, i *state.Instance, now time.Time, mode Mode) string {
	if first := removedBefore(s, i.ID); first != i.ID {
		return "to be removed after " + first.String()
	}
	a := &i.Delivery.Apply
	switch {
	case now.Before(a.NotBefore):
		d.wakeBy(a.NotBefore)
	case !mode.NoNewWork:
		d.Removes = append(d.Removes, state.RemoveOp{Instance: i.ID, Target: *i.Delivery.Target})
	}
	if a.Err != "" {
		return fmt.Sprintf("the removal failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
	return "to be removed"
}

// removedBefore is the instance that is removed before this one, or itself: one that is being removed, then the last channel in the
// spec's order.
func removedBefore(s *state.State, id entities.InstanceID) entities.InstanceID {
	first := id
	for _, other := range entities.SortedIDs(s.Instances) {
		if s.Declared(other) {
			continue
		}
		a := &s.Instances[other].Delivery.Apply // without a version: a removal, even if the instance was declared again for a while
		if a.Running && (s.Instances[other].RemovalStarted || a.RunningVersion == "") {
			return other // even if its channel is declared now
		}
		if !s.CanRemove(other) || s.IsRemoved(other) || !s.WillRemove(s.Instances[other]) {
			continue
		}
		p, f := position(s, other), position(s, first)
		if p > f || p == f && other.Compare(first) > 0 {
			first = other
		}
	}
	return first
}

// position of an instance's channel in the spec when it was last declared.
func position(s *state.State, id entities.InstanceID) int {
	if c := s.Channels[id.Channel]; c != nil {
		return c.Position
	}
	return 0
}
