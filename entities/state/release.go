package state

import (
	"cmp"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// Release is a user's request to deliver a version, and its progress in each channel.
type Release struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"`     // as a person or CI named it
	FullVersion string    `json:"fullVersion"` // as runtimes see it; "v7-i42" for a config release
	Incarnation int64     `json:"incarnation"`
	Hash        string    `json:"hash"`
	By          string    `json:"by"`
	Subject     string    `json:"subject,omitempty"` // of the releaser, if it was proven
	At          time.Time `json:"at"`
	// Payloads and Templates: digest by instance, of the rendered payload and of its source.
	Payloads  map[entities.InstanceID]string `json:"payloads"`
	Templates map[entities.InstanceID]string `json:"templates,omitempty"`
	// Runtimes for which payloads were rendered, if the configuration names another one now.
	Runtimes map[entities.InstanceID]string `json:"runtimes,omitempty"`
	// Present: for a config release, the render of its configuration with the current version of an instance; set when the release is
	// next there.
	Present map[entities.InstanceID]entities.Target `json:"present,omitempty"`
	// KeepsVersionIn: for a config release, the channels in which its version was cancelled, or rolled back by a person: only its
	// configuration comes there, with the current version (I2, I4). MergedTargets is the result of that render, set together with Present.
	KeepsVersionIn map[string]bool                      `json:"keeping,omitempty"`
	MergedTargets  map[entities.InstanceID]MergedTarget `json:"kept,omitempty"`
	Phases         map[string]*PhaseState               `json:"phases"` // by channel
	// Aspect that it gives values to; empty: it has a version. ValuesText are the values, for people. The targets are in MergedTargets, as are
	// those of a version that keeps the current values.
	Aspect     string `json:"aspect,omitempty"`
	ValuesText string `json:"sets,omitempty"`
	// RollbackTargets are, for values that pass a release in progress, the rollback targets of that release after the values: its previous
	// targets with the values.
	RollbackTargets map[entities.InstanceID]MergedTarget `json:"ways,omitempty"`
	// Return: it rolls another release back, to an earlier good target, because a person requested it.
	Return bool `json:"return,omitempty"`
	// RollsBack is the id of that release, if a person requested a rollback.
	RollsBack string `json:"takesBack,omitempty"`
	// Strategy that it was released with; empty: that of the service.
	Strategy maestro.Strategy `json:"strategy,omitempty"`

	Approvals  []entities.Approval        `json:"approvals,omitempty"`
	Bypasses   []entities.Bypass          `json:"bypasses,omitempty"`
	Extensions map[string]*ExtensionState `json:"extensions,omitempty"` // by Extension.RunKey
}

// PhaseState is a release's phase in one channel, since when and why.
type PhaseState struct {
	Phase  maestro.Phase `json:"phase"`
	Since  time.Time     `json:"since"`
	Reason string        `json:"reason,omitempty"`
	// Revoked: a person rolled the release back here. A change of configuration does not bring its version again.
	Revoked bool `json:"calledOff,omitempty"`
	// FailedChecks are the checks that returned FAIL before the release entered: a newer one may pass it (B10).
	FailedChecks []string `json:"refused,omitempty"`
	// RetriedAt: it was rolled back or skipped here, and a person let it enter again at that time.
	RetriedAt time.Time `json:"retried,omitzero"`
	// Aside: it is in progress, and waits between two steps for values that pass it.
	Aside *Aside `json:"aside,omitempty"`
	// ResumedAt is when it continued after such values had been rolled back.
	ResumedAt time.Time `json:"doubted,omitzero"`
}

// MergedTarget is a configuration with another version than that of its release.
type MergedTarget struct {
	Version string `json:"version"` // as a person or CI named it
	entities.Target
}

// IsConfig reports whether only a configuration change made this release (B9).
func (r *Release) IsConfig() bool { return r.Version != r.FullVersion }

// PhaseIn implements maestro.Release.
func (r *Release) PhaseIn(channel string) (maestro.Phase, bool) {
	if p := r.Phases[channel]; p != nil {
		return p.Phase, true
	}
	return "", false
}

// phaseState is the progress of a release in a channel; nil: it does not concern the channel, or there is no release.
func (r *Release) phaseState(channel string) *PhaseState {
	if r == nil {
		return nil
	}
	return r.Phases[channel]
}

// PassesRollback reports whether a rollback that is in progress in a channel, or failed there, does not hold the release: it was made after
// the failure, or it is the release that was rolled back and a person retries it.
func (r *Release) PassesRollback(channel string, b *entities.Rollback) bool {
	p := r.phaseState(channel)
	retried := p != nil && b.Release == r.ID && !p.RetriedAt.IsZero()
	return retried || !b.Failed.IsZero() && !r.At.Before(b.Failed)
}

