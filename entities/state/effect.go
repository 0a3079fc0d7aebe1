package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// Effect is the effect of a valid verb: it changes the state and returns one line of text. Every verb is a function that returns either
// its effect or an error. Nothing changes until the effect is called. So a validator can call the verb and discard the effect, and
// invalid input loses nothing.
type Effect func() string

// noChange is an effect that changes nothing, because the requested state exists.
func noChange(format string, args ...any) (Effect, error) {
	return func() string { return fmt.Sprintf(format, args...) }, nil
}

// Refresh requests a reading now.
func (s *State) Refresh(channel string) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	return func() string {
		for _, id := range s.Spec.IDs() {
			if channel == "" || id.Channel == channel {
				s.Instance(id).Observed.request()
			}
		}
		return s.scopeName(channel) + " is observed now"
	}, nil
}

// request requests a reading now. One that began before it does not count.
func (o *Observation) request() {
	o.Requested = true
	o.refreshCount++
}

// RefreshCount is how often a reading of an instance was requested in this run.
func (s *State) RefreshCount(id entities.InstanceID) int {
	if i := s.Instances[id]; i != nil {
		return i.Observed.refreshCount
	}
	return 0
}

// Retry restarts a failed release where it failed, and starts the next attempt at once if it waits for one (A18). Where it is still the
// target, its gates were passed and are not evaluated again. Where it was rolled back, a retry lifts the bar: it is next again,
// and every gate is evaluated again. Where it was skipped, it waits again, if it is newer than the current version. A failed rollback is
// attempted again.
func (s *State) Retry(version, channel string, who entities.Who, now time.Time) (Effect, error) {
	return s.RetryRelease(RetryRequest{Version: version, Channel: channel, Who: who}, now)
}

// RetryRequest describes a retry.
type RetryRequest struct {
	Version string
	Channel string // "": all channels in which it failed
	Who     entities.Who
}

// RetryRelease is Retry.
func (s *State) RetryRelease(req RetryRequest, now time.Time) (Effect, error) {
	version, channel, who := req.Version, req.Channel, req.Who
	r, err := s.Find(version, channel)
	if err != nil && !s.failedRollbackTo(version, channel) {
		return nil, err
	}
	if r != nil && strings.HasPrefix(version, entities.IDPrefix) {
		version = r.FullVersion
	}
	req.Version = version
	var channels [retryKinds][]string
	var refusals []string
	var effects []func()
	for n := range s.Spec.Channels {
		spec := &s.Spec.Channels[n]
		if channel != "" && spec.Name != channel {
			continue
		}
		switch effect, why := s.retryIn(spec, r, &req, now); {
		case effect != nil:
			k := s.retryKind(r, spec.Name)
			channels[k], effects = append(channels[k], spec.Name), append(effects, effect)
		case why != nil:
			refusals = append(refusals, fmt.Sprintf("%s: %s", spec.Name, why))
		}
	}
	switch {
	case len(effects) > 0:
	case len(refusals) > 0:
		return nil, fmt.Errorf("%s cannot be retried: %s", version, strings.Join(refusals, ", "))
	case r == nil:
		return nil, err
	default:
		return nil, fmt.Errorf("%s did not fail where it is the target: %s%s", r.FullVersion, r.phasesText(), s.releaseHint(r, channel))
	}
	full := version
	if r != nil {
		full = r.FullVersion
	}
	return func() string {
		for _, effect := range effects {
			effect()
		}
		s.recordRetry(full, r, channel, who, channels[retryInPlace], "retried in ", now)
		s.recordRetry(full, r, channel, who, channels[retryReenters], "retried, to pass all gates again, in ", now)
		s.recordRetry(full, r, channel, who, channels[retryRequeued], "retried, queued again in ", now)
		return retryAnswer(full, channels[retryInPlace], channels[retryReenters], channels[retryRequeued])
	}, nil
}

// recordRetry records where a person retried a release.
func (s *State) recordRetry(full string, r *Release, channel string, who entities.Who, channels []string, text string, now time.Time) {
	if len(channels) == 0 {
		return
	}
	text += strings.Join(channels, ", ")
	s.AppendJournal(now, channel, full+" "+text+" by "+who.Name)
	s.recordAction(entities.EventRetry, who, r, channel, text, "", now)
}

// releaseHint is the command that releases a version to a channel again where it is not any more, or where it was cancelled before it
// entered; or "".
func (s *State) releaseHint(r *Release, channel string) string {
	for _, c := range s.phaseChannels(r, channel) {
		if p := r.Phases[c].Phase; (p == maestro.Succeeded || p == maestro.Cancelled) && !s.isAt(c, r) {
			return fmt.Sprintf("; to release it to %s again: converge release %s/%s %s", c, s.Application, s.Title(), r.Version)
		}
	}
	return ""
}

