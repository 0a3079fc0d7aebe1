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

// Deployed reports how far a service is with a plan's deployment in a channel. A skipped release counts as the release that replaced it. If
// the configuration of the plan creates no release, the pending releases that the plan found count.
func Deployed(s *state.State, d *decide.Decision, q protocol.DeployedQuestion) protocol.Deployed {
	out := protocol.Deployed{Spec: s.SpecDigest}
	switch {
	case s.Deletion != nil:
		out.State, out.Text = string(plan.Failed), "it is being deleted"
		return out
	case s.ReservationByID(q.Release) != nil, q.Release == "" && s.ReleasePending():
		out.State, out.Text = string(plan.Running), "its release is being prepared"
		if s.Problem != "" {
			out.Text += ": " + s.Problem
		}
		return out
	case q.Release == "" && s.Spec != nil && s.UnreleasedReason() != "" && s.Spec.Incarnation >= q.Incarnation:
		out.State, out.Text = string(plan.Failed), s.UnreleasedReason()
		return out
	}
	before, own, after := releasesOf(s, q)
	r, skipped := newestOf(own, q.Channel)
	switch {
	case r == nil && skipped:
		r, _ = newestOf(after, q.Channel)
	case r == nil:
		r, _ = newestOf(before, q.Channel)
	}
	nodeState, text := outcome(s, d, q.Channel, r)
	out.State, out.Text = string(nodeState), text
	return out
}

// releasesOf returns the releases of a plan, oldest first, and the releases before and after them that may count instead.
func releasesOf(s *state.State, q protocol.DeployedQuestion) (before, own, after []*state.Release) {
	found := false
	for _, r := range s.Releases {
		found = found || r.ID == q.Release
		switch {
		case r.IsAspect():
		case q.Release != "" && r.ID == q.Release, q.Release == "" && r.Incarnation == q.Incarnation:
			own = append(own, r)
		case q.Release != "" && found, q.Release == "" && r.Incarnation > q.Incarnation:
			after = append(after, r)
		case q.Release == "" && r.Incarnation >= q.Since:
			before = append(before, r)
		}
	}
	return before, own, after
}

// newestOf returns the release that counts: the newest that succeeded in the channel, or else the newest. skipped is true if all releases
// were skipped.
func newestOf(all []*state.Release, channel string) (newest *state.Release, skipped bool) {
	for _, r := range slices.Backward(all) {
		switch p, concerned := r.PhaseIn(channel); {
		case !concerned:
		case p == maestro.Skipped:
			skipped = true
		case p == maestro.Succeeded:
			return r, false
		case newest == nil:
			newest = r
		}
	}
	return newest, skipped
}

// outcome returns the outcome of a release in a channel. A nil release means that there was nothing to deploy.
func outcome(s *state.State, d *decide.Decision, channel string, r *state.Release) (nodeState plan.State, text string) {
	if r == nil {
		return plan.Done, "nothing changes"
	}
	p := r.Phases[channel]
	switch {
	case p.Phase == maestro.Succeeded:
		return plan.Done, r.FullVersion
	case p.Phase.Over():
		return plan.Failed, r.FullVersion + " " + string(p.Phase) + entities.Because(p.Reason)
	}
	if reason := delayReason(s, d, channel, r); reason != "" {
		return plan.Held, reason
	}
	return plan.Running, r.FullVersion
}

// delayReason returns why a release does not proceed in a channel although its plan allows it, or "" if it proceeds.
func delayReason(s *state.State, d *decide.Decision, channel string, r *state.Release) string {
	spec, _ := s.Spec.Channel(channel)
	if p, paused := pausedIn(s, &spec); paused {
		return channel + " is " + p.StateText() + " by " + p.By
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
		return "another release is ahead of it"
	}
	for n := range c.Gates {
		j := &c.Gates[n]
		planned := slices.ContainsFunc(spec.Checks, func(k entities.Check) bool { return k.ID == j.ID && k.Kind == entities.CheckPlan })
		if j.Verdict != entities.Pass && j.Code != decide.CodeNotEvaluated && !planned {
			return j.ID + ": " + j.Reason
		}
	}
	return ""
}
