package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file moves instances from one runtime to another. A configuration that names another runtime moves nothing by
// itself: the instance stays where its target was delivered, observed and repaired there, until a release with a payload for
// the other runtime has passed its gates. What it leaves behind is remembered, and taken down only where that is declared.

// Left is what an instance has left on a runtime that it is not on any more.
type Left struct {
	Runtime string          `json:"runtime"`
	Target  entities.Target `json:"target"` // the last one that was set there
	At      time.Time       `json:"at"`
	// Sequence is the place of its removal among all targets of the instance: after the last one there, before the one that
	// it moved for.
	Sequence int64 `json:"sequence"`
	Apply    Apply `json:"apply,omitzero"` // of its removal
}

// Bound is the runtime that a target of an instance goes to, by name and as the decision sees it: the one that its payload was
// rendered for. That is the declared one unless the configuration has changed since.
func (s *State) Bound(id entities.InstanceID, t entities.Target) (string, *entities.RuntimeSpec) {
	name := t.Runtime
	if spec, ok := s.Spec.Instance(id); ok {
		name = cmp.Or(name, spec.Runtime)
	} else if i := s.Instances[id]; i != nil {
		name = cmp.Or(name, i.Runtime)
	}
	return name, s.RuntimeNamed(name)
}

// RuntimeNamed is a runtime by name: as it is declared, or as it was when it last was.
func (s *State) RuntimeNamed(name string) *entities.RuntimeSpec {
	if s.Spec == nil || s.Spec.Runtimes[name] == nil {
		if was := s.Runtimes[name]; was != nil {
			return was
		}
	}
	return s.Spec.Runtime(name)
}

// elsewhere says where a move takes an instance, if that is another runtime than it is on.
func (s *State) elsewhere(m Move) string {
	now, _ := s.Runtime(m.Instance)
	if to, _ := s.Bound(m.Instance, m.Target); to != now && s.Instance(m.Instance).Delivery.Target != nil {
		return " on " + to + " instead of " + now
	}
	return ""
}

// Declares is the runtime that the configuration names for an instance which is still on another one; "": it is where it
// is to be, or declared no longer.
func (s *State) Declares(id entities.InstanceID) string {
	i := s.Instances[id]
	spec, _ := s.Spec.Instance(id)
	if i == nil || i.Runtime == "" || i.Runtime == spec.Runtime {
		return ""
	}
	return spec.Runtime
}

// OnRuntimes are the runtimes that each channel is on, by its first name, or that a release which is not over was made for. What the installation
// asks for by runtimes holds there, whatever a new spec names.
func (s *State) OnRuntimes() map[string][]string {
	on := map[string][]string{}
	add := func(id entities.InstanceID, runtime string) {
		if key := s.key(id.Channel); runtime != "" && !slices.Contains(on[key], runtime) {
			on[key] = append(on[key], runtime)
		}
	}
	for _, id := range entities.SortedIDs(s.Instances) {
		add(id, s.Instances[id].Runtime)
	}
	for _, r := range s.Releases {
		for _, id := range entities.SortedIDs(r.Payloads) {
			if p := r.in(id.Channel); p != nil && !p.Phase.Over() {
				declared, _ := s.Spec.Instance(id)
				add(id, cmp.Or(r.Runtimes[id], declared.Runtime))
			}
		}
	}
	return on
}

// stay keeps what was made for the runtimes of the old spec meant for them, where the new one names others.
func (s *State) stay(spec *entities.Spec) {
	for _, id := range spec.IDs() {
		now, _ := spec.Instance(id)
		was, declared := s.Spec.Instance(id)
		if i := s.Instances[id]; !declared && i != nil {
			was.Runtime = i.Runtime
		}
		if was.Runtime != "" && was.Runtime != now.Runtime {
			s.stayOn(id, was.Runtime)
		}
	}
	if s.Spec == nil {
		return
	}
	for _, id := range s.Spec.IDs() { // what is declared no longer may be declared elsewhere later
		if was, _ := s.Spec.Instance(id); !declares(spec, id) {
			s.stayOn(id, was.Runtime)
		}
	}
	kept := maps.Clone(s.Runtimes)
	if kept == nil {
		kept = map[string]*entities.RuntimeSpec{}
	}
	for _, name := range entities.SortedKeys(s.Spec.Runtimes) {
		kept[name] = s.Spec.Runtimes[name]
	}
	s.Runtimes = kept
}

