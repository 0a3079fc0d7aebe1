package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file cancels releases (A18, I2): nothing of one goes further, and what runs for it is to end.

// Cancelling is how a release is cancelled.
type Cancelling struct {
	Version string
	Channel string // "": wherever it is not over
	// Terminate: what runs for it is given no time to end by itself.
	Terminate bool
	Who       entities.Who
	Reason    string
}

func (c *Cancelling) by() string { return "by " + c.Who.Name + entities.Because(c.Reason) }

// Cancel ends what is still to come of a release: pending phases never start. Where it is in progress what runs for it is asked to
// end, what has arrived stays enforced, and the target is no good one. One that is cancelled already and still runs can be terminated.
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

// keepOver has no configuration for a version be one that goes out with it where a person ended the version: not those either that
// were replaced by newer ones.
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

// cancels says in which channels a release ends, and in which its configuration comes all the same, under the version that is there: where
// its version is cancelled, and not itself.
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

// cancelOne ends one release, and says so.
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
		parts = append(parts, fmt.Sprintf("kept in %s as configuration %d for the version that is there", strings.Join(keeps, ", "), r.Incarnation))
	}
	text := strings.Join(parts, ", ")
	s.noteAct(entities.EventCancel, c.Who, r, c.Channel, text, c.Reason, now)
	if len(ends) > 0 {
		s.Record(now, c.Channel, fmt.Sprintf("%s cancelled by %s in %s%s", r.FullVersion, c.Who.Name, strings.Join(ends, ", "), entities.Because(c.Reason)))
	}
	text = r.FullVersion + " " + text
	return text + s.asked(r, c)
}

// keepable tells whether a channel is at something that newer configuration may come to.
func (s *State) keepable(channel string) bool { return s.hasTarget(channel) && !s.offIn(channel) }

// isAtVersion tells whether any instance of a channel is at a version, under whichever configuration.
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
		if d.Converged { // as another instance had not
			d.bad(*d.Target)
		}
	}
	if entered {
		s.Channel(channel).endWindow()
	}
	s.forgo(channel, false, now)
}

// forgo ends what was to bring newer configuration to what is in a channel, where that was cancelled. Its version's too: nobody has
// said so of that.
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

// asked has what runs for a release end where nothing waits for it any more, and says so.
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

// saysAsked says what is to end, and what goes on whatever is asked: what a runtime was given and carries out by itself.
func (s *State) saysAsked(r *Release, runs, moves []string, c *Cancelling) (text string) {
	what := strings.Join(runs, ", ")
	switch {
	case what == "":
	case c.Terminate:
		text = "; ended at once: " + what
	default:
		text = "; asked to end: " + what
	}
	if len(moves) > 0 {
		text += fmt.Sprintf("; applied already, and nobody can end what the runtime does with it: %s; to take it back: converge rollback %s/%s %s",
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

// cancelledIn tells whether any instance of a channel is at a release that was cancelled before it had succeeded there.
func (s *State) cancelledIn(channel string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return i.Delivery.Cancelled != "" })
}

// offIn tells whether any instance of a channel is at what a person cancelled there, brought or only reported.
func (s *State) offIn(channel string) bool { return slices.ContainsFunc(s.In(channel), s.off) }

// offAt is the same of a version, under whichever configuration.
func (s *State) offAt(channel, version string) bool {
	return slices.ContainsFunc(s.everIn(channel), func(i *Instance) bool { return s.off(i) && s.VersionOf(i) == version })
}

// isUnseenAt tells whether any instance of a channel is at a version only as far as was reported: it was never brought there.
func (s *State) isUnseenAt(channel, version string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool {
		d := &i.Delivery
		return !d.Converged && (d.Reported || s.ReportsOnly(channel)) && s.VersionOf(i) == version
	})
}

// everIn are the instances of a channel, those too that are not declared now: they may be again.
func (s *State) everIn(channel string) (out []*Instance) {
	for _, id := range entities.SortedIDs(s.Instances) {
		if id.Channel == channel {
			out = append(out, s.Instances[id])
		}
	}
	return out
}

func (s *State) off(i *Instance) bool { return i.Delivery.Cancelled != "" || s.calledOffUnseen(i) }

// awaits tells whether a channel that the release is not over in waits for a run of an extension.
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

// lasts tells whether anything still runs for a release that was cancelled.
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

// terminate ends at once what was asked to end.
func (s *State) terminate(r *Release, c *Cancelling, now time.Time) string {
	text := strings.TrimPrefix(s.asked(r, c), "; ")
	s.noteAct(entities.EventCancel, c.Who, r, c.Channel, "terminated", c.Reason, now)
	s.Record(now, c.Channel, fmt.Sprintf("%s terminated by %s%s", r.FullVersion, c.Who.Name, entities.Because(c.Reason)))
	return r.FullVersion + ": " + text
}

// Terminated are the keys of what runs and is to end at once: instances as activities name them, and runs of extensions.
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
