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

// Cancellation describes the cancellation of a release.
type Cancellation struct {
	Version string
	Channel string // "": all channels in which it is not over
	// Terminate: its running work ends at once, without time to finish.
	Terminate bool
	Who       entities.Who
	Reason    string
}

func (c *Cancellation) reasonText() string { return "by " + c.Who.Name + entities.Because(c.Reason) }

// Cancel ends the remaining part of a release: pending phases never start. Where it is in progress, its running work is requested to end,
// a converged version stays enforced, and the target does not become a good one. A release that is cancelled already and still has
// running work can be terminated.
func (s *State) Cancel(c Cancellation, now time.Time) (Effect, error) {
	r, err := s.FindOpen(c.Version, c.Channel)
	if err != nil {
		return nil, err
	}
	if err := s.checkNotPassed(r, c.Channel); err != nil {
		return nil, err
	}
	all := []*Release{r}
	if c.Version == r.Version && !r.IsConfig() {
		all = append(all, s.openConfigReleases(r)...)
	}
	all = slices.DeleteFunc(all, func(r *Release) bool {
		cancelIn, keepIn := s.cancelScope(r, &c)
		return len(cancelIn)+len(keepIn) == 0 && !(c.Terminate && s.hasRunningWork(r))
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%s is over: %s", r.FullVersion, r.phasesText())
	}
	return func() string {
		var texts []string
		for _, r := range all {
			texts = append(texts, s.cancelRelease(r, &c, now))
		}
		if c.Version == r.Version {
			s.excludeCancelledVersion(r, s.phaseChannels(r, c.Channel))
		}
		return strings.Join(texts, ". ")
	}, nil
}

// excludeCancelledVersion ensures that a configuration for a version does not bring that version after a person ended it. That includes
// configurations that newer ones replaced.
func (s *State) excludeCancelledVersion(r *Release, channels []string) {
	for _, name := range channels {
		if r.IsConfig() || !r.isRevoked(name) || s.isAt(name, r) {
			continue
		}
		for _, o := range s.Releases {
			if p := o.phaseState(name); o.IsConfig() && o.Version == r.Version && p != nil && p.Phase.Over() && !s.isAt(name, o) {
				o.markKeepsVersion(name)
			}
		}
	}
}

// openConfigReleases are the open releases of newer configurations for the version of a release.
func (s *State) openConfigReleases(r *Release) (out []*Release) {
	for _, o := range s.Releases {
		if o != r && o.IsConfig() && o.Version == r.Version && !o.Over() {
			out = append(out, o)
		}
	}
	return out
}

// cancelScope returns the channels in which a release ends, and those in which its configuration still comes, with the current version. The
// latter happens if its version is cancelled, not the release itself.
func (s *State) cancelScope(r *Release, c *Cancellation) (cancelIn, keepIn []string) {
	for _, name := range s.phaseChannels(r, c.Channel) {
		p := r.Phases[name]
		switch other := r.IsConfig() && c.Version == r.Version; {
		case p.Phase.Over(), other && r.KeepsVersion(name):
		case other && p.Phase == maestro.Pending && s.canTakeConfig(name) && !s.isAtVersion(name, r.Version):
			keepIn = append(keepIn, name)
		default:
			cancelIn = append(cancelIn, name)
		}
	}
	return cancelIn, keepIn
}

// cancelRelease ends one release, and returns the text for the person.
func (s *State) cancelRelease(r *Release, c *Cancellation, now time.Time) string {
	cancelIn, keepIn := s.cancelScope(r, c)
	if len(cancelIn)+len(keepIn) == 0 {
		return s.terminate(r, c, now)
	}
	for _, name := range cancelIn {
		s.cancelInChannel(r, name, c, now)
	}
	for _, name := range keepIn {
		r.markKeepsVersion(name)
	}
	var parts []string
	if len(cancelIn) > 0 {
		parts = append(parts, "cancelled in "+strings.Join(cancelIn, ", "))
	}
	if len(keepIn) > 0 {
		parts = append(parts, fmt.Sprintf("kept in %s as configuration %d for the current version", strings.Join(keepIn, ", "), r.Incarnation))
	}
	text := strings.Join(parts, ", ")
	s.recordAction(entities.EventCancel, c.Who, r, c.Channel, text, c.Reason, now)
	if len(cancelIn) > 0 {
		s.AppendJournal(now, c.Channel, fmt.Sprintf("%s cancelled by %s in %s%s", r.FullVersion, c.Who.Name, strings.Join(cancelIn, ", "), entities.Because(c.Reason)))
	}
	text = r.FullVersion + " " + text
	return text + s.requestEnd(r, c)
}

// canTakeConfig reports whether the current version of a channel can get newer configuration.
func (s *State) canTakeConfig(channel string) bool {
	return s.hasTarget(channel) && !s.hasRevokedTarget(channel)
}

// isAtVersion reports whether any instance of a channel is at a version, in any configuration.
func (s *State) isAtVersion(channel, version string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return s.VersionOf(i) == version })
}

// cancelInChannel ends a release in one channel.
func (s *State) cancelInChannel(r *Release, channel string, c *Cancellation, now time.Time) {
	entered := r.Phases[channel].Phase == maestro.InProgress
	r.cancel(channel, c.reasonText(), now)
	for _, i := range s.allInstances(channel) {
		d := &i.Delivery
		if before := d.BeforePin; before != nil && before.Target.Same(r.Target(i.ID)) {
			d.BeforePin = nil
		}
		if !entered || !i.IsAt(r) || d.ReportedOnly || s.IsReportOnly(channel) {
			continue
		}
		d.Cancelled = c.reasonText()
		if d.Converged { // another instance had not converged
			d.markBad(*d.Target)
		}
	}
	if entered {
		s.Channel(channel).endWindow()
	}
	s.cancelDependentConfigs(channel, false, now)
}

