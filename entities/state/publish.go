package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file applies a newly published spec.

// Opening is a release that a publication opens automatically.
type Opening struct {
	Version, FullVersion string
	Cause                string
	Initial              bool     // no earlier release is known
	Base                 *Release // the release whose version a config release carries; else nil
}

// ApplySpec applies a newly published spec. Its rules take effect at once, also for releases in flight. It returns the release that the
// publication opens, or nil: the file's own version, the initial one, or a config release if a payload changed (B9). Whether a config
// release changes anything is known only after it is rendered.
func (s *State) ApplySpec(spec *entities.Spec, digest string, now time.Time) *Opening {
	o := s.applySpec(spec, digest, now)
	s.RenderingIncarnation = 0
	if o != nil {
		s.RenderingIncarnation = spec.Incarnation
	}
	return o
}

func (s *State) applySpec(spec *entities.Spec, digest string, now time.Time) *Opening {
	s.PendingIncarnation = nil
	s.keepAdopted(spec)
	s.retainOldSpec(spec)
	s.keepRuntimes(spec)
	s.Spec, s.SpecDigest, s.Problem, s.TransientProblem, s.RenderFailure = spec, digest, "", "", ""
	text := fmt.Sprintf("incarnation %d", spec.Incarnation)
	if spec.RulesOf != 0 {
		text += fmt.Sprintf(", under the rules of incarnation %d", spec.RulesOf)
	}
	if spec.Baseline != nil {
		text += fmt.Sprintf(", with the baseline of rules %d", spec.Baseline.Rules)
	}
	s.AppendJournal(now, "", text)
	s.cancelInRemovedChannels(now)
	for n, c := range spec.Channels {
		if s.Channels[c.Name] == nil {
			s.Channel(c.Name).Key = c.Key
		}
		s.Channel(c.Name).Position = n
		s.applyReportMode(&spec.Channels[n], now)
		for _, i := range c.Instances {
			s.declareInstance(c.ID(i), i.Runtime, now)
		}
		s.backfillConvergedAt(&spec.Channels[n], now)
	}
	s.pruneRuntimes()
	s.settleDeletion(now)
	s.cancelRemovedAspects(now)
	newest, offered := s.NewestForward(), s.newestUncancelled()
	s.WaitingConfig = 0
	switch {
	case spec.Version != "" && (newest == nil || newest.Version != spec.Version):
		return &Opening{Version: spec.Version, FullVersion: spec.Version, Cause: spec.DeclaredAt}
	case newest == nil && spec.InitialVersion != "":
		return &Opening{Version: spec.InitialVersion, FullVersion: spec.InitialVersion, Cause: spec.DeclaredAt, Initial: true}
	case offered == nil || !templatesDiffer(newest, spec):
		return nil
	case spec.ConfigChanges == entities.ConfigHold || s.OpenCount() >= MaxOpenReleases:
		s.WaitingConfig = spec.Incarnation
		return nil
	}
	return &Opening{
		Version: offered.Version, FullVersion: fmt.Sprintf("%s-i%d", offered.Version, spec.Incarnation),
		Cause: "configuration", Base: offered,
	}
}

// backfillConvergedAt marks instances that converged before there was a policy as stable from now on: the actual time was not recorded.
func (s *State) backfillConvergedAt(c *entities.ChannelSpec, now time.Time) {
	if c.Rollout == nil {
		return
	}
	for _, i := range s.InstancesIn(c.Name) {
		if d := &i.Delivery; d.Converged && d.ConvergedAt.IsZero() {
			d.ConvergedAt = now
		}
	}
}

// AdoptTemplates records that a new configuration renders to the payloads of a release. It then belongs to all releases with the same
// previous configuration.
func (s *State) AdoptTemplates(of *Release, templates map[entities.InstanceID]string) {
	old := of.Templates
	of.Templates = templates
	for _, r := range s.Releases {
		for _, id := range entities.SortedIDs(r.Templates) {
			if t, ok := templates[id]; ok && r != of && r.Templates[id] == old[id] {
				r.Templates[id] = t
			}
		}
	}
}

// templatesDiffer reports whether the new spec has other templates than the release, or new instances.
func templatesDiffer(r *Release, spec *entities.Spec) bool {
	for _, c := range spec.Channels {
		for _, i := range c.Instances {
			if r.Templates[c.ID(i)] != i.Template {
				return true
			}
		}
	}
	return false
}

// ReleasePending reports whether the release of the newest configuration is still to be created, and will be. A dependency without an
// answer only delays it.
func (s *State) ReleasePending() bool {
	if s.RenderingIncarnation > 0 {
		return true
	}
	newest := s.NewestForward()
	return s.Spec != nil && newest != nil && s.newestUncancelled() != nil && s.WaitingConfig == 0 && s.UnreleasedReason() == "" && templatesDiffer(newest, s.Spec)
}

