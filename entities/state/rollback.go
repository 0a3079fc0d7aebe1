package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// rollback takes a release back. Its target is not good any more, and it does not enter again automatically; only a retry by a person
// lifts that bar.
func (s *State) rollback(c Change, who *entities.Who, now time.Time) {
	r := s.ReleaseByID(c.Release)
	left := r.FullVersion
	if t := s.Instance(c.Moves[0].Instance).Delivery.Target; t != nil {
		left = t.FullVersion
	}
	to := c.Moves[0].Target.FullVersion
	reason, by := c.Cause, ""
	if who != nil {
		by = " by " + who.Name
		reason = "by " + who.Name + entities.Because(c.Cause)
	}
	r.Phases[c.Channel] = &PhaseState{Phase: maestro.RolledBack, Since: now, Reason: reason, CalledOff: who != nil || r.calledOff(c.Channel)}
	s.Record(now, c.Channel, fmt.Sprintf("%s (rolled back%s%s)", s.moved(c.Moves), by, entities.Because(c.Cause)))
	s.note(entities.AuditLine{
		At: now, Kind: entities.EventRollback, Who: who, Channel: c.Channel, Release: r.ID, Version: left,
		Text: fmt.Sprintf("rolled back from %s to %s%s", left, to, s.elsewhere(c.Moves[0])), Reason: c.Cause,
	})
	if c.Again {
		r.Phases[c.Channel] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: c.Cause}
	} else {
		s.withdraw(r, c.Channel, true, r.FullVersion+" was rolled back in "+c.Channel, now)
	}
	s.Channel(c.Channel).targetSet()
	for _, m := range c.Moves {
		i := s.Instance(m.Instance)
		from := *i.Delivery.Target
		s.badBy(i, r)
		if by := s.Brought(i); m.Version != "" && by != nil { // values that came on top stay
			by.bring(m)
		}
		s.returnTo(i, m.Target, now)
		i.Delivery.Rollback = &entities.Rollback{Release: r.ID, From: from.FullVersion, Who: who, Reason: c.Cause, At: now, WhilePaused: c.WhilePaused}
	}
}

// RollingBack describes a manual rollback.
type RollingBack struct {
	Version     string // "": the newest release that is the target of some instance
	Channel     string // "": all channels where it is the target
	WhilePaused bool   // also where its channel, or the service, is paused; the pause remains
	// Ways are the targets that were rendered for it (WaysBack); nil: they are not known yet.
	Ways   map[entities.InstanceID]entities.Target
	Who    entities.Who
	Reason string
}

// RollBack takes a release back in each channel that it entered and where it is the target (A22): to the previous good target, without
// gates, which is recorded. Its pending phases are cancelled. If the configuration requires gates, a release returns the channel, and
// waits for them. An empty version means the newest release that is the target of some instance. Pinned and paused channels, and those
// without an earlier good target, are left alone and named.
func (s *State) RollBack(b RollingBack, now time.Time) (Effect, error) {
	who, reason, channel := b.Who, b.Reason, b.Channel
	r, err := s.toRollBack(b.Version, channel)
	if err != nil {
		return nil, err
	}
	var changes []Change
	var left []string
	for _, c := range s.phaseChannels(r, channel) {
		if !s.leavable(r, c) {
			continue
		}
		moves, why := s.rollbackMoves(c, r, &b)
		left = append(left, why...)
		if len(moves) > 0 {
			changes = append(changes, Change{Channel: c, Release: r.ID, Moves: moves, Cause: reason, WhilePaused: b.WhilePaused})
		}
	}
	if len(changes) == 0 {
		return s.endRest(r, &b, left, now)
	}
	return func() string {
		for _, c := range s.phaseChannels(r, channel) {
			if r.Phases[c].Phase == maestro.Pending {
				r.cancel(c, "rolled back by "+who.Name+entities.Because(reason), now)
				r.Phases[c].CalledOff = true
			}
		}
		s.keepConfigs(r, changes)
		for _, c := range changes {
			s.forgo(c.Channel, false, now)
		}
		text := ""
		if s.Spec.AskGates {
			text = s.askBack(r, changes, who, now)
		} else {
			text = s.rollBack(r, changes, who, now)
		}
		if len(left) > 0 {
			text += leftAlone(left) + s.whilePaused(r, &b)
		}
		return text
	}, nil
}

