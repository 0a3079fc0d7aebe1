package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds the requests of people for rollouts with steps of their own (H3): their controller waits for a person, or must abort
// one.

// The ways in which a rollout is steered.
const (
	SteerPromote = "promote"
	SteerAbort   = "abort"
)

// Steer is a person's request for the rollouts of an instance, until it is done. After a lost worker the request is carried out again.
// FullVersion and At identify the rollout: one that has moved on since is left alone.
type Steer struct {
	Way         string       `json:"way"`
	Full        bool         `json:"full,omitempty"` // of a promotion: all remaining steps
	FullVersion string       `json:"fullVersion"`
	At          string       `json:"at,omitempty"` // where it waits (entities.Object.Suspended)
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	Asked       time.Time    `json:"asked"`
}

// Steering is a request for the rollouts of a channel, or of all.
type Steering struct {
	Way, Channel string
	Full         bool
	Who          entities.Who
	Reason       string
}

// SteerRollout promotes or aborts rollouts in a channel, or in all where one can be steered. For a rollout that cannot be steered it
// returns an error with the rollout's own message.
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
			s.Record(now, i.ID.Channel, fmt.Sprintf("%s of %s requested by %s%s", k.Way, i.present(), k.Who.Name, entities.Because(k.Reason)))
			s.note(entities.AuditLine{
				At: now, Kind: entities.EventRetry, Who: &k.Who, Channel: i.ID.Channel, Version: i.present(), Text: k.Way + " of " + i.present(), Reason: k.Reason,
			})
		}
		return k.Way + " requested for " + strings.Join(where, ", ") + "; the history shows the result"
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

// notSteered returns why the rollouts of an instance are left alone, or "". A pause prevents a promotion, but not an abort.
func (s *State) notSteered(i *Instance, way string) string {
	if s.ReportsOnly(i.ID.Channel) {
		return "its channel is report-only"
	}
	if p, ok := s.PauseOf(i.ID); ok && way == SteerPromote {
		return "paused by " + p.By
	}
	if i.Steer != nil {
		return i.Steer.Way + " was requested by " + i.Steer.Who.Name + " and is in progress"
	}
	if i.steers(way) != "" {
		return ""
	}
	for _, o := range i.Observed.Reading.Objects {
		if o.Suspended != "" && !o.Steerable {
			return o.Type + "/" + o.Name + " does not support it: " + entities.Clip(o.Message, 300)
		}
	}
	if way == SteerPromote {
		return "no rollout waits for a person"
	}
	return "no rollout is in progress"
}

// steers identifies a rollout that can be steered: the step where it waits, or, for an abort, that it is in progress; or "".
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

// Steers reports whether a rollout in a channel waits that Converge can promote.
func (s *State) Steers(channel string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool { return i.steers(SteerPromote) != "" })
}

// Steered records the result: the actions, or the error.
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