// UnreleasedReason returns why the release of the newest configuration will not be created; "": it will, or was.
func (s *State) UnreleasedReason() string {
	if s.RenderFailure == "" && s.TransientProblem == "" {
		return s.Problem // of a version of Converge without a separate field for it
	}
	return s.RenderFailure
}

// cancelInRemovedChannels cancels pending and running phases in channels that are not declared any more. Their objects stay and are
// reported as orphaned. A channel that is declared again is a new one for the releases that were cancelled there.
func (s *State) cancelInRemovedChannels(now time.Time) {
	for _, r := range s.Releases {
		for _, c := range entities.SortedKeys(r.Phases) {
			if _, ok := s.Spec.Channel(c); !ok && !r.Phases[c].Phase.Over() {
				for _, i := range s.InstancesIn(c) {
					i.markChannelRemoved(r)
				}
				r.cancel(c, "the channel was removed", now)
				for _, id := range entities.SortedIDs(r.Templates) {
					if id.Channel == c {
						delete(r.Templates, id)
						delete(r.Payloads, id)
					}
				}
			}
		}
	}
	for _, id := range entities.SortedIDs(s.Instances) {
		s.dropIfEmpty(id)
	}
}

// markChannelRemoved records that the channel of an instance was removed before a release had succeeded there, so its target is not good.
// Values of aspects are exempt: no later configuration brings them again.
func (i *Instance) markChannelRemoved(r *Release) {
	d, p := &i.Delivery, r.phaseState(i.ID.Channel)
	if r.IsAspect() || !i.IsAt(r) {
		return
	}
	deliveredHere := p.Phase == maestro.InProgress && !d.Since.Before(r.At)
	if deliveredHere || !d.isGood() {
		d.ChannelRemoved = true
		d.markBad(*d.Target)
	}
}

// cancelRemovedAspects cancels pending releases of aspects that are not declared any more.
func (s *State) cancelRemovedAspects(now time.Time) {
	for _, r := range s.Releases {
		for _, c := range entities.SortedKeys(r.Phases) {
			if r.IsAspect() && s.Spec.Aspect(r.Aspect) == nil && r.Phases[c].Phase == maestro.Pending {
				r.cancel(c, "aspect "+r.Aspect+" is no longer declared", now)
			}
		}
	}
}

// dropIfEmpty removes an undeclared instance that has no objects anywhere and waits for no lease.
func (s *State) dropIfEmpty(id entities.InstanceID) {
	i := s.Instances[id]
	if s.Spec != nil && !s.Declared(id) && i.Delivery.Target == nil && i.Delivery.Lease == nil && len(i.PreviousPlacements) == 0 {
		s.dropInstance(id)
	}
}

// dropInstance removes an instance, and its channel with the last of its instances.
func (s *State) dropInstance(id entities.InstanceID) {
	if i := s.Instances[id]; i != nil {
		s.MinSequence = max(s.MinSequence, i.Delivery.Sequence)
	}
	delete(s.Instances, id)
	if _, declared := s.Spec.Channel(id.Channel); !declared && len(s.InstancesIn(id.Channel)) == 0 {
		delete(s.Channels, id.Channel)
		s.Pins = s.otherPins(id.Channel)
	}
}

// declareInstance sets the runtime of a declared instance. An instance that was removed, or is being removed, is applied again, unless
// another runtime is named: then nothing stays on the old one. A delivered target stays where it is until a release moves it to the other
// runtime.
func (s *State) declareInstance(id entities.InstanceID, runtime string, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	if i.LastRuntime != nil && i.RemovalStarted {
		i.RemovalStarted, d.Converged, i.Observed.Digest, i.Observed.Fresh = false, false, "", false
		s.Channel(id.Channel).endWindow()
		d.Apply = Apply{Running: d.Apply.Running, Started: d.Apply.Started}
		if i.Runtime != runtime {
			if s.IsRemoved(id) {
				d.Target = nil
			}
			i.moveTo(runtime, now)
			*d = Delivery{Apply: d.Apply, Lease: d.Lease, Sequence: d.Sequence}
		}
	}
	i.LastRuntime, i.OnDelete = nil, ""
	if i.Runtime == "" || d.Target == nil && i.Runtime != runtime {
		i.moveTo(runtime, now)
	}
}

// retainOldSpec keeps the parts of the old spec that are still needed for things that the new one does not declare any more: the runtimes
// of remaining objects, and, if the whole service is removed, its id and its rules.
func (s *State) retainOldSpec(spec *entities.Spec) {
	if s.Spec == nil {
		return
	}
	for _, id := range s.Spec.IDs() {
		if _, kept := spec.Instance(id); !kept {
			_, rt := s.Runtime(id)
			c, _ := s.Spec.Channel(id.Channel)
			s.Instance(id).LastRuntime, s.Instance(id).OnDelete = &rt, c.OnDelete
		}
	}
	if len(spec.Channels) > 0 {
		return
	}
	spec.ServiceID, spec.Name = cmp.Or(spec.ServiceID, s.Spec.ServiceID), cmp.Or(spec.Name, s.Spec.Name)
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

// settleDeletion: a service that declares its removal is deleted once it is not declared any more. A service that is declared again is
// not deleted.
func (s *State) settleDeletion(now time.Time) {
	declared := len(s.Spec.Channels) > 0
	switch {
	case declared && s.Deletion != nil:
		s.Deletion = nil
		s.AppendJournal(now, "", "declared again: no longer deleted")
	case !declared && s.Spec.Remove && s.Deletion == nil:
		s.Deletion = &Deletion{Who: entities.Who{Name: "its configuration"}, Reason: "removal is declared", At: now}
		s.AppendJournal(now, "", "no longer declared: deleted, as declared")
		s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventDelete, Text: "no longer declared: deleted", Reason: "removal is declared"})
	}
}

