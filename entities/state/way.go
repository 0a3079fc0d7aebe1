package state

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file finds the way back of one aspect where others came on top of it: what was good of that aspect before, with all else that is
// there. Often nothing like it ever was there, so that it is rendered first.

// Way is a target that is to be rendered before a person can take a release back.
type Way struct {
	RenderOp
	Aspect      string // that is taken back
	Incarnation int64  // of what is gone back to
	Hash        string // of that
}

// WaysBack are the targets that are to be rendered before a release can be taken back.
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

// hashOf is that of an incarnation of which a release is known, or "".
func (s *State) hashOf(incarnation int64) string {
	if n := slices.IndexFunc(s.Releases, func(r *Release) bool { return r.Incarnation == incarnation }); n >= 0 {
		return s.Releases[n].Hash
	}
	return ""
}

// below tells whether what a release brought is at an instance, and others came on top of it.
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

// onTop is what came to an instance on top of a release and is not good yet, or is still going through its channel; or "".
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

// wayBack is where an instance goes as a release is taken back that others came on top of. Without a payload it is still to be rendered,
// of the version that is given as a person or CI named it. Why: there is no way.
func (s *State) wayBack(i *Instance, r *Release) (to entities.Target, of, why string) {
	return s.wayFrom(i, i.present(), r)
}

// wayFrom is the same of an instance as it would be at another full version.
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

// exchange is a full version with what another one has of an aspect in place of its own.
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
		return m, top + " came on top of it, and is not good everywhere: roll that back first, or wait for it"
	}
	to, of, why := s.wayBack(i, r)
	if to.Payload == "" && b.Ways != nil {
		made, rendered := b.Ways[i.ID]
		if !rendered || made.FullVersion != to.FullVersion {
			return m, "it changed a moment ago: try again"
		}
		to.Payload, to.Incarnation = made.Payload, made.Incarnation
	}
	return Move{Instance: i.ID, Target: to, Version: of}, why
}

// badBy has nothing lead back to what a release brought to an instance, with whatever values of other aspects.
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

// bring has the target of a move be what the release brings to the instance.
func (r *Release) bring(m Move) {
	if r.Kept == nil {
		r.Kept = map[entities.InstanceID]Kept{}
	}
	r.Kept[m.Instance] = Kept{Version: m.Version, Target: m.Target}
}
