package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file moves instances from one runtime to another. A configuration that names another runtime does not move anything: the instance
// stays where its target was delivered, and is observed and repaired there, until a release with a payload for the other runtime has
// passed its gates. The objects that it leaves behind are recorded, and removed only if that is declared.

// PreviousPlacement are the objects that an instance left on a runtime that it moved away from.
type PreviousPlacement struct {
	Runtime string          `json:"runtime"`
	Target  entities.Target `json:"target"` // the last one that was set there
	At      time.Time       `json:"at"`
	// Sequence is the position of its removal among all targets of the instance: after the last one there, before the one that moved it.
	Sequence int64 `json:"sequence"`
	Apply    Apply `json:"apply,omitzero"` // of its removal
}

// TargetRuntime is the runtime that a target of an instance goes to, by name and as the decision sees it: the one for which its payload was
// rendered. That is the declared one unless the configuration has changed since.
func (s *State) TargetRuntime(id entities.InstanceID, t entities.Target) (string, *entities.RuntimeSpec) {
	name := t.Runtime
	if spec, ok := s.Spec.Instance(id); ok {
		name = cmp.Or(name, spec.Runtime)
	} else if i := s.Instances[id]; i != nil {
		name = cmp.Or(name, i.Runtime)
	}
	return name, s.RuntimeNamed(name)
}

// RuntimeNamed is a runtime by name: as declared, or its last declared spec.
func (s *State) RuntimeNamed(name string) *entities.RuntimeSpec {
	if s.Spec == nil || s.Spec.Runtimes[name] == nil {
		if last := s.Runtimes[name]; last != nil {
			return last
		}
	}
	return s.Spec.Runtime(name)
}

// runtimeChangeText names the runtime that a move takes an instance to, if it is another one.
func (s *State) runtimeChangeText(m Move) string {
	now, _ := s.Runtime(m.Instance)
	if to, _ := s.TargetRuntime(m.Instance, m.Target); to != now && s.Instance(m.Instance).Delivery.Target != nil {
		return " on " + to + " instead of " + now
	}
	return ""
}

// DeclaredRuntime is the runtime that the configuration names for an instance that is still on another one; "": it is on the declared one,
// or not declared any more.
func (s *State) DeclaredRuntime(id entities.InstanceID) string {
	i := s.Instances[id]
	spec, _ := s.Spec.Instance(id)
	if i == nil || i.Runtime == "" || i.Runtime == spec.Runtime {
		return ""
	}
	return spec.Runtime
}

// RuntimesInUse are the runtimes of each channel, by its first name: those that it is on, or for which an open release was made. Rules of
// the installation that select runtimes apply there, even if a new spec names others.
func (s *State) RuntimesInUse() map[string][]string {
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
			if p := r.phaseState(id.Channel); p != nil && !p.Phase.Over() {
				declared, _ := s.Spec.Instance(id)
				add(id, cmp.Or(r.Runtimes[id], declared.Runtime))
			}
		}
	}
	return on
}

