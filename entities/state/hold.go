package state

import (
	"fmt"
	"slices"
	"strings"
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
		present, err := s.presentIn(channel)
		if err != nil {
			return nil, err
		}
		version = present
	}
	targets, known := s.pinnable(channel, version)
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s has not converged at %q%s", s.scope(channel), version, entities.Expected(known))
	}
	if why := s.asksGatesOf(channel, version, targets); why != nil {
		return nil, why
	}
	if why := s.keptFromPin(channel, targets); why != nil {
		return nil, why
	}
	if old, ok := s.PinOf(channel); ok && old.Version == version && old.same(targets) {
		return already("%s is already pinned to %s by %s", s.scope(channel), version, old.Who.Name)
	}
	return func() string {
		s.Pins = append(s.otherPins(channel), Pin{Channel: channel, Version: version, Targets: targets, Who: who, Reason: reason, At: now})
		text := "pinned to " + version
		s.Record(now, channel, text+" by "+who.Name+entities.Because(reason))
		s.note(entities.AuditLine{At: now, Kind: entities.EventPin, Who: &who, Channel: channel, Version: version, Text: text, Reason: reason})
		for _, i := range s.In(channel) {
			if t, ok := targets[i.ID.Name]; ok && !i.Delivery.Target.Same(t) {
				s.noteUnasked(channel, version, who, "for the pin", reason, now)
				break
			}
		}
		return s.scope(channel) + " is " + text
	}, nil
}