func retryAnswer(full string, continued, reentered, requeued []string) string {
	var parts []string
	if len(continued) > 0 {
		parts = append(parts, "starts again in "+strings.Join(continued, ", "))
	}
	if len(reentered) > 0 {
		parts = append(parts, "was rolled back in "+strings.Join(reentered, ", ")+": it enters again once all gates pass again, including approvals")
	}
	if len(requeued) > 0 {
		parts = append(parts, "was skipped in "+strings.Join(requeued, ", ")+": it is queued again")
	}
	return full + " " + strings.Join(parts, "; ")
}

// The ways in which a release restarts in a channel: in place, after all gates pass again, or in the queue.
const (
	retryInPlace = iota
	retryReenters
	retryRequeued
	retryKinds
)

func (s *State) retryKind(r *Release, channel string) int {
	switch {
	case r.skippedIn(channel):
		return retryRequeued
	case s.reenters(r, channel):
		return retryReenters
	}
	return retryInPlace
}

// reenters reports whether a retry lets a release enter a channel again, rather than continue there.
func (s *State) reenters(r *Release, channel string) bool {
	p := r.phaseState(channel)
	return p != nil && p.Phase == maestro.RolledBack && s.hasTarget(channel)
}

// retryIn is the effect that restarts a release in one channel, or nil. An error states why it may not restart although it failed.
func (s *State) retryIn(spec *entities.ChannelSpec, r *Release, req *RetryRequest, now time.Time) (func(), error) {
	failed := s.failedRollbacks(spec.Name, req.Version)
	p := r.phaseState(spec.Name)
	switch {
	case len(failed) > 0:
		return func() {
			s.Channel(spec.Name).endWindow()
			for _, i := range failed {
				i.resetAttempts(now)
				i.Delivery.Rollback.Failed = time.Time{}
			}
		}, nil
	case p == nil:
		return nil, nil
	case r.Aside(spec.Name):
		return nil, errors.New(r.passingReason(spec.Name))
	case p.Phase == maestro.Pending && retriable(r, spec):
		return func() { retryExtensions(r, spec, now) }, nil
	case p.Phase == maestro.Pending && !p.RetriedAt.IsZero():
		return nil, fmt.Errorf("it already waits for the gates")
	case p.Phase == maestro.Pending:
		return nil, nil
	case s.reenters(r, spec.Name):
		return s.retryRolledBack(r, spec, req, now)
	case r.skippedIn(spec.Name):
		return s.retrySkipped(r, spec, req, now)
	}
	return s.retryFailed(r, spec, req, now)
}

// retryFailed restarts a release where it is the target and failed, was cancelled in progress, or is still in progress. If a newer
// release has entered since, it cannot take the instances that this one has not reached.
func (s *State) retryFailed(r *Release, spec *entities.ChannelSpec, req *RetryRequest, now time.Time) (func(), error) {
	p := r.Phases[spec.Name]
	at, failed := s.retryTargets(r, spec.Name)
	if len(at) == 0 || !failed {
		return nil, nil
	}
	cancelled := p.Phase == maestro.Cancelled && s.hasCancelledTarget(spec.Name)
	restarts := p.Phase == maestro.Failed || p.Phase == maestro.RolledBack || cancelled
	if newer := s.newerInChannel(r, spec.Name); restarts && newer != nil {
		return nil, newerEnteredError(newer, r)
	}
	return func() {
		s.Channel(spec.Name).endWindow()
		for _, i := range at {
			i.resetAttempts(now)
		}
		retryExtensions(r, spec, now)
		switch reportedOnly := slices.ContainsFunc(at, func(i *Instance) bool { return i.Delivery.ReportedOnly }); {
		case cancelled && reportedOnly: // its gates passed while the channel was report-only
			r.Phases[spec.Name] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "retried by " + req.Who.Name, RetriedAt: now}
		case restarts:
			r.Phases[spec.Name] = &PhaseState{Phase: maestro.InProgress, Since: now, Reason: "retried by " + req.Who.Name}
		}
	}, nil
}

func newerEnteredError(newer, r *Release) error {
	return fmt.Errorf("%s has entered since; to return to %s, release it again", newer.FullVersion, r.Version)
}

// retryTargets are the instances of a channel at which a release restarts, and whether there is a reason to restart.
func (s *State) retryTargets(r *Release, channel string) (at []*Instance, failed bool) {
	phase := r.Phases[channel].Phase
	failed = phase == maestro.Failed || phase == maestro.InProgress
	for _, i := range s.InstancesIn(channel) {
		if d := &i.Delivery; i.IsAt(r) && (!d.Converged || d.Failure != "" || d.Cancelled != "") {
			at = append(at, i)
			failed = failed || d.Failure != "" || d.Cancelled != "" && s.newerEntered(r, channel) == nil
		} else if i.IsAt(r) && phase == maestro.InProgress {
			at = append(at, i)
		}
	}
	return at, failed
}

