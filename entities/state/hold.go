package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// Pin keeps a channel at its current version or at one of its earlier good ones until it is unpinned, even if others are released (A17).
// An empty version means the current one. Instances move to another target without gates, which is recorded; a pause holds that. A
// release that is in progress with another version waits again.
func (s *State) Pin(channel, version string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if channel == "" {
		return nil, fmt.Errorf("no channel given%s", entities.Expected(s.Spec.ChannelNames()))
	}
	if version == "" {
		current, err := s.currentVersionIn(channel)
		if err != nil {
			return nil, err
		}
		version = current
	}
	targets, known := s.pinTargets(channel, version)
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s cannot return to %q: it keeps only the versions that were good there last%s", s.scopeName(channel), version, entities.Expected(known))
	}
	if why := s.checkPinGates(channel, version, targets); why != nil {
		return nil, why
	}
	if why := s.checkPinFloor(channel, targets); why != nil {
		return nil, why
	}
	if old, ok := s.PinOf(channel); ok && old.Version == version && old.same(targets) {
		return noChange("%s is already pinned to %s by %s", s.scopeName(channel), version, old.Who.Name)
	}
	return func() string {
		s.Pins = append(s.otherPins(channel), Pin{Channel: channel, Version: version, Targets: targets, Who: who, Reason: reason, At: now})
		text := "pinned to " + version
		s.AppendJournal(now, channel, text+" by "+who.Name+entities.Because(reason))
		s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventPin, Who: &who, Channel: channel, Version: version, Text: text, Reason: reason})
		for _, i := range s.InstancesIn(channel) {
			if t, ok := targets[i.ID.Name]; ok && !i.Delivery.Target.Same(t) {
				s.recordSkippedGates(channel, version, who, "for the pin", reason, now)
				break
			}
		}
		return s.scopeName(channel) + " is " + text
	}, nil
}

// currentVersionIn is the full version that all instances of a channel have as their target.
func (s *State) currentVersionIn(channel string) (string, error) {
	var versions []string
	for _, i := range s.InstancesIn(channel) {
		if v := i.currentVersion(); v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	switch len(versions) {
	case 0:
		return "", fmt.Errorf("nothing was released to %s yet: there is nothing to pin it to", s.scopeName(channel))
	case 1:
		return versions[0], nil
	}
	return "", fmt.Errorf("%s is at several versions%s", s.scopeName(channel), entities.Expected(versions))
}

// recordSkippedGates records that a person moves a channel to a good version without its gates.
func (s *State) recordSkippedGates(channel, version string, who entities.Who, by, reason string, now time.Time) {
	s.recordAudit(entities.AuditEntry{
		At: now, Kind: entities.EventBypass, Who: &who, Channel: channel, Version: version,
		Text: "gates of " + version + " are not evaluated " + by, Reason: reason,
	})
}

// same reports whether a pin has exactly these targets.
func (p *Pin) same(targets map[string]entities.Target) bool {
	if len(p.Targets) != len(targets) {
		return false
	}
	for _, name := range entities.SortedKeys(targets) {
		if t, ok := p.Targets[name]; !ok || !t.Same(targets[name]) {
			return false
		}
	}
	return true
}

// UnpinRequest describes how a channel is unpinned.
type UnpinRequest struct {
	Channel string
	Stay    bool // keep the pinned version until a newer release comes
	Who     entities.Who
	Reason  string
}

// Unpin ends a pin (A17): waiting releases continue. If none waits, the version that was promoted before the pin returns once all
// gates pass, as a release, so a version that was denied during the pin does not return.
func (s *State) Unpin(u UnpinRequest, now time.Time) (Effect, error) {
	p, ok := s.PinOf(u.Channel)
	if !ok {
		if err := s.checkChannel(u.Channel); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s is not pinned", s.scopeName(u.Channel))
	}
	return func() string {
		s.Pins = s.otherPins(u.Channel)
		text := "unpinned from " + p.Version
		s.AppendJournal(now, u.Channel, text+" by "+u.Who.Name+entities.Because(u.Reason))
		s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventPin, Who: &u.Who, Channel: u.Channel, Version: p.Version, Text: text, Reason: u.Reason})
		return s.scopeName(u.Channel) + " is " + text + s.restoreAfterUnpin(u, now)
	}, nil
}

