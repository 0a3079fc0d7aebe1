package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Delete begins to remove what a service that is no longer declared has left running (A24). One
// that is still declared is refused, or the next publication would bring it back.
func (s *State) Delete(who entities.Who, reason string, now time.Time) (Effect, error) {
	name := s.Application + "/" + s.Service
	switch {
	case s.Spec == nil:
		return nil, fmt.Errorf("%s has no configuration yet: there is nothing to take down", name)
	case len(s.Spec.Channels) > 0:
		return nil, fmt.Errorf("%s is still declared%s; remove it from the configuration, apply that, and delete it then", name, declaredIn(s.Spec.DeclaredAt))
	case s.Deletion != nil:
		return already("%s is already being taken down, by %s", name, s.Deletion.Who.Name)
	}
	return func() string {
		s.Deletion = &Deletion{Who: who, Reason: reason, At: now}
		s.Record(now, "", "taken down by "+who.Name+entities.Because(reason))
		s.noteAct(entities.EventDelete, who, nil, "", "taken down", reason, now)
		return name + " is being taken down"
	}, nil
}

func declaredIn(file string) string {
	if file == "" {
		return ""
	}
	return " in " + file
}

// Gone tells whether a service that is taken down is gone, but for what its runtimes cannot remove:
// its workflow ends.
func (s *State) Gone() bool {
	if s.Deletion == nil {
		return false
	}
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for id, i := range s.Instances {
		if i.Delivery.Apply.Running || s.Removable(id) && !s.IsGone(id) {
			return false
		}
	}
	return true
}

// IsGone tells whether an instance of a service that is being taken down is removed.
func (s *State) IsGone(id entities.InstanceID) bool {
	return s.Deletion != nil && slices.Contains(s.Deletion.Gone, id)
}

// Removable tells that there may be something, and its runtime can remove it.
func (s *State) Removable(id entities.InstanceID) bool {
	_, rt := s.Runtime(id)
	i := s.Instances[id]
	return i != nil && i.Delivery.Target != nil && rt.CanRemove
}

// Removes tells whether what is no longer declared is taken down, rather than left in place.
func (s *State) Removes() bool { return s.Deletion != nil || s.Spec != nil && s.Spec.Remove }

// Removed takes in how taking down an instance ended; an empty err is success. A failed one is tried
// again for as long as it takes, ever more slowly.
func (s *State) Removed(op RemoveOp, err string, now time.Time) {
	i := s.Instances[op.Instance]
	if i == nil {
		return
	}
	a := &i.Delivery.Apply
	a.Running, a.Ended = false, now
	if s.Declared(op.Instance) { // it came back meanwhile, and is applied again
		*a, i.Observed.Requested, i.Observed.Fresh = Apply{Ended: now}, true, false
		return
	}
	if err != "" {
		_, rt := s.Runtime(op.Instance)
		a.Attempts++
		a.Err = err
		a.Next = now.Add(max(backoff(rt.Timing, a.Attempts), time.Second))
		return
	}
	text := op.Target.FullVersion + " taken down"
	s.Record(now, op.Instance.Channel, text)
	s.note(entities.AuditLine{At: now, Kind: entities.EventDelete, Channel: op.Instance.Channel, Version: op.Target.FullVersion, Text: text})
	if s.Deletion == nil { // only the instance is gone
		s.drop(op.Instance)
		return
	}
	i.Observed.Reading, *a = entities.Reading{At: now}, Apply{Ended: now}
	s.Deletion.Gone = append(s.Deletion.Gone, op.Instance)
}
