package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// applyRollback rolls a release back. Its target is not good any more, and it does not enter again automatically; only a retry by a person
// lifts that bar.
func (s *State) applyRollback(c Change, who *entities.Who, now time.Time) {
	r := s.ReleaseByID(c.Release)
	previous := r.FullVersion
	if t := s.Instance(c.Moves[0].Instance).Delivery.Target; t != nil {
		previous = t.FullVersion
	}
	to := c.Moves[0].Target.FullVersion
	reason, by := c.Cause, ""
	if who != nil {
		by = " by " + who.Name
		reason = "by " + who.Name + entities.Because(c.Cause)
	}
	r.Phases[c.Channel] = &PhaseState{Phase: maestro.RolledBack, Since: now, Reason: reason, Revoked: who != nil || r.isRevoked(c.Channel)}
	s.AppendJournal(now, c.Channel, fmt.Sprintf("%s (rolled back%s%s)", s.moveText(c.Moves), by, entities.Because(c.Cause)))
	s.recordAudit(entities.AuditEntry{
		At: now, Kind: entities.EventRollback, Who: who, Channel: c.Channel, Release: r.ID, Version: previous,
		Text: fmt.Sprintf("rolled back from %s to %s%s", previous, to, s.runtimeChangeText(c.Moves[0])), Reason: c.Cause,
	})
	if c.Reenters {
		r.Phases[c.Channel] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: c.Cause}
	} else {
		s.withdraw(r, c.Channel, true, r.FullVersion+" was rolled back in "+c.Channel, now)
	}
	s.Channel(c.Channel).clearReadings()
	for _, m := range c.Moves {
		i := s.Instance(m.Instance)
		from := *i.Delivery.Target
		s.markReleaseBad(i, r)
		if by := s.TargetRelease(i); m.Version != "" && by != nil { // values that came on top stay
			by.setMergedTarget(m)
		}
		s.restoreTarget(i, m.Target, now)
		i.Delivery.Rollback = &entities.Rollback{Release: r.ID, From: from.FullVersion, Who: who, Reason: c.Cause, At: now, WhilePaused: c.WhilePaused}
	}
}

// RollbackRequest describes a manual rollback.
type RollbackRequest struct {
	Version     string // "": the newest release that is the target of some instance
	Channel     string // "": all channels where it is the target
	WhilePaused bool   // also where its channel, or the service, is paused; the pause remains
	// RenderedTargets are the targets that were rendered for it (RollbackTargets); nil: they are not known yet.
	RenderedTargets map[entities.InstanceID]entities.Target
	Who             entities.Who
	Reason          string
}

// RollBack rolls a release back in each channel that it entered and where it is the target (A22): to the previous good target, without
// gates, which is recorded. Its pending phases are cancelled. If the configuration requires gates, a release returns the channel, and
// waits for them. An empty version means the newest release that is the target of some instance. Pinned and paused channels, and those
// without an earlier good target, are skipped and named.
func (s *State) RollBack(b RollbackRequest, now time.Time) (Effect, error) {
	who, reason, channel := b.Who, b.Reason, b.Channel
	r, err := s.findRollback(b.Version, channel)
	if err != nil {
		return nil, err
	}
	var changes []Change
	var skipped []string
	for _, c := range s.phaseChannels(r, channel) {
		if !s.canRollBack(r, c) {
			continue
		}
		moves, why := s.rollbackMoves(c, r, &b)
		skipped = append(skipped, why...)
		if len(moves) > 0 {
			changes = append(changes, Change{Channel: c, Release: r.ID, Moves: moves, Cause: reason, WhilePaused: b.WhilePaused})
		}
	}
	if len(changes) == 0 {
		return s.cancelRest(r, &b, skipped, now)
	}
	return func() string {
		for _, c := range s.phaseChannels(r, channel) {
			if r.Phases[c].Phase == maestro.Pending {
				r.cancel(c, "rolled back by "+who.Name+entities.Because(reason), now)
				r.Phases[c].Revoked = true
			}
		}
		s.retargetConfigs(r, changes)
		for _, c := range changes {
			s.cancelDependentConfigs(c.Channel, false, now)
		}
		text := ""
		if s.Spec.GatedRollback {
			text = s.openRollbackReleases(r, changes, who, now)
		} else {
			text = s.rollBackNow(r, changes, who, now)
		}
		if len(skipped) > 0 {
			text += skippedText(skipped) + s.whilePaused(r, &b)
		}
		return text
	}, nil
}