// retryRolledBack restarts a release where it was rolled back. It is next again. Its earlier gate results are not valid any more:
// a check may FAIL now, and the approvers did not know of the failure.
func (s *State) retryRolledBack(r *Release, spec *entities.ChannelSpec, req *RetryRequest, now time.Time) (func(), error) {
	if newer := s.newerInChannel(r, spec.Name); newer != nil {
		return nil, newerEnteredError(newer, r)
	}
	var instances []*Instance
	for _, i := range s.InstancesIn(spec.Name) {
		if b := i.Delivery.Rollback; b != nil && b.Release == r.ID && r.HasPayload(i.ID) {
			instances = append(instances, i)
		}
	}
	if len(instances) == 0 {
		return nil, fmt.Errorf("its rollback target was replaced")
	}
	for _, i := range instances {
		if p, ok := s.PauseOf(i.ID); ok {
			return nil, fmt.Errorf("paused by %s", p.By)
		}
	}
	if p, ok := s.PinOf(spec.Name); ok {
		return nil, fmt.Errorf("pinned by %s", p.Who.Name)
	}
	return func() {
		retryExtensions(r, spec, now)
		r.Phases[spec.Name] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "retried by " + req.Who.Name, RetriedAt: now}
	}, nil
}

func (r *Release) skippedIn(channel string) bool {
	p := r.phaseState(channel)
	return p != nil && p.Phase == maestro.Skipped
}

// retrySkipped lets a skipped release wait again, unless the channel is at a newer release: a retry never moves a channel back (B3).
func (s *State) retrySkipped(r *Release, spec *entities.ChannelSpec, req *RetryRequest, now time.Time) (func(), error) {
	for _, newer := range s.Releases[slices.Index(s.Releases, r)+1:] {
		p, _ := newer.PhaseIn(spec.Name)
		active := p.Entered() && s.isAt(spec.Name, newer) || p == maestro.Cancelled && (s.canRollBack(newer, spec.Name) || s.isCancelledTarget(newer, r, spec.Name))
		if active || p == maestro.InProgress || p == maestro.Succeeded {
			return nil, fmt.Errorf("the newer %s is the target; to return to %s, release it again", newer.FullVersion, r.Version)
		}
	}
	if r.KeepsVersion(spec.Name) && s.hasRevokedTarget(spec.Name) {
		return nil, errors.New("it changes the configuration of the current version, which was cancelled before it succeeded")
	}
	return func() {
		retryExtensions(r, spec, now)
		r.Phases[spec.Name] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "retried by " + req.Who.Name, RetriedAt: now}
	}, nil
}

// newerEntered is a newer release that entered a channel, or nil.
func (s *State) newerEntered(r *Release, channel string) *Release {
	for _, newer := range s.Releases[slices.Index(s.Releases, r)+1:] {
		if p, ok := newer.PhaseIn(channel); ok && p.Entered() {
			return newer
		}
	}
	return nil
}

// newerInChannel is a newer release that entered a channel and was not cancelled in progress, or is still the target; or nil.
func (s *State) newerInChannel(r *Release, channel string) *Release {
	newer := s.newerEntered(r, channel)
	if newer != nil {
		return newer
	}
	for _, newer := range s.Releases[slices.Index(s.Releases, r)+1:] {
		if p, _ := newer.PhaseIn(channel); p == maestro.Cancelled && s.isCancelledTarget(newer, r, channel) {
			return newer
		}
	}
	return nil
}

// isCancelledTarget reports whether an instance of a channel is at a newer release that was cancelled, and not only reported.
func (s *State) isCancelledTarget(newer, r *Release, channel string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool {
		d := &i.Delivery
		reportedOnly := !d.Converged && d.Cancelled == "" && (d.ReportedOnly || s.IsReportOnly(channel))
		return i.IsAt(newer) && !i.IsAt(r) && !reportedOnly
	})
}

// failedRollbackTo reports whether an instance is at a failed rollback to that version. The release of the version may have been pruned.
func (s *State) failedRollbackTo(version, channel string) bool {
	if s.Spec == nil {
		return false
	}
	return slices.ContainsFunc(s.Spec.ChannelNames(), func(c string) bool {
		return (channel == "" || channel == c) && len(s.failedRollbacks(c, version)) > 0
	})
}

// failedRollbacks are the instances of a channel that are at a failed rollback to that version.
func (s *State) failedRollbacks(channel, version string) []*Instance {
	return slices.DeleteFunc(s.InstancesIn(channel), func(i *Instance) bool {
		return !i.RollbackFailed() || i.Delivery.Target.FullVersion != version
	})
}

// retriable reports whether extensions of a release can be run again in a channel.
func retriable(r *Release, spec *entities.ChannelSpec) bool {
	return slices.ContainsFunc(spec.Extensions, func(e entities.Extension) bool { return r.Extensions[e.RunKey()].retriable() })
}

// retriable reports whether it failed, or waits for its next attempt.
func (e *ExtensionState) retriable() bool {
	return e != nil && !e.Running && !e.Done && (e.Failed || !e.Next.IsZero())
}

// retryExtensions lets failed extensions of a release run again in a channel. One that waits for its next attempt starts at once.
func retryExtensions(r *Release, spec *entities.ChannelSpec, now time.Time) {
	for n := range spec.Extensions {
		if st := r.Extensions[spec.Extensions[n].RunKey()]; st.retriable() {
			st.Failed, st.Attempts, st.Next, st.Since = false, 0, time.Time{}, now
		}
	}
}
