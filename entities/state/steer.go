package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds what people ask of rollouts that go on in steps of their own (H3): the controller that does them waits for a
// person, or is to take one back.

// The ways in which a rollout is steered.
const (
	SteerPromote = "promote"
	SteerAbort   = "abort"
)

// Steer is what a person asked of the rollouts of an instance, until that is done. Who takes it up after a lost worker does it once
// more, and finds by FullVersion and At what it is about: a rollout that has gone on since is left alone.
type Steer struct {
	Way         string       `json:"way"`
	Full        bool         `json:"full,omitempty"` // of a promotion: all steps that are left
	FullVersion string       `json:"fullVersion"`
	At          string       `json:"at,omitempty"` // at what it waits (entities.Object.Suspended)
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	Asked       time.Time    `json:"asked"`
}

// Steering is what is asked of the rollouts of a channel, or of all.
type Steering struct {
	Way, Channel string
	Full         bool
	Who          entities.Who
	Reason       string
}

// SteerRollout has rollouts go on, or go back, in a channel, or wherever one can. One that nobody can steer is refused with what it says of itself.
func (s *State) SteerRollout(k Steering, now time.Time) (Effect, error) {
	if err := s.checkChannel(k.Channel); err != nil {
		return nil, err
	}
	some, left := s.steerable(k)
	switch {
	case len(some) > 0:
	case len(left) > 0:
		return nil, fmt.Errorf("nothing to %s: %s", k.Way, strings.Join(left, ", "))
	default:
		return nil, fmt.Errorf("nothing was released to %s yet: there is no rollout to %s", s.scope(k.Channel), k.Way)
	}
	return func() string {
		var where []string
		for _, i := range some {
			i.Steer = &Steer{
				Way: k.Way, Full: k.Full, FullVersion: i.present(), At: i.steers(k.Way), Who: k.Who, Reason: k.Reason, Asked: now,
			}
			where = append(where, i.present()+" in "+s.Shown(i.ID))
			s.Record(now, i.ID.Channel, fmt.Sprintf("%s of %s asked by %s%s", k.Way, i.present(), k.Who.Name, entities.Because(k.Reason)))
			s.note(entities.AuditLine{
				At: now, Kind: entities.EventRetry, Who: &k.Who, Channel: i.ID.Channel, Version: i.present(), Text: k.Way + " of " + i.present(), Reason: k.Reason,
			})
		}
		return k.Way + " asked of " + strings.Join(where, ", ") + "; the history says what came of it"
	}, nil
}

// steerable are the instances whose rollouts can be steered so, and why the others are left alone.
func (s *State) steerable(k Steering) (some []*Instance, left []string) {
	for _, c := range s.Spec.ChannelNames() {
		if k.Channel != "" && k.Channel != c {
			continue
		}
		for _, i := range s.In(c) {
			switch why := s.notSteered(i, k.Way); {
			case i.Delivery.Target == nil:
			case why != "":
				left = append(left, s.Shown(i.ID)+" ("+why+")")
			default:
				some = append(some, i)
			}
		}
	}
	return some, left
}

// notSteered says why the rollouts of an instance are left alone, or "". A pause keeps them from going on, and not from going back.
func (s *State) notSteered(i *Instance, way string) string {
	if s.ReportsOnly(i.ID.Channel) {
		return "its channel only reports"
	}
	if p, ok := s.PauseOf(i.ID); ok && way == SteerPromote {
		return "paused by " + p.By
	}
	if i.Steer != nil {
		return i.Steer.Way + " was asked by " + i.Steer.Who.Name + " and is under way"
	}
	if i.steers(way) != "" {
		return ""
	}
	for _, o := range i.Observed.Reading.Objects {
		if o.Suspended != "" && !o.Steerable {
			return o.Type + "/" + o.Name + " takes none: " + entities.Clip(o.Message, 300)
		}
	}
	if way == SteerPromote {
		return "no rollout waits for a person"
	}
	return "no rollout is under way"
}

// steers is what tells that a rollout can be steered so: at what it waits, or, to be taken back, that it is not through; or "".
func (i *Instance) steers(way string) string {
	for _, o := range i.Observed.Reading.Objects {
		switch {
		case !o.Steerable || o.Orphaned:
		case o.Suspended != "":
			return o.Suspended
		case way == SteerAbort && o.Status == entities.ObjectPending:
			return "under way"
		}
	}
	return ""
}

// Steers tells whether a rollout waits in a channel that Converge can let go on.
func (s *State) Steers(channel string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return i.steers(SteerPromote) != "" })
}

// Steered takes in what came of it: what was done, or why it could not be.
func (s *State) Steered(id entities.InstanceID, asked Steer, did []string, err string, now time.Time) {
	i := s.Instances[id]
	if i == nil || i.Steer == nil || !i.Steer.Asked.Equal(asked.Asked) {
		return
	}
	i.Steer, i.Observed.Requested = nil, true
	text := fmt.Sprintf("%s of %s: %s", asked.Way, asked.FullVersion, strings.Join(did, ", "))
	if err != "" {
		text = fmt.Sprintf("%s of %s failed: %s", asked.Way, asked.FullVersion, err)
	}
	s.Record(now, id.Channel, text)
	s.note(entities.AuditLine{At: now, Kind: entities.EventRetry, Who: &asked.Who, Channel: id.Channel, Version: asked.FullVersion, Text: text, Reason: asked.Reason})
}
