package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file takes releases in.

// CheckRelease says why a release cannot be accepted now, or nil. It needs no I/O, so that an
// update is validated before anything is written.
func (s *State) CheckRelease(version string, parameters []string, channels []string) error {
	if s.Spec == nil {
		return fmt.Errorf("%s/%s has no configuration yet; publish it with: converge apply DIR", s.Application, s.Title())
	}
	if err := s.Spec.CheckRelease(version, parameters, channels); err != nil {
		return err
	}
	if n := s.Open() + len(s.Reservations); n >= MaxOpenReleases {
		return fmt.Errorf("%d releases are in flight, the most that are kept; end those that are not wanted any more: converge cancel %s/%s --older-than VERSION",
			n, s.Application, s.Title())
	}
	return nil
}

// Open is how many releases are not over.
func (s *State) Open() int {
	n := 0
	for _, r := range s.Releases {
		if !r.Over() {
			n++
		}
	}
	return n
}

// NewRelease is what OpenRelease is given.
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
	// CutsOff: where a version was cancelled, its configuration does not come either, as before it did.
	CutsOff bool
}

func (n *NewRelease) subject() string {
	if n.Who == nil {
		return ""
	}
	return n.Who.Subject
}

// OpenRelease adds a release, pending in every channel that it has a payload for; one whose id is
// known is returned as it is (B7). A config release that is not yet promoted anywhere is replaced
// by a newer one.
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
		By: n.By, Subject: n.subject(), At: now, Strategy: n.Strategy, Payloads: n.Payloads, Templates: map[entities.InstanceID]string{}, Phases: map[string]*PhaseState{},
	}
	if r.ID == "" {
		r.ID = fmt.Sprint(s.LastRelease)
	}
	for _, c := range s.Spec.Channels {
		for _, i := range c.Instances {
			r.Templates[c.ID(i)] = i.Template
			if _, ok := n.Payloads[c.ID(i)]; ok {
				r.Phases[c.Name] = &PhaseState{Phase: maestro.Pending, Since: now}
			}
		}
	}
	if r.Config() {
		s.inheritCancels(r, n.CutsOff, now)
		s.replaceUnpromoted(r, now)
	}
	if r.Incarnation >= s.WaitingConfig {
		s.WaitingConfig = 0
	}
	s.Releases = append(s.Releases, r)
	s.Record(now, "", fmt.Sprintf("release %s: %s from incarnation %d, by %s", r.ID, r.FullVersion, r.Incarnation, r.By))
	s.Journal[len(s.Journal)-1].Release = r.ID
	who := entities.Who{Name: n.By}
	if n.Who != nil {
		who = *n.Who
	}
	s.noteAct(entities.EventRelease, who, r, "", fmt.Sprintf("release of %s from incarnation %d", r.FullVersion, r.Incarnation), "", now)
	return r
}

// inheritCancels: where a version was cancelled before it came, a change of configuration does not
// bring it after all (A18). It comes under the version that is there, if there is one.
func (s *State) inheritCancels(r *Release, cutsOff bool, now time.Time) {
	of := s.offered()
	if of == nil || of.Version != r.Version {
		return
	}
	offered := of
	for _, c := range entities.SortedKeys(r.Phases) {
		of := cmp.Or(s.newestIn(c, offered), offered)
		switch off := of.Keeps(c) || of.calledOff(c) && !s.isAt(c, of); {
		case !cutsOff && s.offAt(c, r.Version):
			r.cancel(c, r.Version+" was cancelled before it had succeeded here", now)
		case off && !cutsOff && s.keepable(c):
			r.keep(c)
		case off:
			was := string(of.Phases[c].Phase)
			if of.Phases[c].Phase == maestro.Succeeded {
				was = "called off"
			}
			r.cancel(c, fmt.Sprintf("%s was %s here", of.FullVersion, was), now)
		}
	}
}

// newestIn is the release itself where it concerns a channel, else the newest of its version that does: the channel was added since. Or
// nil.
func (s *State) newestIn(channel string, r *Release) *Release {
	if r.in(channel) != nil {
		return r
	}
	for _, o := range slices.Backward(s.Releases) {
		if o.in(channel) != nil && o.Version == r.Version && !o.Return {
			return o
		}
	}
	return nil
}

// offered is the newest release that was not cancelled before it came anywhere: its version is what
// a change of configuration applies to.
func (s *State) offered() *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		if r.Return {
			continue
		}
		// In any order: the answer is the same.
		//workflowcheck:ignore
		for c := range r.Phases {
			if !r.Keeps(c) && (!r.calledOff(c) || s.isAt(c, r)) {
				return r
			}
		}
	}
	return nil
}

// VersionOf is the version of an instance's present target, as a person or CI named it; "" where that is not known any more.
func (s *State) VersionOf(i *Instance) string {
	t, version := i.Delivery.Target, ""
	if t == nil {
		return ""
	}
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		switch k := r.Kept[i.ID]; {
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
		if !r.Config() || !r.unpromoted() {
			continue
		}
		for _, c := range entities.SortedKeys(r.Phases) {
			if r.Phases[c].Phase == maestro.Pending {
				r.Phases[c] = &PhaseState{Phase: maestro.Skipped, Since: now, Reason: "replaced by " + by.FullVersion}
			}
		}
		s.Record(now, "", r.FullVersion+" replaced by "+by.FullVersion)
	}
}
