package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file cancels releases (A18, I2): a cancelled release does not continue, and its running work ends.

// Cancelling describes the cancellation of a release.
type Cancelling struct {
	Version string
	Channel string // "": all channels in which it is not over
	// Terminate: its running work ends at once, without time to finish.
	Terminate bool
	Who       entities.Who
	Reason    string
}

func (c *Cancelling) by() string { return "by " + c.Who.Name + entities.Because(c.Reason) }

// Cancel ends the remaining part of a release: pending phases never start. Where it is in progress, its running work is requested to end,
// a converged version stays enforced, and the target does not become a good one. A release that is cancelled already and still has
// running work can be terminated.
func (s *State) Cancel(c Cancelling, now time.Time) (Effect, error) {
	r, err := s.FindOpen(c.Version, c.Channel)
	if err != nil {
		return nil, err
	}
	if err := s.isPassed(r, c.Channel); err != nil {
		return nil, err
	}
	all := []*Release{r}
	if c.Version == r.Version && !r.Config() {
		all = append(all, s.configsOf(r)...)
	}
	all = slices.DeleteFunc(all, func(r *Release) bool {
		ends, keeps := s.cancels(r, &c)
		return len(ends)+len(keeps) == 0 && !(c.Terminate && s.lasts(r))
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is over: %s", r.FullVersion, r.phases())
	}
	return func() string {
		var texts []string
		for _, r := range all {
			texts = append(texts, s.cancelOne(r, &c, now))
		}
		if c.Version == r.Version {
			s.keepOver(r, s.phaseChannels(r, c.Channel))
		}
		return strings.Join(texts, ". ")
	}, nil
}

// keepOver ensures that a configuration for a version does not bring that version after a person ended it. That includes configurations
// that newer ones replaced.
func (s *State) keepOver(r *Release, channels []string) {
	for _, name := range channels {
		if r.Config() || !r.calledOff(name) || s.isAt(name, r) {
			continue
		}
		for _, o := range s.Releases {
			if p := o.in(name); o.Config() && o.Version == r.Version && p != nil && p.Phase.Over() && !s.isAt(name, o) {
				o.keep(name)
			}
		}
	}
}

// configsOf are the open releases of newer configurations for the version of a release.
func (s *State) configsOf(r *Release) (out []*Release) {
	for _, o := range s.Releases {
		if o != r && o.Config() && o.Version == r.Version && !o.Over() {
			out = append(out, o)
		}
	}
	return out
}

// cancels returns the channels in which a release ends, and those in which its configuration still comes, with the current version. The
// latter happens if its version is cancelled, not the release itself.
func (s *State) cancels(r *Release, c *Cancelling) (ends, keeps []string) {
	for _, name := range s.phaseChannels(r, c.Channel) {
		p := r.Phases[name]
		switch other := r.Config() && c.Version == r.Version; {
		case p.Phase.Over(), other && r.Keeps(name):
		case other && p.Phase == maestro.Pending && s.keepable(name) && !s.isAtVersion(name, r.Version):
			keeps = append(keeps, name)
		default:
			ends = append(ends, name)
		}
	}
	return ends, keeps
}

// cancelOne ends one release, and returns the text for the person.
func (s *State) cancelOne(r *Release, c *Cancelling, now time.Time) string {
	ends, keeps := s.cancels(r, c)
	if len(ends)+len(keeps) == 0 {
		return s.terminate(r, c, now)
	}
	for _, name := range ends {
		s.cancel(r, name, c, now)
	}
	for _, name := range keeps {
		r.keep(name)
	}
	var parts []string
	if len(ends) > 0 {
		parts = append(parts, "cancelled in "+strings.Join(ends, ", "))
	}
	if len(keeps) > 0 {
		parts = append(parts, fmt.Sprintf("kept in %s as configuration %d for the current version", strings.Join(keeps, ", "), r.Incarnation))
	}
	text := strings.Join(parts, ", ")
	s.noteAct(entities.EventCancel, c.Who, r, c.Channel, text, c.Reason, now)
	if len(ends) > 0 {
		s.Record(now, c.Channel, fmt.Sprintf("%s cancelled by %s in %s%s", r.FullVersion, c.Who.Name, strings.Join(ends, ", "), entities.Because(c.Reason)))
	}
	text = r.FullVersion + " " + text
	return text + s.asked(r, c)
}

// keepable reports whether the current version of a channel can get newer configuration.
func (s *State) keepable(channel string) bool { return s.hasTarget(channel) && !s.offIn(channel) }

// isAtVersion reports whether any instance of a channel is at a version, in any configuration.
func (s *State) isAtVersion(channel, version string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return s.VersionOf(i) == version })
}

// cancel ends a release in one channel.
func (s *State) cancel(r *Release, channel string, c *Cancelling, now time.Time) {
	entered := r.Phases[channel].Phase == maestro.InProgress
	r.cancel(channel, c.by(), now)
	for _, i := range s.everIn(channel) {
		d := &i.Delivery
		if before := d.BeforePin; before != nil && before.Target.Same(r.Target(i.ID)) {
			d.BeforePin = nil
		}
		if !entered || !i.IsAt(r) || d.Reported || s.ReportsOnly(channel) {
			continue
		}
		d.Cancelled = c.by()
		if d.Converged { // another instance had not converged
			d.bad(*d.Target)
		}
	}
	if entered {
		s.Channel(channel).endWindow()
	}
	s.forgo(channel, false, now)
}

