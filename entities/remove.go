package entities

import (
	"fmt"
	"slices"
	"time"
)

// TakeDown begins to remove what a service that is no longer declared has left running (A24). One
// that is still declared is refused, or the next publication would bring it back.
func (s *State) TakeDown(who Who, reason string, now time.Time) (string, error) {
	name := s.Application + "/" + s.Service
	switch {
	case s.Spec == nil:
		return "", fmt.Errorf("%s has no configuration yet: there is nothing to take down", name)
	case len(s.Spec.Channels) > 0:
		return "", fmt.Errorf("%s is still declared%s; remove it from the configuration, apply that, and delete it then", name, declaredIn(s.Spec.DeclaredAt))
	case s.Deletion != nil:
		return fmt.Sprintf("%s is already being taken down, by %s", name, s.Deletion.Who.Name), nil
	}
	s.Deletion = &Deletion{Who: who, Reason: reason, At: now}
	s.Record(now, "", "taken down by "+who.Name+because(reason))
	s.noteAct(EventDelete, who, nil, "", "taken down", reason, now)
	return name + " is being taken down", nil
}

func declaredIn(place string) string {
	if place == "" {
		return ""
	}
	return " in " + place
}

// Gone tells whether a service that is taken down is gone, but for what its runtimes cannot remove:
// its workflow ends.
func (s *State) Gone() bool {
	if s.Deletion == nil {
		return false
	}
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for name, i := range s.Instances {
		if i.Progress.Running || s.removable(name) && !s.isGone(name) {
			return false
		}
	}
	return true
}

func (s *State) isGone(channel string) bool {
	return s.Deletion != nil && slices.Contains(s.Deletion.Gone, channel)
}

// removable: there may be something, and its runtime can remove it.
func (s *State) removable(channel string) bool {
	_, rt := s.RuntimeOf(channel)
	i := s.Instances[channel]
	return i != nil && i.Target != nil && rt.CanRemove
}

// removes tells whether what is no longer declared is taken down, rather than left in place.
func (s *State) removes() bool { return s.Deletion != nil || s.Spec != nil && s.Spec.Remove }

// retire keeps of the old spec what is still needed of what the new one no longer declares: the
// runtimes that things are left on, and, when the whole service is gone, its id and its rules.
func (s *State) retire(spec *Spec) {
	if s.Spec == nil {
		return
	}
	for _, c := range s.Spec.Channels {
		if _, kept := spec.Channel(c.Name); kept {
			continue
		}
		rt := s.Spec.Runtimes[c.Runtime]
		s.Instance(c.Name).Left = &rt
	}
	if len(spec.Channels) > 0 {
		return
	}
	if spec.ServiceID == "" {
		spec.ServiceID = s.Spec.ServiceID
	}
	if spec.Grants == nil {
		spec.Grants = s.Spec.Grants
	}
	if spec.Identity == nil {
		spec.Identity = s.Spec.Identity
	}
	if spec.Notifications == nil {
		spec.Notifications = s.Spec.Notifications
	}
	spec.Remove = spec.Remove || s.Spec.Remove
}

// declare says where in the spec the channel is. What was taken down, or is just being, is applied
// again.
func (i *Instance) declare(place int) {
	i.Place = place
	if i.Left == nil {
		return
	}
	i.Left = nil
	if i.Removed {
		i.Removed, i.Converged, i.Known, i.Fresh = false, false, "", false
		i.settle()
		i.Progress = ApplyState{Running: i.Progress.Running, Started: i.Progress.Started}
	}
}

// settleDeletion: a service that declares its removal is taken down once it is no longer declared,
// and one that is declared again is not.
func (s *State) settleDeletion(now time.Time) {
	declared := len(s.Spec.Channels) > 0
	switch {
	case declared && s.Deletion != nil:
		s.Deletion = nil
		s.Record(now, "", "declared again: no longer taken down")
	case !declared && s.Spec.Remove && s.Deletion == nil:
		s.Deletion = &Deletion{Who: Who{Name: "its configuration"}, Reason: "removal is declared", At: now}
		s.Record(now, "", "no longer declared: taken down, as declared")
		s.Note(AuditLine{At: now, Kind: EventDelete, Text: "no longer declared: taken down", Reason: "removal is declared"})
	}
}