func declares(spec *entities.Spec, id entities.InstanceID) bool {
	_, ok := spec.Instance(id)
	return ok
}

// MadeFor names the runtime that what a release brings to an instance was made for, where a spec names another one.
func (r *Release) MadeFor(id entities.InstanceID, runtime string, spec *entities.Spec) {
	if declared, ok := spec.Instance(id); ok && runtime != "" && runtime != declared.Runtime {
		r.stayOn(id, runtime)
	}
}

// stayOn names the runtime of what a release brings to an instance.
func (r *Release) stayOn(id entities.InstanceID, runtime string) {
	if r.Payloads[id] != "" && r.Runtimes[id] == "" {
		if r.Runtimes == nil {
			r.Runtimes = map[entities.InstanceID]string{}
		}
		r.Runtimes[id] = runtime
	}
	if k, rendered := r.Kept[id]; rendered && r.OfAspect() {
		k.Runtime = cmp.Or(k.Runtime, runtime)
		r.Kept[id] = k
	}
	if k, rendered := r.Ways[id]; rendered {
		k.Runtime = cmp.Or(k.Runtime, runtime)
		r.Ways[id] = k
	}
}

// stayOn names the runtime of everything of an instance that has none of its own yet.
func (s *State) stayOn(id entities.InstanceID, runtime string) {
	for _, r := range s.Releases {
		r.stayOn(id, runtime)
	}
	for n := range s.Pins {
		if t, ok := s.Pins[n].Targets[id.Name]; ok && s.Pins[n].Channel == id.Channel {
			t.Runtime = cmp.Or(t.Runtime, runtime)
			s.Pins[n].Targets[id.Name] = t
		}
	}
	i := s.Instances[id]
	if i == nil {
		return
	}
	d := &i.Delivery
	for _, t := range []*entities.Target{d.Target, d.LastGood} {
		if t != nil {
			t.Runtime = cmp.Or(t.Runtime, runtime)
		}
	}
	for n := range d.Earlier {
		d.Earlier[n].Runtime = cmp.Or(d.Earlier[n].Runtime, runtime)
	}
	if d.BeforePin != nil {
		d.BeforePin.Target.Runtime = cmp.Or(d.BeforePin.Target.Runtime, runtime)
	}
}

// forgetRuntimes drops those that the configuration does not name and nothing here is on, or may return to.
func (s *State) forgetRuntimes() {
	if len(s.Runtimes) == 0 {
		return
	}
	needed := map[string]bool{}
	for _, r := range s.Releases {
		// In any order: the answer is the same.
		//workflowcheck:ignore
		for _, name := range r.Runtimes {
			needed[name] = true
		}
	}
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		needed[i.Runtime] = true
		for _, t := range i.Delivery.pinnable() {
			needed[t.Runtime] = true
		}
		if before := i.Delivery.BeforePin; before != nil {
			needed[before.Target.Runtime] = true
		}
		for _, l := range i.Left {
			needed[l.Runtime] = true
		}
	}
	for _, name := range entities.SortedKeys(s.Runtimes) {
		if !needed[name] || s.Spec != nil && s.Spec.Runtimes[name] != nil {
			delete(s.Runtimes, name)
		}
	}
	if len(s.Runtimes) == 0 {
		s.Runtimes = nil
	}
}

// moveTo puts an instance on another runtime, of which nothing is known yet. What it was at stays behind.
func (i *Instance) moveTo(runtime string, now time.Time) {
	d := &i.Delivery
	if d.Target != nil {
		d.Sequence++
		i.forgetLeft(i.Runtime)
		i.Left = append(i.Left, Left{Runtime: i.Runtime, Target: *d.Target, At: now, Sequence: d.Sequence})
	}
	if l := i.LeftOn(runtime); l != nil && !l.Apply.Running { // it is there again
		i.forgetLeft(runtime)
	}
	i.Runtime, i.Observed, i.Approval = runtime, Observation{}, ApplyApproval{}
}