// restoreAfterUnpin restores the version that was promoted before a pin, or prevents that.
func (s *State) restoreAfterUnpin(u UnpinRequest, now time.Time) string {
	var moves []Move
	for _, i := range s.InstancesIn(u.Channel) {
		if before := i.Delivery.BeforePin; before != nil {
			moves = append(moves, Move{Instance: i.ID, Target: before.Target})
		}
	}
	if len(moves) == 0 {
		return ""
	}
	current := s.Instance(moves[0].Instance).currentVersion()
	for _, m := range moves {
		s.Instance(m.Instance).Delivery.BeforePin = nil
	}
	if r := s.oldestPending(u.Channel); r != nil {
		return fmt.Sprintf("; %s stays until %s enters", current, r.FullVersion)
	}
	if u.Stay {
		s.revokeTargets(moves)
		return "; " + current + " stays until a newer release"
	}
	s.openReturns(moves, "", u.Who, now)
	return "; it returns to " + moves[0].Target.FullVersion + " once all gates pass"
}

// oldestPending is the oldest pending release of a channel, or nil.
func (s *State) oldestPending(channel string) *Release {
	for _, r := range s.Releases {
		if p := r.phaseState(channel); p != nil && p.Phase == maestro.Pending {
			return r
		}
	}
	return nil
}

// revokeTargets ensures that a change of configuration does not restore the targets that instances do not return to.
func (s *State) revokeTargets(moves []Move) {
	for _, m := range moves {
		for _, r := range s.Releases {
			if p := r.phaseState(m.Instance.Channel); p != nil && p.Phase.Entered() && m.Target.Same(r.Target(m.Instance)) {
				p.Revoked = true
			}
		}
	}
}

// PinOf returns the pin of a channel.
func (s *State) PinOf(channel string) (Pin, bool) {
	for _, p := range s.Pins {
		if p.Channel == channel {
			return p, true
		}
	}
	return Pin{}, false
}

// Target that a pin sets for an instance; nil: the current one.
func (p *Pin) Target(id entities.InstanceID) *entities.Target {
	if t, ok := p.Targets[id.Name]; ok {
		return &t
	}
	return nil
}

func (s *State) otherPins(channel string) []Pin {
	return slices.DeleteFunc(slices.Clone(s.Pins), func(p Pin) bool { return p.Channel == channel })
}

// pinTargets are the targets of a version that the instances of a channel can be pinned to, and all versions that any of them can be pinned
// to: the current one first, then from the newest good one.
func (s *State) pinTargets(channel, version string) (targets map[string]entities.Target, known []string) {
	targets = map[string]entities.Target{}
	for _, i := range s.InstancesIn(channel) {
		for _, t := range i.Delivery.knownTargets() {
			if !slices.Contains(known, t.FullVersion) {
				known = append(known, t.FullVersion)
			}
			if _, found := targets[i.ID.Name]; t.FullVersion == version && !found {
				targets[i.ID.Name] = t
			}
		}
	}
	return targets, known
}

func (d *Delivery) knownTargets() []entities.Target {
	var out []entities.Target
	add := func(t *entities.Target) {
		if t != nil && !slices.ContainsFunc(out, t.Same) {
			out = append(out, *t)
		}
	}
	add(d.Target)
	add(d.LastGood)
	for n := len(d.EarlierGood) - 1; n >= 0; n-- {
		add(&d.EarlierGood[n])
	}
	return out
}