// endRest handles a release that cannot be taken back anywhere. A joint release, which is taken back by its id, must not continue in
// part: its pending phases are cancelled.
func (s *State) endRest(r *Release, b *RollingBack, left []string, now time.Time) (Effect, error) {
	var rest []string
	for _, c := range s.phaseChannels(r, b.Channel) {
		if r.Phases[c].Phase == maestro.Pending {
			rest = append(rest, c)
		}
	}
	if len(rest) > 0 && strings.HasPrefix(b.Version, entities.ByID) {
		return func() string {
			c := Cancelling{Version: b.Version, Who: b.Who, Reason: b.Reason}
			for _, c.Channel = range rest {
				s.cancelOne(r, &c, now)
			}
			return r.FullVersion + " cancelled in " + strings.Join(rest, ", ") + leftAlone(left) + s.whilePaused(r, b)
		}, nil
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("%s cannot be rolled back: %s%s", r.FullVersion, strings.Join(left, ", "), s.whilePaused(r, b))
	}
	end := ""
	if len(rest) > 0 {
		end = fmt.Sprintf("; to cancel its pending channels: converge cancel %s/%s %s", s.Application, s.Title(), r.FullVersion)
		if b.Channel != "" {
			end += " --channel " + b.Channel
		}
	}
	return nil, fmt.Errorf("%s is not the target of any channel: %s%s%s", r.FullVersion, r.phases(), s.leadsTo(r, b.Channel), end)
}

// leftAlone lists what a rollback does not change, or "".
func leftAlone(left []string) string {
	if len(left) == 0 {
		return ""
	}
	return "; skipped: " + strings.Join(left, ", ")
}

// keepConfigs lets newer configuration for a version that is taken back come with the version that replaces it (I2).
func (s *State) keepConfigs(r *Release, changes []Change) {
	for _, o := range s.configsOf(r) {
		for _, c := range changes {
			if p := o.in(c.Channel); p != nil && p.Phase == maestro.Pending && !r.Config() {
				o.keep(c.Channel)
			}
		}
	}
}

// whilePaused is the advice for a rollback that only a pause of the service, or of its channels, prevents; or "".
func (s *State) whilePaused(r *Release, b *RollingBack) string {
	held := slices.ContainsFunc(s.phaseChannels(r, b.Channel), func(c string) bool {
		return slices.ContainsFunc(s.In(c), func(i *Instance) bool {
			_, paused := s.PauseOf(i.ID)
			return paused && i.IsAt(r) && s.notBack(i, false, false) != "" && s.notBack(i, true, false) == ""
		})
	})
	if !held || s.Spec.AskGates {
		return ""
	}
	channel := ""
	if b.Channel != "" {
		channel = " --channel " + b.Channel
	}
	return fmt.Sprintf("; to do so while it is paused: converge rollback %s/%s %s%s --while-paused", s.Application, s.Title(), r.FullVersion, channel)
}

// leadsTo is the advice to move a channel to an earlier good release: a rollback names the release that it leaves, not its destination.
func (s *State) leadsTo(r *Release, channel string) string {
	for _, c := range s.phaseChannels(r, channel) {
		for _, i := range s.In(c) {
			if by := s.Brought(i); by != nil && by.Line() != r.Line() && s.merges(i, r) {
				return fmt.Sprintf("; in %s %s was applied on top of it: roll that back first, or release a replacement", c, by.FullVersion)
			}
		}
		if targets, _ := s.pinnable(c, r.FullVersion); len(targets) > 0 {
			return fmt.Sprintf("; a rollback names the release to remove, or none for the newest; to move to %s and stay there: converge pin %s/%s %s %s",
				r.FullVersion, s.Application, s.Title(), c, r.FullVersion)
		}
	}
	return ""
}