// cancelRest handles a release that cannot be rolled back anywhere. A joint release, which is rolled back by its id, must not continue in
// part: its pending phases are cancelled.
func (s *State) cancelRest(r *Release, b *RollbackRequest, skipped []string, now time.Time) (Effect, error) {
	var pending []string
	for _, c := range s.phaseChannels(r, b.Channel) {
		if r.Phases[c].Phase == maestro.Pending {
			pending = append(pending, c)
		}
	}
	if len(pending) > 0 && strings.HasPrefix(b.Version, entities.IDPrefix) {
		return func() string {
			c := Cancellation{Version: b.Version, Who: b.Who, Reason: b.Reason}
			for _, c.Channel = range pending {
				s.cancelRelease(r, &c, now)
			}
			return r.FullVersion + " cancelled in " + strings.Join(pending, ", ") + skippedText(skipped) + s.whilePaused(r, b)
		}, nil
	}
	if len(skipped) > 0 {
		return nil, fmt.Errorf("%s cannot be rolled back: %s%s", r.FullVersion, strings.Join(skipped, ", "), s.whilePaused(r, b))
	}
	hint := ""
	if len(pending) > 0 {
		hint = fmt.Sprintf("; to cancel its pending channels: converge cancel %s/%s %s", s.Application, s.Title(), r.FullVersion)
		if b.Channel != "" {
			hint += " --channel " + b.Channel
		}
	}
	return nil, fmt.Errorf("%s is not the target of any channel: %s%s%s", r.FullVersion, r.phasesText(), s.rollbackHint(r, b.Channel), hint)
}

// skippedText lists what a rollback does not change, or "".
func skippedText(skipped []string) string {
	if len(skipped) == 0 {
		return ""
	}
	return "; skipped: " + strings.Join(skipped, ", ")
}

// retargetConfigs lets newer configuration for a version that is rolled back come with the version that replaces it (I2).
func (s *State) retargetConfigs(r *Release, changes []Change) {
	for _, o := range s.openConfigReleases(r) {
		for _, c := range changes {
			if p := o.phaseState(c.Channel); p != nil && p.Phase == maestro.Pending && !r.IsConfig() {
				o.markKeepsVersion(c.Channel)
			}
		}
	}
}

// whilePaused is the advice for a rollback that only a pause of the service, or of its channels, prevents; or "".
func (s *State) whilePaused(r *Release, b *RollbackRequest) string {
	held := slices.ContainsFunc(s.phaseChannels(r, b.Channel), func(c string) bool {
		return slices.ContainsFunc(s.InstancesIn(c), func(i *Instance) bool {
			_, paused := s.PauseOf(i.ID)
			return paused && i.IsAt(r) && s.rollbackRefusal(i, false, false) != "" && s.rollbackRefusal(i, true, false) == ""
		})
	})
	if !held || s.Spec.GatedRollback {
		return ""
	}
	channel := ""
	if b.Channel != "" {
		channel = " --channel " + b.Channel
	}
	return fmt.Sprintf("; to do so while it is paused: converge rollback %s/%s %s%s --while-paused", s.Application, s.Title(), r.FullVersion, channel)
}

// rollbackHint is the advice to move a channel to an earlier good release: a rollback names the release that it leaves, not its
// destination.
func (s *State) rollbackHint(r *Release, channel string) string {
	for _, c := range s.phaseChannels(r, channel) {
		for _, i := range s.InstancesIn(c) {
			if by := s.TargetRelease(i); by != nil && by.Track() != r.Track() && s.targetIncludes(i, r) {
				return fmt.Sprintf("; in %s %s was applied on top of it: roll that back first, or release a replacement", c, by.FullVersion)
			}
		}
		if targets, _ := s.pinTargets(c, r.FullVersion); len(targets) > 0 {
			return fmt.Sprintf("; a rollback names the release to remove, or none for the newest; to move to %s and stay there: converge channel pin %s/%s %s %s",
				r.FullVersion, s.Application, s.Title(), c, r.FullVersion)
		}
	}
	return ""
}

