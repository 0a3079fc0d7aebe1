package state

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file finds the rollback target of one aspect after others came on top of it: its earlier good values, with everything else
// unchanged. Usually that combination never existed, so it is rendered first.

// Way is a target that must be rendered before a person can take a release back.
type Way struct {
	RenderOp
	Aspect      string // that is taken back
	Incarnation int64  // of the rollback target
	Hash        string // of that incarnation
}

// WaysBack are the targets that must be rendered before a release can be taken back.
func (s *State) WaysBack(version, channel string) (ways []Way) {
	r, err := s.toRollBack(version, channel)
	if err != nil {
		return nil
	}
	for _, c := range s.phaseChannels(r, channel) {
		for _, i := range s.In(c) {
			if !s.leavable(r, c) || !s.below(i, r) || s.onTop(i, r) != "" {
				continue
			}
			if to, of, why := s.wayBack(i, r); why == "" && to.Payload == "" {
				ways = append(ways, Way{RenderOp{Instance: i.ID, Release: r.ID, As: to.FullVersion, Of: of}, r.Line(), to.Incarnation, s.hashOf(to.Incarnation)})
			}
		}
	}
	return ways
}

// hashOf is the hash of an incarnation that has a known release, or "".
func (s *State) hashOf(incarnation int64) string {
	if n := slices.IndexFunc(s.Releases, func(r *Release) bool { return r.Incarnation == incarnation }); n >= 0 {
		return s.Releases[n].Hash
	}
	return ""
}

// below reports whether an instance includes a release on top of which others came.
func (s *State) below(i *Instance, r *Release) bool {
	if r.Return || i.IsAt(r) || !s.merges(i, r) {
		return false
	}
	for _, o := range slices.Backward(s.Releases) { // the newest of that name
		if p := o.in(i.ID.Channel); p != nil && p.Phase.Entered() && o.Line() == r.Line() && o.FullVersion == r.FullVersion {
			return o == r
		}
	}
	return false
}

// onTop is a release that came to an instance on top of another and is not good yet, or is still in progress in the channel; or "".
func (s *State) onTop(i *Instance, r *Release) string {
	if d := &i.Delivery; !d.isGood() {
		return d.Target.FullVersion
	}
	for _, o := range s.Releases {
		if p := o.in(i.ID.Channel); p != nil && p.Phase == maestro.InProgress && o.Line() != r.Line() {
			return o.FullVersion
		}
	}
	return ""
}

// wayBack is the rollback target of an instance for a release on top of which others came. Without a payload it must be rendered, from
// version of (as a person or CI named it). why: there is no target.
func (s *State) wayBack(i *Instance, r *Release) (to entities.Target, of, why string) {
	return s.wayFrom(i, i.present(), r)
}

// wayFrom is the same for an instance as if it were at another full version.
func (s *State) wayFrom(i *Instance, from string, r *Release) (to entities.Target, of, why string) {
	present, good := *i.Delivery.Target, i.Delivery.pinnable()
	for _, t := range good {
		full := exchange(from, t.FullVersion, r.Line())
		if full == from {
			continue
		}
		to, of = entities.Target{FullVersion: full, Incarnation: present.Incarnation, Runtime: present.Runtime}, s.VersionOf(i)
		if r.Line() == "" {
			to.Incarnation, of = t.Incarnation, s.versionOf(i.ID, t)
		}
		if n := slices.IndexFunc(good, func(g entities.Target) bool { return g.FullVersion == full && g.Runtime == present.Runtime }); n >= 0 {
			to = good[n]
		}
		return to, of, s.Barred(i, to)
	}
	return to, "", "no earlier good target"
}

// exchange is a full version with an aspect replaced by that of another full version.
func exchange(full, by, aspect string) string {
	version, values := entities.SplitVersion(full)
	before, theirs := entities.SplitVersion(by)
	if aspect == "" {
		return entities.JoinVersion(before, values)
	}
	ours := func(v string) bool { return entities.AspectOf(v) == aspect }
	values = slices.DeleteFunc(values, ours)
	if n := slices.IndexFunc(theirs, ours); n >= 0 {
		values = append(values, theirs[n])
	}
	return entities.JoinVersion(version, values)
}

// moveBack is the move that takes a release back at an instance, or why there is none.
func (s *State) moveBack(i *Instance, r *Release, b *RollingBack, below bool) (m Move, why string) {
	if !below {
		to, _ := s.ReturnsTo(i)
		return Move{Instance: i.ID, Target: *to}, ""
	}
	if top := s.onTop(i, r); top != "" {
		return m, top + " was applied on top of it, and has not succeeded everywhere: roll that back first, or wait for it"
	}
	to, of, why := s.wayBack(i, r)
	if to.Payload == "" && b.Ways != nil {
		made, rendered := b.Ways[i.ID]
		if !rendered || made.FullVersion != to.FullVersion {
			return m, "its rollback target changed a moment ago: try again"
		}
		to.Payload, to.Incarnation = made.Payload, made.Incarnation
	}
	return Move{Instance: i.ID, Target: to, Version: of}, why
}

// badBy ensures that nothing leads back to the target of a release at an instance, with any values of other aspects.
func (s *State) badBy(i *Instance, r *Release) {
	d, present := &i.Delivery, *i.Delivery.Target
	d.bad(present)
	if r == nil || len(s.Spec.Aspects) == 0 {
		return
	}
	for _, t := range d.pinnable() {
		if !t.Same(present) && exchange(present.FullVersion, t.FullVersion, r.Line()) == present.FullVersion {
			d.bad(t)
		}
	}
}

// bring sets the target of a move as the target of the release for the instance.
func (r *Release) bring(m Move) {
	if r.Kept == nil {
		r.Kept = map[entities.InstanceID]Kept{}
	}
	r.Kept[m.Instance] = Kept{Version: m.Version, Target: m.Target}
}