// presentIn is the full version that all instances of a channel have as their target.
func (s *State) presentIn(channel string) (string, error) {
	var versions []string
	for _, i := range s.In(channel) {
		if v := i.present(); v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	switch len(versions) {
	case 0:
		return "", fmt.Errorf("nothing was released to %s yet: there is nothing to pin it to", s.scope(channel))
	case 1:
		return versions[0], nil
	}
	return "", fmt.Errorf("%s is at several versions%s", s.scope(channel), entities.Expected(versions))
}

// noteUnasked records that a person moves a channel to a good version without its gates.
func (s *State) noteUnasked(channel, version string, who entities.Who, by, reason string, now time.Time) {
	s.note(entities.AuditLine{
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

// Unpinning describes how a channel is unpinned.
type Unpinning struct {
	Channel string
	Stay    bool // keep the pinned version until a newer release comes
	Who     entities.Who
	Reason  string
}

// Unpin ends a pin (A17): waiting releases continue. If none waits, the version that was promoted before the pin comes back once all
// gates pass, as a release, so a version that was denied during the pin does not come back.
func (s *State) Unpin(u Unpinning, now time.Time) (Effect, error) {
	p, ok := s.PinOf(u.Channel)
	if !ok {
		if err := s.checkChannel(u.Channel); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s is not pinned", s.scope(u.Channel))
	}
	return func() string {
		s.Pins = s.otherPins(u.Channel)
		text := "unpinned from " + p.Version
		s.Record(now, u.Channel, text+" by "+u.Who.Name+entities.Because(u.Reason))
		s.note(entities.AuditLine{At: now, Kind: entities.EventPin, Who: &u.Who, Channel: u.Channel, Version: p.Version, Text: text, Reason: u.Reason})
		return s.scope(u.Channel) + " is " + text + s.afterPin(u, now)
	}, nil
}

// afterPin brings back the version that was promoted before a pin, or prevents that.
func (s *State) afterPin(u Unpinning, now time.Time) string {
	var back []Move
	for _, i := range s.In(u.Channel) {
		if before := i.Delivery.BeforePin; before != nil {
			back = append(back, Move{Instance: i.ID, Target: before.Target})
		}
	}
	if len(back) == 0 {
		return ""
	}
	stays := s.Instance(back[0].Instance).present()
	for _, m := range back {
		s.Instance(m.Instance).Delivery.BeforePin = nil
	}
	if r := s.waiting(u.Channel); r != nil {
		return fmt.Sprintf("; %s stays until %s enters", stays, r.FullVersion)
	}
	if u.Stay {
		s.callOff(back)
		return "; " + stays + " stays until a newer release"
	}
	s.openReturns(back, "", u.Who, now)
	return "; it returns to " + back[0].Target.FullVersion + " once all gates pass"
}

// waiting is the oldest pending release of a channel, or nil.
func (s *State) waiting(channel string) *Release {
	for _, r := range s.Releases {
		if p := r.in(channel); p != nil && p.Phase == maestro.Pending {
			return r
		}
	}
	return nil
}

// callOff ensures that a change of configuration does not bring back the targets that instances do not return to.
func (s *State) callOff(moves []Move) {
	for _, m := range moves {
		for _, r := range s.Releases {
			if p := r.in(m.Instance.Channel); p != nil && p.Phase.Entered() && m.Target.Same(r.Target(m.Instance)) {
				p.CalledOff = true
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

// pinnable are the targets of a version that the instances of a channel can be pinned to, and all versions that any of them can be pinned
// to: the current one first, then from the newest good one.
func (s *State) pinnable(channel, version string) (targets map[string]entities.Target, known []string) {
	targets = map[string]entities.Target{}
	for _, i := range s.In(channel) {
		for _, t := range i.Delivery.pinnable() {
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

func (d *Delivery) pinnable() []entities.Target {
	var out []entities.Target
	add := func(t *entities.Target) {
		if t != nil && !slices.ContainsFunc(out, t.Same) {
			out = append(out, *t)
		}
	}
	add(d.Target)
	add(d.LastGood)
	for n := len(d.Earlier) - 1; n >= 0; n-- {
		add(&d.Earlier[n])
	}
	return out
}

// pinned sets the targets of a pin, or, after the pin, the targets from before it.
func (s *State) pinned(c Change, now time.Time) {
	move := s.moved(c.Moves)
	s.Record(now, c.Channel, move+" ("+c.Cause+")")
	s.noteChange(Change{Channel: c.Channel, Moves: c.Moves, Cause: c.Cause}, entities.EventTarget, move, now)
	s.Channel(c.Channel).targetSet()
	pin, pinned := s.PinOf(c.Channel)
	if r := s.ReleaseByID(c.Release); pinned && r != nil && !pin.to(r) { // it comes back after unpin
		r.Phases[c.Channel] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "pinned to " + pin.Version + " by " + pin.Who.Name}
	}
	for _, m := range c.Moves {
		i := s.Instance(m.Instance)
		if before := i.Delivery.BeforePin; !pinned && before != nil {
			s.returnTo(i, before.Target, now)
			i.Delivery.Rollback = before.Rollback
			continue
		}
		s.pinTo(i, m.Target, now)
	}
}

// to reports whether a pin keeps instances at a release.
func (p *Pin) to(r *Release) bool {
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
	if before == nil && !s.calledOffHere(i) && (d.Converged || d.Rollback != nil) {
		before = &BeforePin{Target: *d.Target, Rollback: d.Rollback}
		if before.Rollback != nil {
			before.Rollback.Failed = time.Time{}
		}
	}
	s.returnTo(i, t, now)
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
			ended = "turned up"
		}
		s.Record(now, "", fmt.Sprintf("%s %s (%s by %s)", scope, ended, was.Held(), was.By))
	case at >= 0:
		s.Pauses[at] = entities.Pause{Scope: scope, By: pause.By, Reason: pause.Reason, At: pause.At, Drain: pause.Drain}
	default:
		s.Pauses = append(s.Pauses, entities.Pause{Scope: scope, By: pause.By, Reason: pause.Reason, At: pause.At, Drain: pause.Drain})
		s.Record(now, "", fmt.Sprintf("%s %s by %s%s", scope, pause.Held(), pause.By, entities.Because(pause.Reason)))
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

// HeldFromOutside reports whether a pause of a larger scope holds the instance: of its runtime, its application, or everything.
func (s *State) HeldFromOutside(id entities.InstanceID) bool {
	runtime, _ := s.Runtime(id)
	return slices.ContainsFunc(s.Pauses, func(p entities.Pause) bool { return p.Scope != "" && nearness(p, id.Channel, runtime) > 0 })
}

// PauseOn returns the pause that holds the objects of an instance on a runtime.
func (s *State) PauseOn(id entities.InstanceID, runtime string) (entities.Pause, bool) {
	return s.nearest(func(p entities.Pause) int { return nearness(p, id.Channel, runtime) })
}

// PauseIn returns the pause that holds a channel independent of the runtimes of its instances. An empty channel means the service as a
// whole.
func (s *State) PauseIn(channel string) (entities.Pause, bool) {
	return s.nearest(func(p entities.Pause) int { return nearness(p, channel, "") })
}

func (s *State) nearest(nearness func(entities.Pause) int) (entities.Pause, bool) {
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
			return already("%s is already paused by %s", s.scope(channel), p.By)
		}
	}
	return func() string {
		s.Pauses = append(s.Pauses, entities.Pause{Channel: channel, By: who.Name, Reason: reason, At: now})
		s.noteAct(entities.EventPause, who, nil, channel, "paused", reason, now)
		return s.scope(channel) + " is paused"
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
	if p, ok := s.pauseShown(channel); ok {
		return nil, fmt.Errorf("%s itself is not paused; %s is, by %s; resume it with: %s", s.scope(channel), s.where(p), p.By, s.ResumeWith(p))
	}
	return already("%s is not paused", s.scope(channel))
}

func (s *State) resume(at int, channel string, who entities.Who, now time.Time) string {
	s.Pauses = append(s.Pauses[:at:at], s.Pauses[at+1:]...)
	s.Record(now, channel, "resumed by "+who.Name)
	s.noteAct(entities.EventPause, who, nil, channel, "resumed", "", now)
	if still, ok := s.pauseShown(channel); ok {
		return fmt.Sprintf("%s resumed, but %s is still paused by %s", s.scope(channel), s.where(still), still.By)
	}
	return s.scope(channel) + " resumed"
}

// pauseShown is the nearest pause of a channel, or of the runtime of its only instance.
func (s *State) pauseShown(channel string) (entities.Pause, bool) {
	if c, ok := s.Spec.Channel(channel); ok && len(c.Instances) == 1 {
		return s.PauseOf(c.ID(c.Instances[0]))
	}
	return s.PauseIn(channel)
}

// where names the scope of a pause, for people.
func (s *State) where(p entities.Pause) string {
	switch {
	case p.Scope == entities.ScopeApplication:
		return "application " + s.Application
	case p.Scope == entities.ScopeInstallation:
		return "everything"
	case p.Scope != "":
		return p.Scope
	}
	return s.scope(p.Channel)
}

// ResumeWith is the command that ends a pause.
func (s *State) ResumeWith(p entities.Pause) string {
	name := s.Application + "/" + s.Title()
	switch {
	case p.Scope == entities.ScopeApplication:
		return "converge resume " + s.Application
	case p.Scope == entities.ScopeInstallation:
		return "converge resume --all"
	case strings.HasPrefix(p.Scope, entities.ScopeRuntime):
		if p.Drain != nil {
			return "converge turnup " + strings.TrimPrefix(p.Scope, entities.ScopeRuntime)
		}
		return "converge resume " + p.Scope
	case p.Channel != "":
		return fmt.Sprintf("converge resume %s --channel %s", name, p.Channel)
	}
	return "converge resume " + name
}