// targetIncludes reports whether the target of an instance includes a release, together with others.
func (s *State) targetIncludes(i *Instance, r *Release) bool {
	if r.IsAspect() {
		return i.hasValues(r)
	}
	version, values := entities.SplitVersion(i.currentVersion())
	own, _ := entities.SplitVersion(r.FullVersionFor(i.ID))
	return len(values) > 0 && version == own
}

func (s *State) rollBackNow(r *Release, changes []Change, who entities.Who, now time.Time) string {
	var texts []string
	for _, c := range changes {
		to := c.Moves[0].Target.FullVersion
		s.applyRollback(c, &who, now)
		s.recordAction(entities.EventBypass, who, r, c.Channel, "gates of "+to+" are not evaluated for the rollback", c.Cause, now)
		if p, paused := s.displayedPause(c.Channel); c.WhilePaused && paused {
			s.recordAction(entities.EventBypass, who, r, c.Channel, "the pause by "+p.By+" does not hold the rollback", c.Cause, now)
		}
		texts = append(texts, c.Channel+" to "+to)
	}
	return fmt.Sprintf("%s is rolled back in %s", r.FullVersion, strings.Join(texts, ", "))
}

// rollbackMoves are the targets that a rollback of a release sets in a channel, and the instances that it skips there and why.
func (s *State) rollbackMoves(channel string, r *Release, b *RollbackRequest) (moves []Move, skipped []string) {
	pending := s.pendingReturn(channel)
	for _, i := range s.InstancesIn(channel) {
		below := s.isBelow(i, r)
		if !i.IsAt(r) && !below {
			continue
		}
		if why := r.passingReason(channel); why != "" {
			skipped = append(skipped, s.DisplayName(i.ID)+" ("+why+")")
			continue
		}
		if pending != nil {
			skipped = append(skipped, s.DisplayName(i.ID)+" (it returns to "+pending.FullVersion+" once all gates pass)")
			continue
		}
		if why := s.rollbackRefusal(i, b.WhilePaused && !s.Spec.GatedRollback, below); why != "" {
			skipped = append(skipped, s.DisplayName(i.ID)+" ("+why+")")
			continue
		}
		m, why := s.rollbackMove(i, r, b, below)
		if why != "" {
			skipped = append(skipped, s.DisplayName(i.ID)+" ("+why+")")
			continue
		}
		moves = append(moves, m)
	}
	return moves, skipped
}

// canRollBack reports whether a release entered a channel and was not rolled back there, cancelled or not.
func (s *State) canRollBack(r *Release, channel string) bool {
	p := r.Phases[channel].Phase
	return p.Entered() && p != maestro.RolledBack || slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool {
		return i.Delivery.Cancelled != "" && i.IsAt(r) || p == maestro.RolledBack && s.isBelow(i, r) // it was skipped then
	})
}

// rollbackRefusal returns why an instance cannot be rolled back now, or "". whilePaused: a pause of its channel, or of the service, does
// not count. below: the release is not the last one there, and has its own rollback target.
func (s *State) rollbackRefusal(i *Instance, whilePaused, below bool) string {
	if p, ok := s.PauseOf(i.ID); ok && !(whilePaused && !s.HasWiderPause(i.ID)) {
		return "paused by " + p.By
	}
	if p, ok := s.PinOf(i.ID.Channel); ok {
		return "pinned by " + p.Who.Name
	}
	switch to, why := s.RollbackTarget(i); {
	case i.RollbackFailed():
		return "its rollback failed: retry it, or release a fix"
	case i.RollingBack():
		return "a rollback to it is in progress"
	case below:
	case to == nil && why != "":
		return why + "; " + s.FloorBypassCommand(i)
	case to == nil:
		return "no earlier good target"
	}
	return ""
}

// findRollback finds the release to roll back: the named one, or the newest that entered a channel and is the target there.
func (s *State) findRollback(version, channel string) (*Release, error) {
	if version != "" {
		return s.Find(version, channel)
	}
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		for _, c := range s.phaseChannels(r, channel) {
			if s.canRollBack(r, c) && s.isAt(c, r) {
				return r, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no release: there is nothing to roll back", s.scopeName(channel))
}