// Delete starts to remove the running objects of a service that is not declared any more (A24). It returns an error for a declared
// service, because the next publication would restore it.
func (s *State) Delete(who entities.Who, reason string, now time.Time) (Effect, error) {
	name := s.scopeName("")
	switch {
	case s.Spec == nil:
		return nil, fmt.Errorf("%s has no configuration yet: there is nothing to delete", name)
	case len(s.Spec.Channels) > 0:
		return nil, fmt.Errorf("%s is still declared%s; remove it from the configuration, publish that, and delete it then", name, entities.InChannel(s.Spec.DeclaredAt))
	case s.Deletion != nil:
		return noChange("%s is already being deleted, by %s", name, s.Deletion.Who.Name)
	}
	return func() string {
		s.Deletion = &Deletion{Who: who, Reason: reason, At: now}
		s.AppendJournal(now, "", "deleted by "+who.Name+entities.Because(reason))
		s.recordAction(entities.EventDelete, who, nil, "", "deleted", reason, now)
		return name + " is being deleted"
	}, nil
}

// FullyRemoved reports whether a service that is being deleted is removed, except for objects that its runtimes cannot remove. Its workflow
// then ends.
func (s *State) FullyRemoved() bool {
	if s.Deletion == nil {
		return false
	}
	// The order does not affect the result.
	//workflowcheck:ignore
	for id, i := range s.Instances {
		if i.Delivery.Apply.Running || s.CanRemove(id) && !s.IsRemoved(id) || s.HasPlacementsToRemove(i) {
			return false
		}
	}
	return true
}

// IsRemoved reports whether an instance of a service that is being deleted is removed.
func (s *State) IsRemoved(id entities.InstanceID) bool {
	return s.Deletion != nil && slices.Contains(s.Deletion.Removed, id)
}

// CanRemove reports whether there may be objects, the runtime can remove them, and the channel was not report-only.
func (s *State) CanRemove(id entities.InstanceID) bool {
	_, rt := s.Runtime(id)
	i := s.Instances[id]
	return i != nil && i.Delivery.Target != nil && rt.CanRemove && !s.IsReportOnly(id.Channel)
}

// WillRemove reports whether an undeclared instance is removed, rather than left in place: with the whole service, or because its channel
// declared it, or else the service.
func (s *State) WillRemove(i *Instance) bool {
	if s.Deletion != nil || i.OnDelete != "" {
		return s.Deletion != nil || i.OnDelete == entities.DeleteRemoves
	}
	return s.Spec != nil && s.Spec.Remove
}

// RecordRemoval records the result of a removal of an instance; an empty err is success. A failed one is retried without a limit, with
// growing backoff.
func (s *State) RecordRemoval(op RemoveOp, err string, now time.Time) {
	i := s.Instances[op.Instance]
	if i == nil {
		return
	}
	if op.From != "" {
		s.recordPlacementRemoval(i, op, err, now)
		return
	}
	a := &i.Delivery.Apply
	a.Running, a.Ended = false, now
	takenDown := s.isTakenDown(i) || s.DrainOf(i.Runtime) != nil
	if s.Declared(op.Instance) && !takenDown { // it is declared again, and is applied again
		*a, i.Observed.Requested, i.Observed.Fresh = Apply{Ended: now}, true, false
		return
	}
	if err != "" {
		_, rt := s.Runtime(op.Instance)
		a.Attempts++
		a.Err = err
		a.NotBefore = now.Add(max(backoff(rt.Timing, a.Attempts), time.Second))
		return
	}
	text := op.Target.FullVersion + " removed"
	s.AppendJournal(now, op.Instance.Channel, text)
	s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventDelete, Channel: op.Instance.Channel, Version: op.Target.FullVersion, Text: text})
	if takenDown {
		i.TakenDown, i.Delivery.Converged, *a = true, false, Apply{Ended: now}
		i.Observed.Requested = true
		return
	}
	if s.Deletion == nil { // only the instance is removed
		s.dropInstance(op.Instance)
		return
	}
	i.Observed.Reading, *a = entities.Reading{At: now}, Apply{Ended: now}
	s.Deletion.Removed = append(s.Deletion.Removed, op.Instance)
}