// keepRuntimes sets the runtime of everything that was made for the runtimes of the old spec, if the new one names others.
func (s *State) keepRuntimes(spec *entities.Spec) {
	for _, id := range spec.IDs() {
		now, _ := spec.Instance(id)
		old, declared := s.Spec.Instance(id)
		if i := s.Instances[id]; !declared && i != nil {
			old.Runtime = i.Runtime
		}
		if old.Runtime != "" && old.Runtime != now.Runtime {
			s.fixRuntime(id, old.Runtime)
		}
	}
	if s.Spec == nil {
		return
	}
	for _, id := range s.Spec.IDs() { // an undeclared instance may be declared elsewhere later
		if old, _ := s.Spec.Instance(id); !hasInstance(spec, id) {
			s.fixRuntime(id, old.Runtime)
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

func hasInstance(spec *entities.Spec, id entities.InstanceID) bool {
	_, ok := spec.Instance(id)
	return ok
}

// SetPayloadRuntime sets the runtime for which the payload of a release for an instance was made, if a spec names another one.
func (r *Release) SetPayloadRuntime(id entities.InstanceID, runtime string, spec *entities.Spec) {
	if declared, ok := spec.Instance(id); ok && runtime != "" && runtime != declared.Runtime {
		r.fixRuntime(id, runtime)
	}
}

// fixRuntime sets the runtime of the payloads of a release for an instance.
func (r *Release) fixRuntime(id entities.InstanceID, runtime string) {
	if r.Payloads[id] != "" && r.Runtimes[id] == "" {
		if r.Runtimes == nil {
			r.Runtimes = map[entities.InstanceID]string{}
		}
		r.Runtimes[id] = runtime
	}
	if k, rendered := r.MergedTargets[id]; rendered && r.IsAspect() {
		k.Runtime = cmp.Or(k.Runtime, runtime)
		r.MergedTargets[id] = k
	}
	if k, rendered := r.RollbackTargets[id]; rendered {
		k.Runtime = cmp.Or(k.Runtime, runtime)
		r.RollbackTargets[id] = k
	}
}

// fixRuntime sets the runtime of everything of an instance that has none yet.
func (s *State) fixRuntime(id entities.InstanceID, runtime string) {
	for _, r := range s.Releases {
		r.fixRuntime(id, runtime)
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
	for n := range d.EarlierGood {
		d.EarlierGood[n].Runtime = cmp.Or(d.EarlierGood[n].Runtime, runtime)
	}
	if d.BeforePin != nil {
		d.BeforePin.Target.Runtime = cmp.Or(d.BeforePin.Target.Runtime, runtime)
	}
}

// pruneRuntimes drops the runtimes that the configuration does not name and that no instance is on, or may return to.
func (s *State) pruneRuntimes() {
	if len(s.Runtimes) == 0 {
		return
	}
	needed := map[string]bool{}
	for _, r := range s.Releases {
		// The order does not affect the result.
		//workflowcheck:ignore
		for _, name := range r.Runtimes {
			needed[name] = true
		}
	}
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		needed[i.Runtime] = true
		for _, t := range i.Delivery.knownTargets() {
			needed[t.Runtime] = true
		}
		if before := i.Delivery.BeforePin; before != nil {
			needed[before.Target.Runtime] = true
		}
		for _, l := range i.PreviousPlacements {
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

// moveTo moves an instance to another runtime, without any observation yet. The objects of its previous target stay there.
func (i *Instance) moveTo(runtime string, now time.Time) {
	d := &i.Delivery
	if d.Target != nil {
		d.Sequence++
		i.dropPlacement(i.Runtime)
		i.PreviousPlacements = append(i.PreviousPlacements, PreviousPlacement{Runtime: i.Runtime, Target: *d.Target, At: now, Sequence: d.Sequence})
	}
	if l := i.PreviousPlacementOn(runtime); l != nil && !l.Apply.Running { // the instance is there again
		i.dropPlacement(runtime)
	}
	i.Runtime, i.Observed, i.Approval = runtime, Observation{}, ApplyApproval{}
}

// PreviousPlacementOn are the objects that an instance left on a runtime, including those being removed there; or nil.
func (i *Instance) PreviousPlacementOn(runtime string) *PreviousPlacement {
	if n := slices.IndexFunc(i.PreviousPlacements, func(l PreviousPlacement) bool { return l.Runtime == runtime }); n >= 0 {
		return &i.PreviousPlacements[n]
	}
	return nil
}

func (i *Instance) dropPlacement(runtime string) {
	i.PreviousPlacements = slices.DeleteFunc(slices.Clone(i.PreviousPlacements), func(l PreviousPlacement) bool { return l.Runtime == runtime })
	if len(i.PreviousPlacements) == 0 {
		i.PreviousPlacements = nil
	}
}

// RemovesPlacement reports whether the objects that an instance left on a runtime are to be removed: the configuration declares that for
// the move, or the whole service is removed.
func (s *State) RemovesPlacement(i *Instance, l *PreviousPlacement) bool {
	if s.Deletion != nil || !s.Declared(i.ID) {
		return s.WillRemove(i)
	}
	spec, _ := s.Spec.Instance(i.ID)
	return spec.MovedFrom != nil && spec.MovedFrom.Runtime == l.Runtime && spec.MovedFrom.Remove
}

// UsesRuntime reports whether the service has objects on a runtime, whether the configuration names it or not.
func (s *State) UsesRuntime(runtime string) bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		if i.Delivery.Target != nil && i.Runtime == runtime || i.PreviousPlacementOn(runtime) != nil {
			return true
		}
	}
	return false
}

// HasPlacementsToRemove reports whether an instance left objects that are to be removed, and can be.
func (s *State) HasPlacementsToRemove(i *Instance) bool {
	return !s.IsReportOnly(i.ID.Channel) && slices.ContainsFunc(i.PreviousPlacements, func(l PreviousPlacement) bool {
		return s.RemovesPlacement(i, &l) && s.RuntimeNamed(l.Runtime).CanRemove
	})
}

// recordPlacementRemoval records the result of a removal of the objects left on a runtime.
func (s *State) recordPlacementRemoval(i *Instance, op RemoveOp, err string, now time.Time) {
	l := i.PreviousPlacementOn(op.From)
	switch {
	case l == nil:
		return
	case i.Runtime == op.From: // it returned in the meantime: a reading shows the current objects
		i.dropPlacement(op.From)
		i.Observed.Requested, i.Observed.Fresh = true, false
		return
	case err != "":
		a := &l.Apply
		a.Running, a.Ended, a.Err = false, now, err
		a.Attempts++
		a.NotBefore = now.Add(max(backoff(s.RuntimeNamed(op.From).Timing, a.Attempts), time.Second))
		return
	}
	i.dropPlacement(op.From)
	i.Delivery.dropTargetsOn(op.From)
	text := fmt.Sprintf("%s removed from its previous runtime %s", op.Target.FullVersion, op.From)
	s.AppendJournal(now, i.ID.Channel, text)
	s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventDelete, Channel: i.ID.Channel, Version: op.Target.FullVersion, Text: text})
	s.dropIfEmpty(op.Instance)
}

// RecordRuntimeRename records that the runtime of a removal is the current runtime of the instance with another name: nothing was left
// there.
func (s *State) RecordRuntimeRename(op RemoveOp, now time.Time) {
	i := s.Instances[op.Instance]
	if i == nil || i.PreviousPlacementOn(op.From) == nil {
		return
	}
	i.dropPlacement(op.From)
	s.AppendJournal(now, i.ID.Channel, fmt.Sprintf("no objects were left on %s: %s is the same runtime under another name", op.From, i.Runtime))
}

// dropTargetsOn removes the good targets on a runtime that has no objects any more: nothing returns there automatically.
func (d *Delivery) dropTargetsOn(runtime string) {
	d.EarlierGood = slices.DeleteFunc(slices.Clone(d.EarlierGood), func(t entities.Target) bool { return t.Runtime == runtime })
	if d.LastGood != nil && d.LastGood.Runtime == runtime {
		d.markBad(*d.LastGood)
	}
}
