package state

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file finds the rollback target of one aspect after others came on top of it: its earlier good values, with everything else
// unchanged. Usually that combination never existed, so it is rendered first.

// RollbackRender is a target that must be rendered before a person can roll a release back.
type RollbackRender struct {
	RenderOp
	Aspect      string // that is rolled back
	Incarnation int64  // of the rollback target
	Hash        string // of that incarnation
}

// RollbackTargets are the targets that must be rendered before a release can be rolled back.
func (s *State) RollbackTargets(version, channel string) (renders []RollbackRender) {
	r, err := s.findRollback(version, channel)
	if err != nil {
		return nil
	}
	for _, c := range s.phaseChannels(r, channel) {
		for _, i := range s.InstancesIn(c) {
			if !s.canRollBack(r, c) || !s.isBelow(i, r) || s.releaseOnTop(i, r) != "" {
				continue
			}
			if to, of, why := s.aspectRollbackTarget(i, r); why == "" && to.Payload == "" {
				renders = append(renders, RollbackRender{RenderOp{Instance: i.ID, Release: r.ID, FullVersion: to.FullVersion, Version: of}, r.Track(), to.Incarnation, s.incarnationHash(to.Incarnation)})
			}
		}
	}
	return renders
}

// incarnationHash is the hash of an incarnation that has a known release, or "".
func (s *State) incarnationHash(incarnation int64) string {
	if n := slices.IndexFunc(s.Releases, func(r *Release) bool { return r.Incarnation == incarnation }); n >= 0 {
		return s.Releases[n].Hash
	}
	return ""
}

// isBelow reports whether an instance includes a release on top of which others came.
func (s *State) isBelow(i *Instance, r *Release) bool {
	if r.Return || i.IsAt(r) || !s.targetIncludes(i, r) {
		return false
	}
	for _, o := range slices.Backward(s.Releases) { // the newest of that name
		if p := o.phaseState(i.ID.Channel); p != nil && p.Phase.Entered() && o.Track() == r.Track() && o.FullVersion == r.FullVersion {
			return o == r
		}
	}
	return false
}

// releaseOnTop is a release that came to an instance on top of another and is not good yet, or is still in progress in the channel; or "".
func (s *State) releaseOnTop(i *Instance, r *Release) string {
	if d := &i.Delivery; !d.isGood() {
		return d.Target.FullVersion
	}
	for _, o := range s.Releases {
		if p := o.phaseState(i.ID.Channel); p != nil && p.Phase == maestro.InProgress && o.Track() != r.Track() {
			return o.FullVersion
		}
	}
	return ""
}

// aspectRollbackTarget is the rollback target of an instance for a release on top of which others came. Without a payload it must be
// rendered, from version of (as a person or CI named it). why: there is no target.
func (s *State) aspectRollbackTarget(i *Instance, r *Release) (to entities.Target, of, why string) {
	return s.aspectRollbackTargetFrom(i, i.currentVersion(), r)
}

// aspectRollbackTargetFrom is the same for an instance as if it were at another full version.
func (s *State) aspectRollbackTargetFrom(i *Instance, from string, r *Release) (to entities.Target, of, why string) {
	current, good := *i.Delivery.Target, i.Delivery.knownTargets()
	for _, t := range good {
		full := replaceAspect(from, t.FullVersion, r.Track())
		if full == from {
			continue
		}
		to, of = entities.Target{FullVersion: full, Incarnation: current.Incarnation, Runtime: current.Runtime}, s.VersionOf(i)
		if r.Track() == "" {
			to.Incarnation, of = t.Incarnation, s.versionOf(i.ID, t)
		}
		if n := slices.IndexFunc(good, func(g entities.Target) bool { return g.FullVersion == full && g.Runtime == current.Runtime }); n >= 0 {
			to = good[n]
		}
		return to, of, s.Barred(i, to)
	}
	return to, "", "no earlier good target"
}

// replaceAspect is a full version with an aspect replaced by that of another full version.
func replaceAspect(full, by, aspect string) string {
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

// rollbackMove is the move that rolls a release back at an instance, or why there is none.
func (s *State) rollbackMove(i *Instance, r *Release, b *RollbackRequest, below bool) (m Move, why string) {
	if !below {
		to, _ := s.RollbackTarget(i)
		return Move{Instance: i.ID, Target: *to}, ""
	}
	if top := s.releaseOnTop(i, r); top != "" {
		return m, top + " was applied on top of it, and has not succeeded everywhere: roll that back first, or wait for it"
	}
	to, of, why := s.aspectRollbackTarget(i, r)
	if to.Payload == "" && b.RenderedTargets != nil {
		rendering, rendered := b.RenderedTargets[i.ID]
		if !rendered || rendering.FullVersion != to.FullVersion {
			return m, "its rollback target changed a moment ago: try again"
		}
		to.Payload, to.Incarnation = rendering.Payload, rendering.Incarnation
	}
	return Move{Instance: i.ID, Target: to, Version: of}, why
}

// markReleaseBad ensures that nothing returns to the target of a release at an instance, with any values of other aspects.
func (s *State) markReleaseBad(i *Instance, r *Release) {
	d, current := &i.Delivery, *i.Delivery.Target
	d.markBad(current)
	if r == nil || len(s.Spec.Aspects) == 0 {
		return
	}
	for _, t := range d.knownTargets() {
		if !t.Same(current) && replaceAspect(current.FullVersion, t.FullVersion, r.Track()) == current.FullVersion {
			d.markBad(t)
		}
	}
}

// setMergedTarget sets the target of a move as the target of the release for the instance.
func (r *Release) setMergedTarget(m Move) {
	if r.MergedTargets == nil {
		r.MergedTargets = map[entities.InstanceID]MergedTarget{}
	}
	r.MergedTargets[m.Instance] = MergedTarget{Version: m.Version, Target: m.Target}
}
