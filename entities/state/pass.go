package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file lets values of an aspect pass a release that goes through a fleet, between two of its steps (B5). That release is set aside
// until then: it is in progress, and does not move. After the values have arrived everywhere, the state is as if they had been there
// first and the release had come on top of them. So a failure takes back only the aspect that failed.

// Aside is the stored state of a release that is set aside.
type Aside struct {
	Reason string `json:"reason,omitempty"` // of its phase, before
	// Arrived is since when the instances were stable at it. Its pause continues for instances that stay stable.
	Arrived map[entities.InstanceID]time.Time `json:"arrived,omitempty"`
}

// Aside implements maestro.Release.
func (r *Release) Aside(channel string) bool {
	p := r.in(channel)
	return p != nil && p.Aside != nil
}

// AsideIn is the release that is set aside in a channel, or nil.
func (s *State) AsideIn(channel string) *Release {
	if n := slices.IndexFunc(s.Releases, func(r *Release) bool { return r.Aside(channel) }); n >= 0 {
		return s.Releases[n]
	}
	return nil
}

// setAside lets the release in progress wait for values that are about to pass it.
func (s *State) setAside(c Change, now time.Time) {
	r := s.ReleaseByID(c.Release)
	p := r.Phases[c.Channel]
	p.Aside = &Aside{Reason: p.Reason, Arrived: map[entities.InstanceID]time.Time{}}
	p.Reason = c.Cause
	for _, i := range s.In(c.Channel) {
		if i.IsAt(r) {
			p.Aside.Arrived[i.ID] = i.Delivery.Arrived
		}
	}
	s.Record(now, c.Channel, r.FullVersion+" is set aside: "+c.Cause)
}

// goOn continues a release that was set aside. Good values that came on top of it count as present before it from now on. If they were
// taken back, the instance is at the release as before.
func (s *State) goOn(c Change, now time.Time) {
	r := s.ReleaseByID(c.Release)
	p := r.Phases[c.Channel]
	for _, i := range s.In(c.Channel) {
		switch d := &i.Delivery; {
		case i.IsAt(r) && s.passedBy(d.Rollback, r):
			d.Rollback, p.Doubted = nil, now // a failure there is the release's own
		case s.Carries(i, r):
			s.putUnder(i, r)
			d.Arrived = cmp.Or(p.Aside.Arrived[i.ID], d.Arrived)
		}
	}
	p.Reason, p.Aside = p.Aside.Reason, nil
	s.Record(now, c.Channel, r.FullVersion+" continues")
}

// unsettle removes the stable times of instances that are not stable any more at the release set aside.
func (s *State) unsettle(c Change) {
	r := s.AsideIn(c.Channel)
	if r == nil || c.Kind != ChangeUnstable && c.Kind != ChangeFail && c.Kind != ChangePin {
		return
	}
	for _, id := range c.Instances {
		delete(r.Phases[c.Channel].Aside.Arrived, id)
	}
	for _, m := range c.Moves {
		delete(r.Phases[c.Channel].Aside.Arrived, m.Instance)
	}
}

// Carries reports whether values came to an instance on top of a release.
func (s *State) Carries(i *Instance, r *Release) bool {
	return i.Delivery.Target != nil && !i.IsAt(r) && s.merges(i, r)
}

// passedBy reports whether the release that a rollback took back had passed release r.
func (s *State) passedBy(b *entities.Rollback, r *Release) bool {
	if b == nil {
		return false
	}
	by := s.ReleaseByID(b.Release)
	return by != nil && by.Line() != r.Line()
}

// putUnder changes the order of the values that came to an instance on top of a release: they count as present before it.
func (s *State) putUnder(i *Instance, r *Release) {
	d, present, version := &i.Delivery, *i.Delivery.Target, s.VersionOf(i)
	var way Kept
	if by := s.Brought(i); by != nil {
		way = by.Ways[i.ID]
		delete(by.Ways, i.ID)
	}
	for _, o := range s.Releases { // the same values may have been released before
		if i.IsAt(o) && o.Line() != r.Line() {
			delete(o.Kept, i.ID)
			if way.Payload != "" {
				o.Kept[i.ID] = way
			}
		}
	}
	r.bring(Move{Instance: i.ID, Target: present, Version: version})
	d.Earlier = slices.DeleteFunc(slices.Clone(d.Earlier), func(t entities.Target) bool {
		return exchange(present.FullVersion, t.FullVersion, r.Line()) == present.FullVersion // of the release, without the values
	})
	if way.Payload != "" {
		d.good(way.Target)
		d.good(present)
	}
}

// WayUnder is the rollback target of a release at an instance after values came on top of it. It is to be rendered unless made is true.
// made is also true if there is none.
func (s *State) WayUnder(i *Instance, r, values *Release) (op RenderOp, made bool) {
	_, full := s.Merged(i, values)
	to, of, why := s.wayFrom(i, full, r)
	if why != "" {
		return op, true
	}
	op = RenderOp{Instance: i.ID, Release: values.ID, Present: i.present(), As: to.FullVersion, Of: of, Way: true}
	return op, values.Ways[i.ID].FullVersion == to.FullVersion
}

func (r *Release) keepWay(id entities.InstanceID, k Kept) {
	if r.Ways == nil {
		r.Ways = map[entities.InstanceID]Kept{}
	}
	r.Ways[id] = k
}

// isPassed returns an error for an action on a release while values pass it in one of these channels.
func (s *State) isPassed(r *Release, channel string) error {
	for _, c := range s.phaseChannels(r, channel) {
		if why := r.passed(c); why != "" {
			return fmt.Errorf("%s in %s: %s", r.FullVersion, s.scope(c), why)
		}
	}
	return nil
}

// passed returns why a person cannot change a release in a channel, or "": values pass it there.
func (r *Release) passed(channel string) string {
	if !r.Aside(channel) {
		return ""
	}
	return r.Phases[channel].Reason + "; wait for that, or roll back the passing release first"
}
