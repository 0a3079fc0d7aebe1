package entities

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// RetryRelease starts a failed release again where it failed, and tries one that waits for its
// next attempt at once (A18). Its gates were passed: they are not asked again. Where it was rolled
// back this is how a person lifts the bar; where it is the way back that failed, that is tried again.
func (s *State) RetryRelease(version, channel string, who Who, now time.Time) (string, error) {
	r, err := s.find(version, channel)
	if err != nil && !s.waysBackTo(version, channel) {
		return "", err
	}
	var again, barred []string
	for _, spec := range s.Spec.Channels {
		if channel != "" && spec.Name != channel {
			continue
		}
		switch ok, why := s.retryIn(spec.Name, version, r, who, now); {
		case ok:
			again = append(again, spec.Name)
		case why != nil:
			barred = append(barred, fmt.Sprintf("%s: %s", spec.Name, why))
		}
	}
	switch {
	case len(again) > 0:
	case len(barred) > 0:
		return "", fmt.Errorf("%s cannot start again: %s", version, strings.Join(barred, ", "))
	case r == nil:
		return "", err
	default:
		return "", fmt.Errorf("%s did not fail where it is the target: %s", r.FullVersion, phases(r))
	}
	full := version
	if r != nil {
		full = r.FullVersion
	}
	s.Record(now, channel, fmt.Sprintf("%s retried by %s in %s", full, who.Name, strings.Join(again, ", ")))
	s.noteAct(EventRetry, who, r, channel, "retried in "+strings.Join(again, ", "), "", now)
	return fmt.Sprintf("%s starts again in %s", full, strings.Join(again, ", ")), nil
}

// retryIn starts a release again in one channel; an error says why it may not although it failed.
func (s *State) retryIn(channel, version string, r *Release, who Who, now time.Time) (bool, error) {
	i := s.Instance(channel)
	var p *PhaseState
	if r != nil {
		p = r.Phases[channel]
	}
	switch {
	case i.wayBackFailed() && i.Target.FullVersion == version:
		i.restart(now)
		i.Rollback.Failed = time.Time{}
		return true, nil
	case p == nil:
		return false, nil
	case p.Phase == maestro.Pending:
		return s.retryExtensions(r, channel, now), nil
	case p.Phase == maestro.RolledBack && i.Target != nil:
		if err := s.liftBar(r, channel, who, now); err != nil {
			return false, err
		}
	case !s.isAt(channel, r) || p.Phase != maestro.Failed && p.Phase != maestro.InProgress && i.Failure == "":
		return false, nil
	default:
		i.restart(now)
	}
	s.retryExtensions(r, channel, now)
	if p.Phase == maestro.Failed || p.Phase == maestro.RolledBack {
		r.Phases[channel] = &PhaseState{Phase: maestro.InProgress, Since: now, Reason: "retried by " + who.Name}
	}
	return true, nil
}

// waysBackTo tells whether a channel is at a way back to that version that failed; its release may
// not be kept any more.
func (s *State) waysBackTo(version, channel string) bool {
	for _, c := range SortedKeys(s.Instances) {
		if i := s.Instances[c]; s.declared(c) && (channel == "" || channel == c) && i.wayBackFailed() && i.Target.FullVersion == version {
			return true
		}
	}
	return false
}

func (i *Instance) wayBackFailed() bool {
	return i.Rollback != nil && !i.Rollback.Failed.IsZero() && i.Target != nil
}
