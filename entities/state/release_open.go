package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file opens releases.

// CheckRelease returns why a release cannot be accepted now, or nil. It needs no I/O, so an update is validated before anything is
// written.
func (s *State) CheckRelease(version string, parameters []string, channels []string) error {
	if s.Spec == nil {
		return fmt.Errorf("%s/%s has no configuration yet; publish it with: converge config publish DIR", s.Application, s.Title())
	}
	if err := s.Spec.CheckRelease(version, parameters, channels); err != nil {
		return err
	}
	return s.checkCapacity()
}

// CheckAspect does the same for a release of an aspect.
func (s *State) CheckAspect(aspect string, parameters, channels []string) error {
	if s.Spec == nil {
		return s.CheckRelease("", parameters, channels)
	}
	if err := s.Spec.CheckAspect(aspect, parameters, channels); err != nil {
		return err
	}
	return s.checkCapacity()
}

func (s *State) checkCapacity() error {
	if n := s.OpenCount() + len(s.Reservations); n >= MaxOpenReleases {
		return fmt.Errorf("%d releases are in flight, which is the limit; cancel those that are not needed: converge cancel %s/%s --older-than VERSION",
			n, s.Application, s.Title())
	}
	return nil
}

// OpenCount is the number of releases that are not over.
func (s *State) OpenCount() int {
	n := 0
	for _, r := range s.Releases {
		if !r.Over() {
			n++
		}
	}
	return n
}

// NewRelease is the input of OpenRelease.
type NewRelease struct {
	ID          string // shared by all services of one release; empty: made from the sequence
	Version     string
	FullVersion string
	Incarnation int64
	Hash        string
	Payloads    map[entities.InstanceID]string
	By          string
	Who         *entities.Who // for the audit trail; nil: By, stated
	Strategy    maestro.Strategy
	Reason      string // as the caller gave it
	Aspect      string // that it gives values to; ValuesText are the values, for people
	ValuesText  string
}

func (n *NewRelease) subject() string {
	if n.Who == nil {
		return ""
	}
	return n.Who.Subject
}

// OpenRelease adds a release, pending in every channel that it has a payload for. For a known id it returns the existing release (B7). A
// newer config release replaces one that is not yet promoted anywhere.
func (s *State) OpenRelease(n NewRelease, now time.Time) *Release {
	if r := s.ReleaseByID(n.ID); r != nil {
		return r
	}
	s.LastRelease++
	for n.ID == "" && s.ReleaseByID(fmt.Sprint(s.LastRelease)) != nil {
		s.LastRelease++ // an id shared with other services may look like one of ours
	}
	r := &Release{
		ID: n.ID, Version: n.Version, FullVersion: n.FullVersion, Incarnation: n.Incarnation, Hash: n.Hash,
		By: n.By, Subject: n.subject(), At: now, Strategy: n.Strategy, Aspect: n.Aspect, ValuesText: n.ValuesText, Payloads: n.Payloads, Templates: map[entities.InstanceID]string{}, Phases: map[string]*PhaseState{},
	}
	if r.ID == "" {
		r.ID = fmt.Sprint(s.LastRelease)
	}
	for _, c := range s.Spec.Channels {
		for _, i := range c.Instances {
			if !r.IsAspect() { // which brings no configuration
				r.Templates[c.ID(i)] = i.Template
			}
			if _, ok := n.Payloads[c.ID(i)]; ok {
				r.Phases[c.Name] = &PhaseState{Phase: maestro.Pending, Since: now}
			}
		}
	}
	if r.IsConfig() {
		s.inheritCancellations(r, now)
		s.replaceUnpromoted(r, now)
	}
	if r.Incarnation >= s.WaitingConfig && !r.IsAspect() {
		s.WaitingConfig = 0
	}
	s.Releases = append(s.Releases, r)
	s.AppendJournal(now, "", fmt.Sprintf("release %s: %s, by %s", r.ID, r.contentText(), r.By))
	s.Journal[len(s.Journal)-1].Release = r.ID
	who := entities.Who{Name: n.By}
	if n.Who != nil {
		who = *n.Who
	}
	s.recordAction(entities.EventRelease, who, r, "", "release of "+r.contentText(), n.Reason, now)
	return r
}

// contentText describes the contents of a release, for people.
func (r *Release) contentText() string {
	if r.IsAspect() {
		return r.FullVersion + " (" + r.ValuesText + ")"
	}
	return fmt.Sprintf("%s from incarnation %d", r.FullVersion, r.Incarnation)
}

