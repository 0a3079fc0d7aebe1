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

// already is an effect that changes nothing, because the requested state exists.
func already(format string, args ...any) (Effect, error) {
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
				o := &s.Instance(id).Observed
				o.Requested = true
				o.refreshed++
			}
		}
		return s.scope(channel) + " is observed now"
	}, nil
}

// Refreshed is how often a reading of an instance was requested in this run.
func (s *State) Refreshed(id entities.InstanceID) int {
	if i := s.Instances[id]; i != nil {
		return i.Observed.refreshed
	}
	return 0
}

// Retry restarts a failed release where it failed, and starts the next attempt at once if it waits for one (A18). Where it is still the
// target, its gates were passed and are not evaluated again. Where it was rolled back, a retry lifts the bar: it is next in line again,
// and every gate is evaluated again. Where it was skipped, it waits again, if it is newer than the current version. A failed rollback is
// attempted again.
func (s *State) Retry(version, channel string, who entities.Who, now time.Time) (Effect, error) {
	return s.RetryOne(Retrying{Version: version, Channel: channel, Who: who}, now)
}

// Retrying describes a retry.
type Retrying struct {
	Version string
	Channel string // "": all channels in which it failed
	Who     entities.Who
}

// RetryOne is Retry.
func (s *State) RetryOne(re Retrying, now time.Time) (Effect, error) {
	version, channel, who := re.Version, re.Channel, re.Who
	r, err := s.Find(version, channel)
	if err != nil && !s.failedRollbackTo(version, channel) {
		return nil, err
	}
	if r != nil && strings.HasPrefix(version, entities.ByID) {
		version = r.FullVersion
	}
	re.Version = version
	var where [retryKinds][]string
	var barred []string
	var effects []func()
	for n := range s.Spec.Channels {
		spec := &s.Spec.Channels[n]
		if channel != "" && spec.Name != channel {
			continue
		}
		switch effect, why := s.retryIn(spec, r, &re, now); {
		case effect != nil:
			k := s.retryKind(r, spec.Name)
			where[k], effects = append(where[k], spec.Name), append(effects, effect)
		case why != nil:
			barred = append(barred, fmt.Sprintf("%s: %s", spec.Name, why))
		}
	}
	switch {
	case len(effects) > 0:
	case len(barred) > 0:
		return nil, fmt.Errorf("%s cannot be retried: %s", version, strings.Join(barred, ", "))
	case r == nil:
		return nil, err
	default:
		return nil, fmt.Errorf("%s did not fail where it is the target: %s%s", r.FullVersion, r.phases(), s.releaseAnew(r, channel))
	}
	full := version
	if r != nil {
		full = r.FullVersion
	}
	return func() string {
		for _, effect := range effects {
			effect()
		}
		s.retried(full, r, channel, who, where[retryHere], "retried in ", now)
		s.retried(full, r, channel, who, where[retryAnew], "retried, to pass all gates again, in ", now)
		s.retried(full, r, channel, who, where[retryWaits], "retried, queued again in ", now)
		return retryAnswer(full, where[retryHere], where[retryAnew], where[retryWaits])
	}, nil
}

// retried records where a person retried a release.
func (s *State) retried(full string, r *Release, channel string, who entities.Who, where []string, text string, now time.Time) {
	if len(where) == 0 {
		return
	}
	text += strings.Join(where, ", ")
	s.Record(now, channel, full+" "+text+" by "+who.Name)
	s.noteAct(entities.EventRetry, who, r, channel, text, "", now)
}

// releaseAnew is the command that brings a release back to a channel where it is not any more, or where it was cancelled before it came;
// or "".
func (s *State) releaseAnew(r *Release, channel string) string {
	for _, c := range s.phaseChannels(r, channel) {
		if p := r.Phases[c].Phase; (p == maestro.Succeeded || p == maestro.Cancelled) && !s.isAt(c, r) {
			return fmt.Sprintf("; to release it to %s again: converge release %s/%s %s", c, s.Application, s.Title(), r.Version)
		}
	}
	return ""
}

