package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Configured reports how far a service is with the configuration of an incarnation.
func Configured(s *state.State, d *decide.Decision, incarnation int64) protocol.Configured {
	out := protocol.Configured{Service: protocol.ServiceID(s.Application, s.Service), Spec: s.SpecDigest, Opening: s.ReleasePending()}
	newer := int64(0)
	for _, r := range slices.Backward(s.Releases) { // newest first
		if r.Incarnation > incarnation && r.IsConfig() && isPending(r) {
			newer = r.Incarnation
		}
		if r.Incarnation != incarnation || r.Return || r.IsAspect() {
			continue
		}
		if !out.Entered {
			recordProgress(r, &out)
		}
		if r.IsConfig() && out.Release == "" {
			out.Release, out.Waiting, out.HoldReason = r.ID, isPending(r), heldReason(s, d, r)
			if newer > 0 && s.Strategy(r) != maestro.Train {
				out.HoldReason = fmt.Sprintf("incarnation %d replaces it", newer)
			}
		}
	}
	out.Waiting = out.Waiting && !out.Entered
	return out
}

// isPending reports whether a release is still pending in a channel.
func isPending(r *state.Release) bool {
	return slices.ContainsFunc(entities.SortedKeys(r.Phases), func(c string) bool { return r.Phases[c].Phase == maestro.Pending })
}

// recordProgress records whether a release has entered a channel, and how it ended in the first one.
func recordProgress(r *state.Release, out *protocol.Configured) {
	for _, c := range entities.SortedKeys(r.Phases) {
		p := r.Phases[c]
		out.Entered = out.Entered || p.Phase.Entered()
		failed := p.Phase == maestro.Failed || p.Phase == maestro.RolledBack
		switch {
		case failed && !out.Failed:
			out.Failed, out.Since = true, p.Since
		case failed == out.Failed && (failed || p.Phase == maestro.Succeeded):
			out.Since = earlier(out.Since, p.Since)
		}
		out.Succeeded = out.Succeeded || p.Phase == maestro.Succeeded
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// heldReason returns why a release can enter none of its channels, if other services need not wait for it: it is paused or pinned, or waits
// for other services itself. "" means that it may enter a channel.
func heldReason(s *state.State, d *decide.Decision, r *state.Release) (reason string) {
	for n := range d.Channels {
		c := &d.Channels[n]
		if p, ok := r.PhaseIn(c.Channel); !ok || p != maestro.Pending {
			continue
		}
		if reason = heldReasonIn(s, c, r); reason == "" {
			return ""
		}
	}
	return reason
}

func heldReasonIn(s *state.State, c *decide.ChannelDecision, r *state.Release) string {
	spec, _ := s.Spec.Channel(c.Channel)
	if p, paused := pausedIn(s, &spec); paused {
		return c.Channel + " is " + p.StateText() + " by " + p.By
	}
	if p, pinned := s.PinOf(c.Channel); pinned {
		return c.Channel + " is pinned by " + p.Who.Name
	}
	if c.Next == nil || c.Next.ID != r.ID {
		return ""
	}
	for n := range c.Gates {
		j := &c.Gates[n]
		if j.Verdict == entities.Pass || j.Code == decide.CodeNotEvaluated {
			continue
		}
		dependsOnOthers := j.Kind == decide.KindCheck && slices.ContainsFunc(spec.Checks, func(k entities.Check) bool { return k.ID == j.ID && k.Kind.OnOthers() })
		if dependsOnOthers || j.Kind == decide.KindChannelStable || j.Kind == decide.KindUpstream {
			return j.Reason
		}
	}
	return ""
}

// pausedIn returns a pause if all instances of a channel are paused.
func pausedIn(s *state.State, c *entities.ChannelSpec) (p entities.Pause, paused bool) {
	for _, i := range c.Instances {
		if p, paused = s.PauseOf(c.ID(i)); !paused {
			break
		}
	}
	return p, paused
}
