package entities

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// This file takes over what is newly published.

// Opening is the release that a publication opens by itself.
type Opening struct {
	Version, FullVersion string
	Cause                string
	Initial              bool     // nothing was released before, as far as is remembered
	Of                   *Release // the release whose version a config release carries; else nil
}

// TakeSpec takes over a newly published spec: its rules hold at once, for releases in flight too.
// It returns the release that the publication opens, or nil: the file's own version, the initial
// one, or a config release when a payload changed (B9). Whether a config release really changes
// anything is only known once it is rendered.
func (s *State) TakeSpec(spec *Spec, digest string, now time.Time) *Opening {
	s.retire(spec)
	s.noteLoosened(s.Spec, spec, now)
	s.Spec, s.SpecDigest, s.Problem = spec, digest, ""
	s.Record(now, "", fmt.Sprintf("incarnation %d", spec.Incarnation))
	s.leaveRemovedChannels(now)
	for n, c := range spec.Channels {
		i := s.Instance(c.Name)
		i.declare(n)
		i.on(c.Runtime)
	}
	s.settleDeletion(now)
	newest, offered := s.Newest(), s.offered()
	s.Held = 0
	switch {
	case spec.Version != "" && (newest == nil || newest.Version != spec.Version):
		return &Opening{Version: spec.Version, FullVersion: spec.Version, Cause: spec.DeclaredAt}
	case newest == nil && spec.InitialVersion != "":
		return &Opening{Version: spec.InitialVersion, FullVersion: spec.InitialVersion, Cause: spec.DeclaredAt, Initial: true}
	case offered == nil || !templatesDiffer(newest, spec):
		return nil
	case spec.ConfigChanges == ConfigHold || s.open() >= MaxOpenReleases:
		s.Held = spec.Incarnation
		return nil
	}
	return &Opening{
		Version: offered.Version, FullVersion: fmt.Sprintf("%s-i%d", offered.Version, spec.Incarnation),
		Cause: "configuration", Of: offered,
	}
}

// leaveRemovedChannels cancels what was still to come in channels that are no longer declared;
// their objects stay and are reported orphaned. A channel that comes back is a new one to what was
// cut off there.
func (s *State) leaveRemovedChannels(now time.Time) {
	for _, r := range s.Releases {
		for _, c := range SortedKeys(r.Phases) {
			if _, ok := s.Spec.Channel(c); !ok && !r.Phases[c].Phase.Over() {
				r.Phases[c] = &PhaseState{Phase: maestro.Cancelled, Since: now, Reason: "the channel was removed"}
				delete(r.Templates, c)
				delete(r.Payloads, c)
			}
		}
	}
	for _, name := range SortedKeys(s.Instances) {
		if i := s.Instances[name]; i.Target == nil && i.Lease == nil && !s.declared(name) {
			delete(s.Instances, name)
			s.Pins = s.otherPins(name)
		}
	}
}

// on says which runtime the instance lives on. On another one nothing is known and nothing was done
// yet: its target is applied there.
func (i *Instance) on(runtime string) {
	if i.Runtime != "" && i.Runtime != runtime {
		*i = Instance{
			Channel: i.Channel, Target: i.Target, TargetSince: i.TargetSince, LastGood: i.LastGood, Failure: i.Failure,
			Before: i.Before, Rollback: i.Rollback, Away: i.Away, Place: i.Place, Preflight: i.Preflight, Lease: i.Lease,
			Progress: ApplyState{Running: i.Progress.Running, Started: i.Progress.Started}, Status: i.Status, Since: i.Since,
		}
	}
	i.Runtime = runtime
}