// applyPin sets the targets of a pin, or, after the pin, the targets from before it.
func (s *State) applyPin(c Change, now time.Time) {
	text := s.moveText(c.Moves)
	s.AppendJournal(now, c.Channel, text+" ("+c.Cause+")")
	s.recordChange(Change{Channel: c.Channel, Moves: c.Moves, Cause: c.Cause}, entities.EventTarget, text, now)
	s.Channel(c.Channel).clearReadings()
	pin, pinned := s.PinOf(c.Channel)
	if r := s.ReleaseByID(c.Release); pinned && r != nil && !pin.keepsAt(r) { // it returns after unpin
		r.Phases[c.Channel] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "pinned to " + pin.Version + " by " + pin.Who.Name}
	}
	for _, m := range c.Moves {
		i := s.Instance(m.Instance)
		if before := i.Delivery.BeforePin; !pinned && before != nil {
			s.restoreTarget(i, before.Target, now)
			i.Delivery.Rollback = before.Rollback
			continue
		}
		s.pinTo(i, m.Target, now)
	}
}

// keepsAt reports whether a pin keeps instances at a release.
func (p *Pin) keepsAt(r *Release) bool {
	for _, name := range entities.SortedKeys(p.Targets) {
		if p.Targets[name].Same(r.Target(entities.InstanceID{Channel: p.Channel, Name: name})) {
			return true
		}
	}
	return false
}

// pinTo moves the instance to the target of a pin, and stores the target that it returns to afterwards.
func (s *State) pinTo(i *Instance, t entities.Target, now time.Time) {
	d := &i.Delivery
	before := d.BeforePin
	if before == nil && !s.targetCancelled(i) && (d.Converged || d.Rollback != nil) {
		before = &BeforePin{Target: *d.Target, Rollback: d.Rollback}
		if before.Rollback != nil {
			before.Rollback.Failed = time.Time{}
		}
	}
	s.restoreTarget(i, t, now)
	if before != nil && before.Target.Same(t) {
		d.Rollback = before.Rollback
	} else {
		d.BeforePin = before
	}
}

// SetPause records that the scope of a pause, which contains this service, was paused, or, if pause is nil, resumed: its application
// ("application"), a runtime ("runtime/NAME"), or everything ("installation"). It is idempotent.
func (s *State) SetPause(scope string, pause *entities.Pause, now time.Time) {
	at := slices.IndexFunc(s.Pauses, func(p entities.Pause) bool { return p.Scope == scope })
	switch {
	case pause == nil && at < 0:
	case pause == nil:
		was := s.Pauses[at]
		s.Pauses = slices.Delete(slices.Clone(s.Pauses), at, at+1)
		ended := "resumed"
		if was.Drain != nil {
			ended = "restored"
		}
		s.AppendJournal(now, "", fmt.Sprintf("%s %s (%s by %s)", scope, ended, was.StateText(), was.By))
	case at >= 0:
		s.Pauses[at] = entities.Pause{Scope: scope, By: pause.By, Reason: pause.Reason, At: pause.At, Drain: pause.Drain}
	default:
		s.Pauses = append(s.Pauses, entities.Pause{Scope: scope, By: pause.By, Reason: pause.Reason, At: pause.At, Drain: pause.Drain})
		s.AppendJournal(now, "", fmt.Sprintf("%s %s by %s%s", scope, pause.StateText(), pause.By, entities.Because(pause.Reason)))
	}
}

// PauseOf returns the pause that holds an instance. The order of precedence is: its channel, the service, its runtime, its application,
// everything.
func (s *State) PauseOf(id entities.InstanceID) (entities.Pause, bool) {
	if len(s.Pauses) == 0 {
		return entities.Pause{}, false
	}
	runtime, _ := s.Runtime(id)
	return s.PauseOn(id, runtime)
}

// HasWiderPause reports whether a pause of a larger scope holds the instance: of its runtime, its application, or everything.
func (s *State) HasWiderPause(id entities.InstanceID) bool {
	runtime, _ := s.Runtime(id)
	return slices.ContainsFunc(s.Pauses, func(p entities.Pause) bool { return p.Scope != "" && nearness(p, id.Channel, runtime) > 0 })
}

// PauseOn returns the pause that holds the objects of an instance on a runtime.
func (s *State) PauseOn(id entities.InstanceID, runtime string) (entities.Pause, bool) {
	return s.nearestPause(func(p entities.Pause) int { return nearness(p, id.Channel, runtime) })
}