// inheritCancellations: if a version was cancelled before it entered, a change of configuration does not bring it (A18). The configuration
// comes with the current version, if there is one.
func (s *State) inheritCancellations(r *Release, now time.Time) {
	of := s.newestUncancelled()
	if of == nil || of.Version != r.Version {
		return
	}
	offered := of
	for _, c := range entities.SortedKeys(r.Phases) {
		of := cmp.Or(s.newestIn(c, r.Version), offered)
		switch revoked := of.KeepsVersion(c) || of.isRevoked(c) && !s.allAt(c, of); {
		case s.hasRevokedTargetAt(c, r.Version):
			r.cancel(c, r.Version+" was cancelled before it succeeded here", now)
		case revoked && s.canTakeConfig(c) && !s.isReportedOnlyAt(c, r.Version):
			r.markKeepsVersion(c)
		case revoked:
			phase := string(of.Phases[c].Phase)
			if of.Phases[c].Phase == maestro.Succeeded {
				phase = "called off"
			}
			r.cancel(c, fmt.Sprintf("%s was %s here", of.FullVersion, phase), now)
		}
	}
}

// newestIn is the newest release of a version that concerns a channel, or nil: the channel was added since.
func (s *State) newestIn(channel, version string) *Release {
	for _, o := range slices.Backward(s.Releases) {
		if o.phaseState(channel) != nil && o.Version == version && !o.Return {
			return o
		}
	}
	return nil
}

// newestUncancelled is the newest release that was not cancelled before it entered a channel: a change of configuration applies to its
// version.
func (s *State) newestUncancelled() *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		if r.Return {
			continue
		}
		// The order does not affect the result.
		//workflowcheck:ignore
		for c := range r.Phases {
			if !r.KeepsVersion(c) && (!r.isRevoked(c) || s.isAt(c, r)) {
				return r
			}
		}
	}
	return nil
}

// MergedVersion is the version of a release for an instance, as a person or CI named it, and the full version. The latter includes the
// current values of other aspects, or, if the instance has no target yet, those that were promoted into the channel.
func (s *State) MergedVersion(i *Instance, r *Release) (version, full string) {
	var current []string
	full = r.FullVersion
	if t := i.Delivery.Target; t != nil {
		full, current = entities.SplitVersion(t.FullVersion)
	} else if len(s.Spec.Aspects) > 0 {
		current = s.valuesIn(i.ID.Channel)
	}
	current = slices.DeleteFunc(current, func(values string) bool {
		aspect := entities.AspectOf(values)
		return s.Spec.Aspect(aspect) == nil || r.IsAspect() && aspect == r.Aspect
	})
	switch {
	case r.IsAspect():
		version, current = s.VersionOf(i), append(current, r.FullVersion)
	case r.KeepsVersion(i.ID.Channel):
		version = s.VersionOf(i)
		full = fmt.Sprintf("%s-i%d", version, r.Incarnation)
	default:
		version, full = r.Version, r.FullVersion
	}
	return version, entities.JoinVersion(full, current)
}

// HasUnfinishedAspect reports whether the result of a release of another aspect at an instance is neither good nor rolled back. So only one
// change at a time is in progress there (B5), and differs from the last good target in one aspect.
func (s *State) HasUnfinishedAspect(i *Instance, r *Release) bool {
	d := &i.Delivery
	if d.Target == nil || d.isGood() || r.Return || d.ReportedOnly || s.IsReportOnly(i.ID.Channel) {
		return false
	}
	of := s.TargetRelease(i)
	if d.Rollback != nil {
		of = s.ReleaseByID(d.Rollback.Release)
	}
	return of != nil && of.Track() != r.Track()
}

// valuesIn are the newest releases of aspects that succeeded in a channel, one of each aspect.
func (s *State) valuesIn(channel string) []string {
	newest := map[string]string{}
	for _, r := range s.Releases {
		if p := r.phaseState(channel); r.IsAspect() && p != nil && p.Phase == maestro.Succeeded {
			newest[r.Aspect] = r.FullVersion
		}
	}
	var out []string
	for _, aspect := range entities.SortedKeys(newest) {
		out = append(out, newest[aspect])
	}
	return out
}

// VersionOf is the version of an instance's current target, as a person or CI named it; "" if it is not known any more.
func (s *State) VersionOf(i *Instance) string {
	if i.Delivery.Target == nil {
		return ""
	}
	return s.versionOf(i.ID, *i.Delivery.Target)
}

// versionOf is the same for any target of an instance.
func (s *State) versionOf(id entities.InstanceID, t entities.Target) (version string) {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		switch k := r.MergedTargets[id]; {
		case k.Version != "" && k.FullVersion == t.FullVersion:
			return k.Version
		case r.FullVersion == t.FullVersion && !r.Return:
			return r.Version
		case r.FullVersion == t.FullVersion:
			version = r.Version
		}
	}
	return version
}

func (s *State) replaceUnpromoted(by *Release, now time.Time) {
	for _, r := range s.Releases {
		if !r.IsConfig() || !r.unpromoted() {
			continue
		}
		for _, c := range entities.SortedKeys(r.Phases) {
			if r.Phases[c].Phase == maestro.Pending {
				r.Phases[c] = &PhaseState{Phase: maestro.Skipped, Since: now, Reason: "replaced by " + by.FullVersion}
			}
		}
		s.AppendJournal(now, "", r.FullVersion+" replaced by "+by.FullVersion)
	}
}
