package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds the requests of people for rollouts with their own steps (H3): their controller waits for a person, or must abort
// one.

// The actions on a rollout.
const (
	SteerPromote = "promote"
	SteerAbort   = "abort"
)

// Steer is a person's request for the rollouts of an instance, until it is done. After a lost worker the request is carried out again.
// FullVersion and At identify the rollout: one that has moved on since is skipped.
type Steer struct {
	Action      string       `json:"way"`
	Full        bool         `json:"full,omitempty"` // of a promotion: all remaining steps
	FullVersion string       `json:"fullVersion"`
	At          string       `json:"at,omitempty"` // where it waits (entities.Object.Suspended)
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	RequestedAt time.Time    `json:"asked"`
}

// SteerRequest is a request for the rollouts of a channel, or of all.
type SteerRequest struct {
	Action, Channel string
	Full            bool
	Who             entities.Who
	Reason          string
}

// SteerRollout promotes or aborts rollouts in a channel, or in all where one can be steered. For a rollout that cannot be steered it
// returns an error with the rollout's own message.
func (s *State) SteerRollout(k SteerRequest, now time.Time) (Effect, error) {
	if err := s.checkChannel(k.Channel); err != nil {
		return nil, err
	}
	matching, skipped := s.steerable(k)
	switch {
	case len(matching) > 0:
	case len(skipped) > 0:
		return nil, fmt.Errorf("nothing to %s: %s", k.Action, strings.Join(skipped, ", "))
	default:
		return nil, fmt.Errorf("nothing was released to %s yet: there is no rollout to %s", s.scopeName(k.Channel), k.Action)
	}
	return func() string {
		var targets []string
		for _, i := range matching {
			i.Steer = &Steer{
				Action: k.Action, Full: k.Full, FullVersion: i.currentVersion(), At: i.steerableStep(k.Action), Who: k.Who, Reason: k.Reason, RequestedAt: now,
			}
			targets = append(targets, i.currentVersion()+" in "+s.DisplayName(i.ID))
			s.AppendJournal(now, i.ID.Channel, fmt.Sprintf("%s of %s requested by %s%s", k.Action, i.currentVersion(), k.Who.Name, entities.Because(k.Reason)))
			s.recordAudit(entities.AuditEntry{
				At: now, Kind: entities.EventRetry, Who: &k.Who, Channel: i.ID.Channel, Version: i.currentVersion(), Text: k.Action + " of " + i.currentVersion(), Reason: k.Reason,
			})
		}
		return k.Action + " requested for " + strings.Join(targets, ", ") + "; the history shows the result"
	}, nil
}

// steerable are the instances whose rollouts can be steered so, and why the others are skipped.
func (s *State) steerable(k SteerRequest) (matching []*Instance, skipped []string) {
	for _, c := range s.Spec.ChannelNames() {
		if k.Channel != "" && k.Channel != c {
			continue
		}
		for _, i := range s.InstancesIn(c) {
			switch why := s.steerRefusal(i, k.Action); {
			case i.Delivery.Target == nil:
			case why != "":
				skipped = append(skipped, s.DisplayName(i.ID)+" ("+why+")")
			default:
				matching = append(matching, i)
			}
		}
	}
	return matching, skipped
}

// steerRefusal returns why the rollouts of an instance are skipped, or "". A pause prevents a promotion, but not an abort.
func (s *State) steerRefusal(i *Instance, action string) string {
	if s.IsReportOnly(i.ID.Channel) {
		return "its channel is report-only"
	}
	if p, ok := s.PauseOf(i.ID); ok && action == SteerPromote {
		return "paused by " + p.By
	}
	if i.Steer != nil {
		return i.Steer.Action + " was requested by " + i.Steer.Who.Name + " and is in progress"
	}
	if i.steerableStep(action) != "" {
		return ""
	}
	for _, o := range i.Observed.Reading.Objects {
		if o.Suspended != "" && !o.Steerable {
			return o.Type + "/" + o.Name + " does not support it: " + entities.ClipMessage(o.Message, 300)
		}
	}
	if action == SteerPromote {
		return "no rollout waits for a person"
	}
	return "no rollout is in progress"
}

// steerableStep identifies a rollout that can be steered: the step where it waits, or, for an abort, that it is in progress; or "".
func (i *Instance) steerableStep(action string) string {
	for _, o := range i.Observed.Reading.Objects {
		switch {
		case !o.Steerable || o.Orphaned:
		case o.Suspended != "":
			return o.Suspended
		case action == SteerAbort && o.Status == entities.ObjectPending:
			return "under way"
		}
	}
	return ""
}

// HasPromotableRollout reports whether a rollout in a channel waits that Converge can promote.
func (s *State) HasPromotableRollout(channel string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return i.steerableStep(SteerPromote) != "" })
}

// RecordSteer records the result: the actions, or the error.
func (s *State) RecordSteer(id entities.InstanceID, request Steer, actions []string, err string, now time.Time) {
	i := s.Instances[id]
	if i == nil || i.Steer == nil || !i.Steer.RequestedAt.Equal(request.RequestedAt) {
		return
	}
	i.Steer, i.Observed.Requested = nil, true
	text := fmt.Sprintf("%s of %s: %s", request.Action, request.FullVersion, strings.Join(actions, ", "))
	if err != "" {
		text = fmt.Sprintf("%s of %s failed: %s", request.Action, request.FullVersion, err)
	}
	if request.Action == SteerReturn {
		text += s.recordReturn(i, err)
	}
	s.AppendJournal(now, id.Channel, text)
	s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventRetry, Who: &request.Who, Channel: id.Channel, Version: request.FullVersion, Text: text, Reason: request.Reason})
}