// PauseIn returns the pause that holds a channel independent of the runtimes of its instances. An empty channel means the service as a
// whole.
func (s *State) PauseIn(channel string) (entities.Pause, bool) {
	return s.nearestPause(func(p entities.Pause) int { return nearness(p, channel, "") })
}

func (s *State) nearestPause(nearness func(entities.Pause) int) (entities.Pause, bool) {
	found, nearest := entities.Pause{}, 0
	for _, p := range s.Pauses {
		if n := nearness(p); n > nearest {
			found, nearest = p, n
		}
	}
	return found, nearest > 0
}

// nearness of a pause to a channel on a runtime; zero if the pause does not hold it.
func nearness(p entities.Pause, channel, runtime string) int {
	switch {
	case p.Scope == entities.ScopeInstallation:
		return 1
	case p.Scope == entities.ScopeApplication:
		return 2
	case p.Scope != "":
		if runtime != "" && p.Scope == entities.ScopeRuntime+runtime {
			return 3
		}
	case p.Channel == "":
		return 4
	case p.Channel == channel:
		return 5
	}
	return 0
}

// Pause pauses a channel, or the service if channel is empty (A16).
func (s *State) Pause(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	for _, p := range s.Pauses {
		if p.Channel == channel && p.Scope == "" {
			return noChange("%s is already paused by %s", s.scopeName(channel), p.By)
		}
	}
	return func() string {
		s.Pauses = append(s.Pauses, entities.Pause{Channel: channel, By: who.Name, Reason: reason, At: now})
		s.recordAction(entities.EventPause, who, nil, channel, "paused", reason, now)
		return s.scopeName(channel) + " is paused"
	}, nil
}

// Resume ends a pause of exactly that scope.
func (s *State) Resume(channel string, who entities.Who, now time.Time) (Effect, error) {
	if at := slices.IndexFunc(s.Pauses, func(p entities.Pause) bool { return p.Channel == channel && p.Scope == "" }); at >= 0 {
		return func() string { return s.resume(at, channel, who, now) }, nil
	}
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if p, ok := s.displayedPause(channel); ok {
		return nil, fmt.Errorf("%s itself is not paused; %s is, by %s; resume it with: %s", s.scopeName(channel), s.pauseScopeName(p), p.By, s.ResumeCommand(p))
	}
	return noChange("%s is not paused", s.scopeName(channel))
}

func (s *State) resume(at int, channel string, who entities.Who, now time.Time) string {
	s.Pauses = append(s.Pauses[:at:at], s.Pauses[at+1:]...)
	s.AppendJournal(now, channel, "resumed by "+who.Name)
	s.recordAction(entities.EventPause, who, nil, channel, "resumed", "", now)
	if remaining, ok := s.displayedPause(channel); ok {
		return fmt.Sprintf("%s resumed, but %s is still paused by %s", s.scopeName(channel), s.pauseScopeName(remaining), remaining.By)
	}
	return s.scopeName(channel) + " resumed"
}

// displayedPause is the nearest pause of a channel, or of the runtime of its only instance.
func (s *State) displayedPause(channel string) (entities.Pause, bool) {
	if c, ok := s.Spec.Channel(channel); ok && len(c.Instances) == 1 {
		return s.PauseOf(c.ID(c.Instances[0]))
	}
	return s.PauseIn(channel)
}

// pauseScopeName names the scope of a pause, for people.
func (s *State) pauseScopeName(p entities.Pause) string {
	switch {
	case p.Scope == entities.ScopeApplication:
		return "application " + s.Application
	case p.Scope == entities.ScopeInstallation:
		return "everything"
	case p.Scope != "":
		return p.Scope
	}
	return s.scopeName(p.Channel)
}

// ResumeCommand is the command that ends a pause.
func (s *State) ResumeCommand(p entities.Pause) string {
	return p.ResumeCommand(s.Application, s.Title())
}