// Track implements maestro.Release: it is the aspect.
func (r *Release) Track() string { return r.Aspect }

// IsAspect reports whether the release gives values to an aspect, and keeps everything else (B5).
func (r *Release) IsAspect() bool { return r.Aspect != "" && !r.Return }

// Waives implements maestro.Release: a bypassed condition names channels in which the release need not have succeeded. A release that
// returns a channel to a good version needs no success in other channels.
func (r *Release) Waives(channel, condition string) bool {
	return r.Return || r.BypassOf(channel, condition) != nil
}

// Reopened implements maestro.Release.
func (r *Release) Reopened(channel string) bool {
	p := r.phaseState(channel)
	return p != nil && !p.RetriedAt.IsZero()
}

// Strategy is the strategy of a release.
func (s *State) Strategy(r *Release) maestro.Strategy {
	strategy := cmp.Or(r.Strategy, maestro.Strategy(s.Spec.Maestro.Strategy))
	if r.Return && strategy != "" {
		return maestro.Returning
	}
	return strategy
}

// BypassOf is the bypass of a condition of a channel, or nil.
func (r *Release) BypassOf(channel, condition string) *entities.Bypass {
	for i := range r.Bypasses {
		if b := &r.Bypasses[i]; b.Channel == channel && b.Condition == condition {
			return b
		}
	}
	return nil
}

// Over reports whether the release is finished in every channel.
func (r *Release) Over() bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if !p.Phase.Over() {
			return false
		}
	}
	return true
}

// Target is the target of the release for an instance; empty if it is not rendered yet.
func (r *Release) Target(id entities.InstanceID) entities.Target {
	if k, rendered := r.MergedTargets[id]; rendered || r.KeepsVersion(id.Channel) {
		t := k.Target
		t.Runtime = cmp.Or(r.Runtimes[id], t.Runtime)
		return t
	}
	return entities.Target{FullVersion: r.FullVersion, Incarnation: r.Incarnation, Payload: r.Payloads[id], Runtime: r.Runtimes[id]}
}

// KeepsVersion reports whether only the configuration, or the values, of the release come to a channel.
func (r *Release) KeepsVersion(channel string) bool { return r.KeepsVersionIn[channel] || r.IsAspect() }

// markKeepsVersion limits the release in a channel to its configuration.
func (r *Release) markKeepsVersion(channel string) {
	if r.KeepsVersionIn == nil {
		r.KeepsVersionIn = map[string]bool{}
	}
	r.KeepsVersionIn[channel] = true
}

// FullVersionFor is the full version of the release for an instance.
func (r *Release) FullVersionFor(id entities.InstanceID) string {
	return cmp.Or(r.Target(id).FullVersion, r.FullVersion)
}

// hasFullVersion reports whether the release has a full version for any instance.
func (r *Release) hasFullVersion(fullVersion string) bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, k := range r.MergedTargets {
		if k.FullVersion == fullVersion {
			return true
		}
	}
	return r.FullVersion == fullVersion
}

// HasPayload reports whether the release has a payload for an instance.
func (r *Release) HasPayload(id entities.InstanceID) bool { return r.Target(id).Payload != "" }

// phasesText formats the phase of the release in every channel.
func (r *Release) phasesText() string {
	var parts []string
	for _, c := range entities.SortedKeys(r.Phases) {
		parts = append(parts, c+" "+string(r.Phases[c].Phase))
	}
	return strings.Join(parts, ", ")
}

// cancel ends the release in a channel.
func (r *Release) cancel(channel, reason string, now time.Time) {
	r.Phases[channel] = &PhaseState{Phase: maestro.Cancelled, Since: now, Reason: reason}
}

// isRevoked reports whether a person cancelled the release here, or rolled it back. (A release that was cancelled because its channel was
// removed has no template there any more.)
func (r *Release) isRevoked(channel string) bool {
	p := r.Phases[channel]
	return p != nil && (p.Phase == maestro.Cancelled || p.Revoked) && r.hasTemplates(channel)
}

// hasTemplates reports whether the release has templates in a channel.
func (r *Release) hasTemplates(channel string) bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for id := range r.Templates {
		if id.Channel == channel {
			return true
		}
	}
	return false
}

// unpromoted reports whether the release is open, and has not entered any channel.
func (r *Release) unpromoted() bool {
	// The order does not affect the result.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if p.Phase.Entered() {
			return false
		}
	}
	return !r.Over()
}