// cancelDependentConfigs cancels releases that would bring newer configuration to the cancelled version of a channel. withConfigs: also
// config releases of that version itself, which no person cancelled explicitly.
func (s *State) cancelDependentConfigs(channel string, withConfigs bool, now time.Time) {
	at := slices.IndexFunc(s.InstancesIn(channel), s.targetRevoked)
	if at < 0 {
		return
	}
	revoked := s.InstancesIn(channel)[at]
	for _, o := range s.Releases {
		affected := o.KeepsVersionIn[channel] || withConfigs && o.IsConfig() && !o.Return && o.Version == s.VersionOf(revoked)
		if p := o.phaseState(channel); affected && p != nil && p.Phase == maestro.Pending {
			o.cancel(channel, revoked.currentVersion()+" was cancelled before it succeeded here", now)
		}
	}
}

// requestEnd requests the end of running work of a release that nothing waits for any more, and describes it.
func (s *State) requestEnd(r *Release, c *Cancellation) string {
	var ending, inProgress []string
	for _, i := range s.cancelledInstances(r) {
		switch d := &i.Delivery; {
		case d.Apply.Running:
			d.Apply.Terminated = d.Apply.Terminated || c.Terminate
			ending = append(ending, "the apply in "+s.DisplayName(i.ID))
		case !d.Converged && c.Terminate:
			inProgress = append(inProgress, s.DisplayName(i.ID))
		}
	}
	for _, key := range entities.SortedKeys(r.Extensions) {
		notAwaited := strings.HasPrefix(key, string(entities.OnRollback)+"/") || strings.HasPrefix(key, string(entities.Repeated)+"/")
		if e := r.Extensions[key]; e.Running && !notAwaited && !s.extensionAwaited(r, key) {
			e.Cancelled, e.Terminated = true, e.Terminated || c.Terminate
			ending = append(ending, "extension "+entities.ExtensionName(key))
		}
	}
	return s.endRequestText(r, ending, inProgress, c)
}

// endRequestText lists the work that will end, and the work that cannot be ended: changes that a runtime has accepted and carries out
// itself.
func (s *State) endRequestText(r *Release, ending, inProgress []string, c *Cancellation) (text string) {
	list := strings.Join(ending, ", ")
	switch {
	case list == "":
	case c.Terminate:
		text = "; terminated: " + list
	default:
		text = "; end requested: " + list
	}
	if len(inProgress) > 0 {
		text += fmt.Sprintf("; already applied, and the runtime continues with it: %s; to roll it back: converge rollback %s/%s %s",
			strings.Join(inProgress, ", "), s.Application, s.Title(), r.FullVersion)
	}
	return text
}

// cancelledInstances are the instances at a release that was cancelled there before it had succeeded.
func (s *State) cancelledInstances(r *Release) (out []*Instance) {
	for _, name := range s.phaseChannels(r, "") {
		for _, i := range s.InstancesIn(name) {
			if i.Delivery.Cancelled != "" && i.IsAt(r) {
				out = append(out, i)
			}
		}
	}
	return out
}

// hasCancelledTarget reports whether any instance of a channel is at a release that was cancelled before it had succeeded there.
func (s *State) hasCancelledTarget(channel string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return i.Delivery.Cancelled != "" })
}

// hasRevokedTarget reports whether any instance of a channel is at a release that a person cancelled there, applied or only reported.
func (s *State) hasRevokedTarget(channel string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), s.targetRevoked)
}

// hasRevokedTargetAt is the same for a version, in any configuration.
func (s *State) hasRevokedTargetAt(channel, version string) bool {
	return slices.ContainsFunc(s.allInstances(channel), func(i *Instance) bool { return s.targetRevoked(i) && s.VersionOf(i) == version })
}

// isReportedOnlyAt reports whether any instance of a channel is at a version that was only reported, never applied there.
func (s *State) isReportedOnlyAt(channel, version string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool {
		d := &i.Delivery
		return !d.Converged && (d.ReportedOnly || s.IsReportOnly(channel)) && s.VersionOf(i) == version
	})
}

// allInstances are the instances of a channel, including those that are not declared now: they may be declared again.
func (s *State) allInstances(channel string) (out []*Instance) {
	for _, id := range entities.SortedIDs(s.Instances) {
		if id.Channel == channel {
			out = append(out, s.Instances[id])
		}
	}
	return out
}

func (s *State) targetRevoked(i *Instance) bool {
	return i.Delivery.Cancelled != "" || s.revokedBeforeApply(i)
}

// extensionAwaited reports whether a channel in which the release is not over waits for a run of an extension.
func (s *State) extensionAwaited(r *Release, key string) bool {
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

// hasRunningWork reports whether work of a cancelled release is still running.
func (s *State) hasRunningWork(r *Release) bool {
	for _, i := range s.cancelledInstances(r) {
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
func (s *State) terminate(r *Release, c *Cancellation, now time.Time) string {
	text := strings.TrimPrefix(s.requestEnd(r, c), "; ")
	s.recordAction(entities.EventCancel, c.Who, r, c.Channel, "terminated", c.Reason, now)
	s.AppendJournal(now, c.Channel, fmt.Sprintf("%s terminated by %s%s", r.FullVersion, c.Who.Name, entities.Because(c.Reason)))
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