// LeftOn is what an instance has left on a runtime, or is still being taken down there; or nil.
func (i *Instance) LeftOn(runtime string) *Left {
	if n := slices.IndexFunc(i.Left, func(l Left) bool { return l.Runtime == runtime }); n >= 0 {
		return &i.Left[n]
	}
	return nil
}

func (i *Instance) forgetLeft(runtime string) {
	i.Left = slices.DeleteFunc(slices.Clone(i.Left), func(l Left) bool { return l.Runtime == runtime })
	if len(i.Left) == 0 {
		i.Left = nil
	}
}

// RemovesLeft tells whether what an instance has left on a runtime is to be taken down: the configuration says so of where it
// moved from, or the whole service goes.
func (s *State) RemovesLeft(i *Instance, l *Left) bool {
	if s.Deletion != nil || !s.Declared(i.ID) {
		return s.Removes(i)
	}
	spec, _ := s.Spec.Instance(i.ID)
	return spec.MovedFrom != nil && spec.MovedFrom.Runtime == l.Runtime && spec.MovedFrom.Remove
}

// Uses tells whether something of the service is on a runtime, whether the configuration names it or not.
func (s *State) Uses(runtime string) bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		if i.Delivery.Target != nil && i.Runtime == runtime || i.LeftOn(runtime) != nil {
			return true
		}
	}
	return false
}

// LeavesToRemove tells whether an instance has left something that is to be taken down, and can be.
func (s *State) LeavesToRemove(i *Instance) bool {
	return !s.ReportsOnly(i.ID.Channel) && slices.ContainsFunc(i.Left, func(l Left) bool { return s.RemovesLeft(i, &l) && s.RuntimeNamed(l.Runtime).CanRemove })
}

// leftRemoved takes in how taking down what was left on a runtime ended.
func (s *State) leftRemoved(i *Instance, op RemoveOp, err string, now time.Time) {
	l := i.LeftOn(op.From)
	switch {
	case l == nil:
		return
	case i.Runtime == op.From: // it came back meanwhile: what is there now, a reading says
		i.forgetLeft(op.From)
		i.Observed.Requested, i.Observed.Fresh = true, false
		return
	case err != "":
		a := &l.Apply
		a.Running, a.Ended, a.Err = false, now, err
		a.Attempts++
		a.Next = now.Add(max(backoff(s.RuntimeNamed(op.From).Timing, a.Attempts), time.Second))
		return
	}
	i.forgetLeft(op.From)
	i.Delivery.notOn(op.From)
	text := fmt.Sprintf("%s taken down on %s, which it moved from", op.Target.FullVersion, op.From)
	s.Record(now, i.ID.Channel, text)
	s.note(entities.AuditLine{At: now, Kind: entities.EventDelete, Channel: i.ID.Channel, Version: op.Target.FullVersion, Text: text})
	s.dropEmpty(op.Instance)
}

// Renamed takes in that a runtime on which something was to be taken down is the one that the instance is on, by another name:
// nothing was left there.
func (s *State) Renamed(op RemoveOp, now time.Time) {
	i := s.Instances[op.Instance]
	if i == nil || i.LeftOn(op.From) == nil {
		return
	}
	i.forgetLeft(op.From)
	s.Record(now, i.ID.Channel, fmt.Sprintf("nothing was left on %s: %s is the same by another name", op.From, i.Runtime))
}

// notOn forgets the good targets on a runtime where nothing is any more: nothing returns there by itself.
func (d *Delivery) notOn(runtime string) {
	d.Earlier = slices.DeleteFunc(slices.Clone(d.Earlier), func(t entities.Target) bool { return t.Runtime == runtime })
	if d.LastGood != nil && d.LastGood.Runtime == runtime {
		d.bad(*d.LastGood)
	}
}