func retryAnswer(full string, again, anew, waits []string) string {
	var says []string
	if len(again) > 0 {
		says = append(says, "starts again in "+strings.Join(again, ", "))
	}
	if len(anew) > 0 {
		says = append(says, "was rolled back in "+strings.Join(anew, ", ")+": it enters again once all gates pass again, including approvals")
	}
	if len(waits) > 0 {
		says = append(says, "was skipped in "+strings.Join(waits, ", ")+": it is queued again")
	}
	return full + " " + strings.Join(says, "; ")
}

// The ways in which a release restarts in a channel: in place, after all gates pass again, or in the queue.
const (
	retryHere = iota
	retryAnew
	retryWaits
	retryKinds
)

func (s *State) retryKind(r *Release, channel string) int {
	switch {
	case r.skippedIn(channel):
		return retryWaits
	case s.reenters(r, channel):
		return retryAnew
	}
	return retryHere
}

// reenters reports whether a retry lets a release enter a channel again, rather than continue there.
func (s *State) reenters(r *Release, channel string) bool {
	p := r.in(channel)
	return p != nil && p.Phase == maestro.RolledBack && s.hasTarget(channel)
}

// retryIn is the effect that restarts a release in one channel, or nil. An error states why it may not restart although it failed.
func (s *State) retryIn(spec *entities.ChannelSpec, r *Release, re *Retrying, now time.Time) (func(), error) {
	failed := s.failedRollbacks(spec.Name, re.Version)
	p := r.in(spec.Name)
	switch {
	case len(failed) > 0:
		return func() {
			s.Channel(spec.Name).endWindow()
			for _, i := range failed {
				i.restart(now)
				i.Delivery.Rollback.Failed = time.Time{}
			}
		}, nil
	case p == nil:
		return nil, nil
	case r.Aside(spec.Name):
		return nil, errors.New(r.passed(spec.Name))
	case p.Phase == maestro.Pending && retriable(r, spec):
		return func() { retryExtensions(r, spec, now) }, nil
	case p.Phase == maestro.Pending && !p.Retried.IsZero():
		return nil, fmt.Errorf("it already waits for the gates")
	case p.Phase == maestro.Pending:
		return nil, nil
	case s.reenters(r, spec.Name):
		return s.retryRolledBack(r, spec, re, now)
	case r.skippedIn(spec.Name):
		return s.retrySkipped(r, spec, re, now)
	}
	return s.retryFailed(r, spec, re, now)
}

// retryFailed restarts a release where it is the target and failed, was cancelled in progress, or is still in progress. If a newer
// release has entered since, it cannot take the instances that this one has not reached.
func (s *State) retryFailed(r *Release, spec *entities.ChannelSpec, re *Retrying, now time.Time) (func(), error) {
	p := r.Phases[spec.Name]
	at, failed := s.retriedAt(r, spec.Name)
	if len(at) == 0 || !failed {
		return nil, nil
	}
	cancelled := p.Phase == maestro.Cancelled && s.cancelledIn(spec.Name)
	anew := p.Phase == maestro.Failed || p.Phase == maestro.RolledBack || cancelled
	if newer := s.newerThan(r, spec.Name); anew && newer != nil {
		return nil, enteredMeanwhile(newer, r)
	}
	return func() {
		s.Channel(spec.Name).endWindow()
		for _, i := range at {
			i.restart(now)
		}
		retryExtensions(r, spec, now)
		switch unseen := slices.ContainsFunc(at, func(i *Instance) bool { return i.Delivery.Reported }); {
		case cancelled && unseen: // its gates passed while the channel was report-only
			r.Phases[spec.Name] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "retried by " + re.Who.Name, Retried: now}
		case anew:
			r.Phases[spec.Name] = &PhaseState{Phase: maestro.InProgress, Since: now, Reason: "retried by " + re.Who.Name}
		}
	}, nil
}

func enteredMeanwhile(newer, r *Release) error {
	return fmt.Errorf("%s has entered since; to return to %s, release it again", newer.FullVersion, r.Version)
}

// retriedAt are the instances of a channel at which a release restarts, and whether there is a reason to restart.
func (s *State) retriedAt(r *Release, channel string) (at []*Instance, failed bool) {
	phase := r.Phases[channel].Phase
	failed = phase == maestro.Failed || phase == maestro.InProgress
	for _, i := range s.In(channel) {
		if d := &i.Delivery; i.IsAt(r) && (!d.Converged || d.Failure != "" || d.Cancelled != "") {
			at = append(at, i)
			failed = failed || d.Failure != "" || d.Cancelled != "" && s.enteredSince(r, channel) == nil
		} else if i.IsAt(r) && phase == maestro.InProgress {
			at = append(at, i)
		}
	}
	return at, failed
}

