package view

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Deployed is how far a service is with what a plan deploys in a channel. What was skipped is as far as what came in its place.
func Deployed(s *state.State, d *decide.Decision, q protocol.DeployedQuestion) protocol.Deployed {
	out := protocol.Deployed{Spec: s.SpecDigest}
	so := func(became plan.State, text string) protocol.Deployed {
		out.State, out.Text = string(became), text
		return out
	}
	var newest *state.Release
	first := slices.IndexFunc(s.Releases, func(r *state.Release) bool { return r.ID == q.Release })
	for n, r := range slices.Backward(s.Releases) { // newest first
		concerned := !r.OfAspect() && (q.Release != "" && first >= 0 && n >= first || q.Release == "" && r.Incarnation >= q.Since)
		switch p, there := r.PhaseIn(q.Channel); {
		case !concerned || !there || p == maestro.Skipped:
		case p == maestro.Succeeded:
			return so(plan.Done, r.FullVersion)
		case newest == nil:
			newest = r
		}
	}
	switch {
	case s.Deletion != nil:
		return so(plan.Failed, "it is being taken down")
	case s.Reserved(q.Release) != nil, q.Release == "" && s.IsOpening():
		return so(plan.Running, "its release is being made")
	case newest == nil:
		return so(plan.Done, "nothing changes")
	}
	p := newest.Phases[q.Channel]
	if p.Phase.Over() {
		return so(plan.Failed, newest.FullVersion+" "+string(p.Phase)+entities.Because(p.Reason))
	}
	if why := heldBack(s, d, q.Channel, newest); why != "" {
		return so(plan.Held, why)
	}
	return so(plan.Running, newest.FullVersion)
}

// heldBack says why a release does not go on in a channel although its plan lets it; "": it does.
func heldBack(s *state.State, d *decide.Decision, channel string, r *state.Release) string {
	spec, _ := s.Spec.Channel(channel)
	if p, paused := pausedIn(s, &spec); paused {
		return channel + " is " + p.Held() + " by " + p.By
	}
	if in, _ := r.PhaseIn(channel); in == maestro.InProgress {
		return ""
	}
	if p, pinned := s.PinOf(channel); pinned {
		return channel + " is pinned by " + p.Who.Name
	}
	n := slices.IndexFunc(d.Channels, func(c decide.ChannelDecision) bool { return c.Channel == channel })
	if n < 0 {
		return ""
	}
	c := &d.Channels[n]
	if c.Next == nil || c.Next.ID != r.ID {
		return "another release is before it"
	}
	for n := range c.Gates {
		j := &c.Gates[n]
		planned := slices.ContainsFunc(spec.Checks, func(k entities.Check) bool { return k.ID == j.ID && k.Kind == entities.CheckPlan })
		if j.Verdict != entities.Pass && j.Code != decide.CodeNotAsked && !planned {
			return j.ID + ": " + j.Reason
		}
	}
	return ""
}
