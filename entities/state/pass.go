package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file has values of an aspect pass a release that goes through a fleet, between two of its steps (B5). That one is set aside
// meanwhile: it is in progress, and nothing of it moves. Once the values are through, all is as if they had been there first, and the
// release had come on top of them: so a failure takes back the aspect that failed and no other.

// Aside is what is kept of a release that is set aside.
type Aside struct {
	Reason string `json:"reason,omitempty"` // of its phase, before
	// Arrived is since when the instances were stable at it. Its pause goes on where they stay so.
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

// setAside has the release in progress wait for values that are about to pass it.
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

// goOn has a release go on that was set aside. Where values came on top of it that were good, they have been there before it from now
// on; where they were taken back, what is there is the release's as it was.
func (s *State) goOn(c Change, now time.Time) {
	r := s.ReleaseByID(c.Release)
	p := r.Phases[c.Channel]
	for _, i := range s.In(c.Channel) {
		switch d := &i.Delivery; {
		case i.IsAt(r) && s.passedBy(d.Rollback, r):
			d.Rollback, p.Doubted = nil, now // where it failed that is the release's own
		case s.Carries(i, r):
			s.putUnder(i, r)
			d.Arrived = cmp.Or(p.Aside.Arrived[i.ID], d.Arrived)
		}
	}
	p.Reason, p.Aside = p.Aside.Reason, nil
	s.Record(now, c.Channel, r.FullVersion+" goes on")
}

// unsettle forgets since when instances were stable at what is set aside, where they are no longer.
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

// Carries tells whether values came to an instance on top of a release.
func (s *State) Carries(i *Instance, r *Release) bool {
	return i.Delivery.Target != nil && !i.IsAt(r) && s.merges(i, r)
}

// passedBy tells whether what was taken back by a rollback had passed a release.
func (s *State) passedBy(b *entities.Rollback, r *Release) bool {
	if b == nil {
		return false
	}
	by := s.ReleaseByID(b.Release)
	return by != nil && by.Line() != r.Line()
}

// putUnder has the values at an instance, which came on top of a release, be what was there before it.
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

// WayUnder is the way back of a release once values came on top of it at an instance that it is at: it is to be rendered, or made says
// that it was. Nothing: there is none.
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

// isPassed refuses what people do to a release while values pass it in one of these channels.
func (s *State) isPassed(r *Release, channel string) error {
	for _, c := range s.phaseChannels(r, channel) {
		if why := r.passed(c); why != "" {
			return fmt.Errorf("%s in %s: %s", r.FullVersion, s.scope(c), why)
		}
	}
	return nil
}

// passed says why people leave a release as it is in a channel, or "": values pass it there.
func (r *Release) passed(channel string) string {
	if !r.Aside(channel) {
		return ""
	}
	return r.Phases[channel].Reason + "; wait for that, or first roll back what passes it"
}