// merges reports whether the target of an instance includes a release, together with others.
func (s *State) merges(i *Instance, r *Release) bool {
	if r.OfAspect() {
		return i.has(r)
	}
	version, values := entities.SplitVersion(i.present())
	own, _ := entities.SplitVersion(r.FullIn(i.ID))
	return len(values) > 0 && version == own
}

func (s *State) rollBack(r *Release, changes []Change, who entities.Who, now time.Time) string {
	var back []string
	for _, c := range changes {
		to := c.Moves[0].Target.FullVersion
		s.rollback(c, &who, now)
		s.noteAct(entities.EventBypass, who, r, c.Channel, "gates of "+to+" are not evaluated for the rollback", c.Cause, now)
		if p, paused := s.pauseShown(c.Channel); c.WhilePaused && paused {
			s.noteAct(entities.EventBypass, who, r, c.Channel, "the pause by "+p.By+" does not hold the rollback", c.Cause, now)
		}
		back = append(back, c.Channel+" to "+to)
	}
	return fmt.Sprintf("%s is rolled back in %s", r.FullVersion, strings.Join(back, ", "))
}

// rollbackMoves are the targets that a rollback of a release sets in a channel, and the instances that it leaves alone there and why.
func (s *State) rollbackMoves(channel string, r *Release, b *RollingBack) (moves []Move, left []string) {
	back := s.returning(channel)
	for _, i := range s.In(channel) {
		below := s.below(i, r)
		if !i.IsAt(r) && !below {
			continue
		}
		if why := r.passed(channel); why != "" {
			left = append(left, s.Shown(i.ID)+" ("+why+")")
			continue
		}
		if back != nil {
			left = append(left, s.Shown(i.ID)+" (it returns to "+back.FullVersion+" once all gates pass)")
			continue
		}
		if why := s.notBack(i, b.WhilePaused && !s.Spec.AskGates, below); why != "" {
			left = append(left, s.Shown(i.ID)+" ("+why+")")
			continue
		}
		m, why := s.moveBack(i, r, b, below)
		if why != "" {
			left = append(left, s.Shown(i.ID)+" ("+why+")")
			continue
		}
		moves = append(moves, m)
	}
	return moves, left
}

// leavable reports whether a release entered a channel and was not taken back there, cancelled or not.
func (s *State) leavable(r *Release, channel string) bool {
	p := r.Phases[channel].Phase
	return p.Entered() && p != maestro.RolledBack || slices.ContainsFunc(s.In(channel), func(i *Instance) bool {
		return i.Delivery.Cancelled != "" && i.IsAt(r) || p == maestro.RolledBack && s.below(i, r) // it was left alone then
	})
}

// notBack returns why an instance cannot be rolled back now, or "". whilePaused: a pause of its channel, or of the service, does not
// count. below: the release is not the last one there, and has its own rollback target.
func (s *State) notBack(i *Instance, whilePaused, below bool) string {
	if p, ok := s.PauseOf(i.ID); ok && !(whilePaused && !s.HeldFromOutside(i.ID)) {
		return "paused by " + p.By
	}
	if p, ok := s.PinOf(i.ID.Channel); ok {
		return "pinned by " + p.Who.Name
	}
	switch to, why := s.ReturnsTo(i); {
	case i.RollbackFailed():
		return "its rollback failed: retry it, or release a fix"
	case i.RollingBack():
		return "a rollback to it is in progress"
	case below:
	case to == nil && why != "":
		return why + "; " + s.PassFloor(i)
	case to == nil:
		return "no earlier good target"
	}
	return ""
}

// toRollBack finds the release to take back: the named one, or the newest that entered a channel and is the target there.
func (s *State) toRollBack(version, channel string) (*Release, error) {
	if version != "" {
		return s.Find(version, channel)
	}
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		for _, c := range s.phaseChannels(r, channel) {
			if s.leavable(r, c) && s.isAt(c, r) {
				return r, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no release: there is nothing to roll back", s.scope(channel))
}
