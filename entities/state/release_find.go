package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file finds releases by name and by target, and prunes releases that are not needed any more.

// isAt reports whether any instance of a channel is at a release.
func (s *State) isAt(channel string, r *Release) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return i.IsAt(r) })
}

// allAt reports whether all instances of a channel that have a target are at a release.
func (s *State) allAt(channel string, r *Release) bool {
	return s.isAt(channel, r) && !slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return i.Delivery.Target != nil && !i.IsAt(r) })
}

// TargetRelease is the newest release of an instance's current target, or nil.
func (s *State) TargetRelease(i *Instance) *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		if p := r.Phases[i.ID.Channel]; p != nil && i.IsAt(r) && p.Phase != maestro.Pending {
			return r
		}
	}
	return nil
}

// EntryIncarnations are the incarnation of the release that an audit entry is about, and of the one that had succeeded in its channel
// before; 0: none.
func (s *State) EntryIncarnations(entry entities.AuditEntry) (incarnation, since int64) {
	for _, r := range s.Releases { // oldest first
		if r.ID == entry.Release {
			return r.Incarnation, since
		}
		if p := r.Phases[entry.Channel]; p != nil && p.Phase == maestro.Succeeded {
			since = r.Incarnation
		}
	}
	return 0, 0
}

// Find returns the release of "@ID", the newest of a full version, or else of a version.
func (s *State) Find(version, channel string) (*Release, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if id, named := strings.CutPrefix(version, entities.IDPrefix); named {
		if r := s.ReleaseByID(id); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("%s has no release %s; finished releases are pruned", s.scopeName(""), id)
	}
	var found *Release
	for _, r := range s.Releases {
		if r.hasFullVersion(version) || r.Version == version && (found == nil || !found.hasFullVersion(version)) {
			found = r
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("no release of version %q%s", version, entities.Expected(s.newestVersions()))
}

// shownVersions is the number of versions in an error about an unknown version.
const shownVersions = 20

// newestVersions are the full versions of the newest releases, oldest first.
func (s *State) newestVersions() []string {
	var out []string
	for _, r := range slices.Backward(s.Releases) {
		if !slices.Contains(out, r.FullVersion) && len(out) < shownVersions {
			out = append(out, r.FullVersion)
		}
	}
	slices.Reverse(out)
	return out
}

// FindOpen returns the oldest open release of a version, in the channel if one is named and one is open there, or else the result of
// Find. Of two releases of one version the older one waits for people, and the younger waits behind it.
func (s *State) FindOpen(version, channel string) (*Release, error) {
	newest, err := s.Find(version, channel)
	if err != nil || strings.HasPrefix(version, entities.IDPrefix) {
		return newest, err
	}
	for _, r := range s.Releases {
		if p := r.phaseState(channel); p != nil && !p.Phase.Over() && r.FullVersion == newest.FullVersion {
			return r, nil
		}
	}
	for _, r := range s.Releases {
		if !r.Over() && r.FullVersion == newest.FullVersion {
			return r, nil
		}
	}
	return newest, nil
}

// phaseChannels are the channels of a release, one or all, in the spec's order.
func (s *State) phaseChannels(r *Release, channel string) []string {
	var out []string
	for _, c := range s.Spec.Channels {
		if r.Phases[c.Name] != nil && (channel == "" || channel == c.Name) {
			out = append(out, c.Name)
		}
	}
	return out
}

// Prune removes releases that are over, except a bounded tail and those that an instance is still at or that have running work. It also
// drops the output of successful extensions once their release is over; the store has it.
func (s *State) Prune() {
	over := 0
	for _, r := range s.Releases {
		if r.Over() {
			over++
			// The order does not affect the result.
			//workflowcheck:ignore
			for _, e := range r.Extensions {
				if e.Done {
					e.Tail = ""
				}
			}
		}
	}
	if over <= MaxFinishedReleases {
		return
	}
	kept, targetReleases := make([]*Release, 0, len(s.Releases)), s.targetReleases()
	for n, r := range s.Releases {
		if r.Over() && over > MaxFinishedReleases && n < len(s.Releases)-1 && !r.hasRunningExtension() && !s.isNeeded(r, targetReleases) {
			over--
			continue
		}
		kept = append(kept, r)
	}
	s.Releases = kept
}

// hasRunningExtension reports whether an extension still runs for the release. The extension of the next release starts after its end.
func (r *Release) hasRunningExtension() bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, e := range r.Extensions {
		if e.Running {
			return true
		}
	}
	return false
}

// targetReleases is TargetRelease of all instances, for callers that check many releases.
func (s *State) targetReleases() map[*Instance]*Release {
	out := make(map[*Instance]*Release, len(s.Instances))
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		out[i] = s.TargetRelease(i)
	}
	return out
}

// isNeeded reports whether an instance is at a release, may return to it, or may be retried there. Such a release maps a full version to
// its version, even if it was cancelled there because the channel was removed for a while.
func (s *State) isNeeded(r *Release, targetReleases map[*Instance]*Release) bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for id, i := range s.Instances {
		if r.Phases[id.Channel] == nil {
			continue
		}
		if i.Drained && s.missedRelease(i) == r {
			return true
		}
		d, t := &i.Delivery, r.Target(id)
		if r.IsAspect() && i.hasValues(r) {
			return true
		}
		if r.hasFullVersion(i.currentVersion()) || d.LastGood != nil && d.LastGood.Same(t) || d.BeforePin != nil && d.BeforePin.Target.Same(t) ||
			d.Rollback != nil && d.Rollback.Release == r.ID || targetReleases[i].rollsBack(r) {
			return true
		}
	}
	return false
}