// forgo cancels releases that would bring newer configuration to the cancelled version of a channel. versions: also config releases of
// that version itself, which no person cancelled explicitly.
func (s *State) forgo(channel string, versions bool, now time.Time) {
	at := slices.IndexFunc(s.In(channel), s.off)
	if at < 0 {
		return
	}
	off := s.In(channel)[at]
	for _, o := range s.Releases {
		comes := o.Keeping[channel] || versions && o.Config() && !o.Return && o.Version == s.VersionOf(off)
		if p := o.in(channel); comes && p != nil && p.Phase == maestro.Pending {
			o.cancel(channel, off.present()+" was cancelled before it had succeeded here", now)
		}
	}
}

// asked requests the end of running work of a release that nothing waits for any more, and describes it.
func (s *State) asked(r *Release, c *Cancelling) string {
	var runs, moves []string
	for _, i := range s.at(r) {
		switch d := &i.Delivery; {
		case d.Apply.Running:
			d.Apply.Terminated = d.Apply.Terminated || c.Terminate
			runs = append(runs, "the apply in "+s.Shown(i.ID))
		case !d.Converged && c.Terminate:
			moves = append(moves, s.Shown(i.ID))
		}
	}
	for _, key := range entities.SortedKeys(r.Extensions) {
		afterwards := strings.HasPrefix(key, string(entities.OnRollback)+"/") || strings.HasPrefix(key, string(entities.Repeated)+"/")
		if e := r.Extensions[key]; e.Running && !afterwards && !s.awaits(r, key) {
			e.Cancelled, e.Terminated = true, e.Terminated || c.Terminate
			runs = append(runs, "extension "+entities.ExtensionName(key))
		}
	}
	return s.saysAsked(r, runs, moves, c)
}

// saysAsked lists the work that will end, and the work that cannot be ended: changes that a runtime has accepted and carries out itself.
func (s *State) saysAsked(r *Release, runs, moves []string, c *Cancelling) (text string) {
	what := strings.Join(runs, ", ")
	switch {
	case what == "":
	case c.Terminate:
		text = "; terminated: " + what
	default:
		text = "; end requested: " + what
	}
	if len(moves) > 0 {
		text += fmt.Sprintf("; already applied, and the runtime continues with it: %s; to roll it back: converge rollback %s/%s %s",
			strings.Join(moves, ", "), s.Application, s.Title(), r.FullVersion)
	}
	return text
}

// at are the instances at a release that was cancelled there before it had succeeded.
func (s *State) at(r *Release) (out []*Instance) {
	for _, name := range s.phaseChannels(r, "") {
		for _, i := range s.In(name) {
			if i.Delivery.Cancelled != "" && i.IsAt(r) {
				out = append(out, i)
			}
		}
	}
	return out
}

// cancelledIn reports whether any instance of a channel is at a release that was cancelled before it had succeeded there.
func (s *State) cancelledIn(channel string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return i.Delivery.Cancelled != "" })
}

// offIn reports whether any instance of a channel is at a release that a person cancelled there, applied or only reported.
func (s *State) offIn(channel string) bool { return slices.ContainsFunc(s.In(channel), s.off) }

// offAt is the same for a version, in any configuration.
func (s *State) offAt(channel, version string) bool {
	return slices.ContainsFunc(s.everIn(channel), func(i *Instance) bool { return s.off(i) && s.VersionOf(i) == version })
}

// isUnseenAt reports whether any instance of a channel is at a version that was only reported, never applied there.
func (s *State) isUnseenAt(channel, version string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool {
		d := &i.Delivery
		return !d.Converged && (d.Reported || s.ReportsOnly(channel)) && s.VersionOf(i) == version
	})
}

// everIn are the instances of a channel, including those that are not declared now: they may be declared again.
func (s *State) everIn(channel string) (out []*Instance) {
	for _, id := range entities.SortedIDs(s.Instances) {
		if id.Channel == channel {
			out = append(out, s.Instances[id])
		}
	}
	return out
}

func (s *State) off(i *Instance) bool { return i.Delivery.Cancelled != "" || s.calledOffUnseen(i) }

// awaits reports whether a channel in which the release is not over waits for a run of an extension.
func (s *State) awaits(r *Release, key string) bool {
	for _, name := range s.phaseChannels(r, "") {
		spec, _ := s.Spec.Channel(name)
		for n := range spec.Extensions {
			if spec.Extensions[n].RunKey() == key && !r.Phases[name].Phase.Over() {
				return true
			}
		}
	}
	return false
}

// lasts reports whether work of a cancelled release is still running.
func (s *State) lasts(r *Release) bool {
	for _, i := range s.at(r) {
		if i.Delivery.Apply.Running {
			return true
		}
	}
	for _, key := range entities.SortedKeys(r.Extensions) {
		if e := r.Extensions[key]; e.Running && e.Cancelled {
			return true
		}
	}
	return false
}

// terminate ends at once the work that was requested to end.
func (s *State) terminate(r *Release, c *Cancelling, now time.Time) string {
	text := strings.TrimPrefix(s.asked(r, c), "; ")
	s.noteAct(entities.EventCancel, c.Who, r, c.Channel, "terminated", c.Reason, now)
	s.Record(now, c.Channel, fmt.Sprintf("%s terminated by %s%s", r.FullVersion, c.Who.Name, entities.Because(c.Reason)))
	return r.FullVersion + ": " + text
}

// Terminated are the keys of running work that must end at once: instances as activities name them, and runs of extensions.
func (s *State) Terminated() []string {
	var out []string
	for _, id := range entities.SortedIDs(s.Instances) {
		if a := &s.Instances[id].Delivery.Apply; a.Running && a.Terminated {
			out = append(out, s.Key(id).Key())
		}
	}
	for _, r := range s.Releases {
		for _, key := range entities.SortedKeys(r.Extensions) {
			if e := r.Extensions[key]; e.Running && e.Terminated {
				out = append(out, entities.ExtensionRun(r.ID, key))
			}
		}
	}
	return out
}