// orphan decides about one channel that is no longer declared: left in place and shown (D10), or
// taken down when the configuration or a person said so, the last channel first, one after another.
func (d *Decision) orphan(s *State, name string, now time.Time, mode Mode) {
	i := s.Instances[name]
	c := ChannelDecision{Channel: name, Current: ServiceInstance{i}.Fetch(i.Target)}
	facts := Facts{Orphaned: true, Deleted: s.isGone(name)}
	runtime, _ := s.RuntimeOf(name)
	pause, paused := s.PauseOf(name)
	if i.Lease != nil && !i.Progress.Running {
		d.giveBack(name, i.Lease)
	}
	switch {
	case facts.Deleted:
		c.Reasons = []string{"taken down"}
	case !s.removes():
		c.Reasons = []string{"no longer declared; its objects were left in place"}
	case !s.removable(name):
		c.Reasons = []string{"no longer declared; runtime " + runtime + " cannot remove: its objects were left in place"}
	case paused:
		facts.Paused, facts.Orphaned = true, false
		c.Reasons = []string{fmt.Sprintf("paused by %s%s; it is taken down afterwards", pause.By, because(pause.Reason))}
	case i.Progress.Running && !i.Removed:
		c.Reasons = []string{"an apply is still running; it is taken down afterwards"}
	case i.Progress.Running:
		c.Reasons = []string{"being taken down"}
	default:
		d.remove(s, &c, now, mode)
	}
	c.Status = StatusOf(facts)
	d.wakeBy(c.Due)
	d.Channels = append(d.Channels, c)
}

// remove starts to take a channel down, once what comes after it is gone.
func (d *Decision) remove(s *State, c *ChannelDecision, now time.Time, mode Mode) {
	i := s.Instances[c.Channel]
	if first := s.removedBefore(c.Channel); first != "" {
		c.Reasons = []string{"to be taken down after " + first}
		return
	}
	c.Reasons = []string{"to be taken down"}
	if i.Progress.Err != "" {
		c.Reasons = []string{fmt.Sprintf("taking it down failed %s: %s", times(i.Progress.Attempts), i.Progress.Err)}
	}
	switch {
	case now.Before(i.Progress.Next):
		c.Due = i.Progress.Next
	case !mode.Drain:
		d.Removes = append(d.Removes, RemoveOp{Channel: c.Channel, Target: *i.Target})
	}
}

// removedBefore is the next channel that goes before this one, or "": the last in the spec's order
// goes first.
func (s *State) removedBefore(channel string) string {
	first := channel
	for _, name := range SortedKeys(s.Instances) {
		if s.declared(name) || !s.removable(name) || s.isGone(name) {
			continue
		}
		if i, f := s.Instances[name], s.Instances[first]; i.Place > f.Place || i.Place == f.Place && name > first {
			first = name
		}
	}
	if first == channel {
		return ""
	}
	return first
}

func (s *State) removeStarted(op RemoveOp, now time.Time) {
	i := s.Instance(op.Channel)
	i.Progress.Running, i.Progress.Started, i.Removed = true, now, true
}

// Removed takes in how taking down a channel ended; an empty err is success. A failed one is tried
// again for as long as it takes, ever more slowly.
func (s *State) Removed(op RemoveOp, err string, now time.Time) {
	i := s.Instances[op.Channel]
	if i == nil {
		return
	}
	i.Progress.Running, i.Progress.Ended = false, now
	if s.declared(op.Channel) { // it came back meanwhile, and is applied again
		i.Progress, i.Look, i.Fresh = ApplyState{Ended: now}, true, false
		return
	}
	if err != "" {
		_, rt := s.RuntimeOf(op.Channel)
		i.Progress.Attempts++
		i.Progress.Err = err
		i.Progress.Next = now.Add(max(backoff(rt.Timing, i.Progress.Attempts), time.Second))
		return
	}
	s.Record(now, op.Channel, op.Target.FullVersion+" taken down")
	s.Note(AuditLine{At: now, Kind: EventDelete, Channel: op.Channel, Version: op.Target.FullVersion, Text: op.Target.FullVersion + " taken down"})
	if s.Deletion == nil { // only its channel is gone
		delete(s.Instances, op.Channel)
		s.Pins = s.otherPins(op.Channel)
		return
	}
	i.Reading, i.Progress = Reading{At: now}, ApplyState{Ended: now}
	s.Deletion.Gone = append(s.Deletion.Gone, op.Channel)
}