// retryRolledBack restarts a release where it was rolled back. It is next in line again. Its earlier gate results are not valid any more:
// a check may FAIL now, and the approvers did not know of the failure.
func (s *State) retryRolledBack(r *Release, spec *entities.ChannelSpec, re *Retrying, now time.Time) (func(), error) {
	if newer := s.newerThan(r, spec.Name); newer != nil {
		return nil, enteredMeanwhile(newer, r)
	}
	var back []*Instance
	for _, i := range s.In(spec.Name) {
		if b := i.Delivery.Rollback; b != nil && b.Release == r.ID && r.Concerns(i.ID) {
			back = append(back, i)
		}
	}
	if len(back) == 0 {
		return nil, fmt.Errorf("its rollback target was replaced")
	}
	for _, i := range back {
		if p, ok := s.PauseOf(i.ID); ok {
			return nil, fmt.Errorf("paused by %s", p.By)
		}
	}
	if p, ok := s.PinOf(spec.Name); ok {
		return nil, fmt.Errorf("pinned by %s", p.Who.Name)
	}
	return func() {
		retryExtensions(r, spec, now)
		r.Phases[spec.Name] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "retried by " + re.Who.Name, Retried: now}
	}, nil
}

func (r *Release) skippedIn(channel string) bool {
	p := r.in(channel)
	return p != nil && p.Phase == maestro.Skipped
}

// retrySkipped lets a skipped release wait again, unless the channel is at a newer release: a retry never moves a channel back (B3).
func (s *State) retrySkipped(r *Release, spec *entities.ChannelSpec, re *Retrying, now time.Time) (func(), error) {
	for _, newer := range s.Releases[slices.Index(s.Releases, r)+1:] {
		p, _ := newer.PhaseIn(spec.Name)
		left := p.Entered() && s.isAt(spec.Name, newer) || p == maestro.Cancelled && (s.leavable(newer, spec.Name) || s.isThere(newer, r, spec.Name))
		if left || p == maestro.InProgress || p == maestro.Succeeded {
			return nil, fmt.Errorf("the newer %s is the target; to return to %s, release it again", newer.FullVersion, r.Version)
		}
	}
	if r.Keeps(spec.Name) && s.offIn(spec.Name) {
		return nil, errors.New("it changes the configuration of the current version, which was cancelled before it had succeeded")
	}
	return func() {
		retryExtensions(r, spec, now)
		r.Phases[spec.Name] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: "retried by " + re.Who.Name, Retried: now}
	}, nil
}

// enteredSince is a newer release that entered a channel, or nil.
func (s *State) enteredSince(r *Release, channel string) *Release {
	for _, newer := range s.Releases[slices.Index(s.Releases, r)+1:] {
		if p, ok := newer.PhaseIn(channel); ok && p.Entered() {
			return newer
		}
	}
	return nil
}

// newerThan is a newer release that entered a channel and was not cancelled in progress, or is still the target; or nil.
func (s *State) newerThan(r *Release, channel string) *Release {
	newer := s.enteredSince(r, channel)
	if newer != nil {
		return newer
	}
	for _, newer := range s.Releases[slices.Index(s.Releases, r)+1:] {
		if p, _ := newer.PhaseIn(channel); p == maestro.Cancelled && s.isThere(newer, r, channel) {
			return newer
		}
	}
	return nil
}

// isThere reports whether an instance of a channel is at a newer release that was cancelled, and not only reported.
func (s *State) isThere(newer, r *Release, channel string) bool {
	return slices.ContainsFunc(s.In(channel), func(i *Instance) bool {
		d := &i.Delivery
		unseen := !d.Converged && d.Cancelled == "" && (d.Reported || s.ReportsOnly(channel))
		return i.IsAt(newer) && !i.IsAt(r) && !unseen
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
	return slices.DeleteFunc(s.In(channel), func(i *Instance) bool {
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
