package simulate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
)

// recordSpans records the activity of each channel from now on.
func (p *simulation) recordSpans() {
	for n := range p.timeline.Channels {
		c := &p.timeline.Channels[n]
		kind, reasons := p.activity(c.Name)
		for n := range reasons { // replaces the digest in the version of values of an aspect: the user did not give it
			reasons[n] = strings.ReplaceAll(reasons[n], p.release.FullVersion, p.Version)
		}
		if phase := p.phase(c.Name); c.Entered.IsZero() && phase.Entered() {
			c.Entered = p.now
		}
		if c.Succeeded.IsZero() && p.phase(c.Name) == maestro.Succeeded {
			c.Succeeded = p.now
		}
		c.span(Span{Kind: kind, From: p.now, Reasons: reasons})
	}
}

// span starts a span, unless the last one is equal.
func (c *Channel) span(s Span) {
	if n := len(c.Spans); n > 0 {
		last := &c.Spans[n-1]
		if last.Kind == s.Kind && slices.Equal(last.Reasons, s.Reasons) {
			return
		}
		if last.From.Equal(s.From) { // it has no length
			c.Spans = c.Spans[:n-1]
			c.span(s)
			return
		}
		last.To = s.From
	}
	c.Spans = append(c.Spans, s)
}

// activity returns the current activity of a channel for the release, with its reasons.
func (p *simulation) activity(channel string) (Kind, []string) {
	c := p.s.Channels[channel]
	switch phase := p.phase(channel); phase {
	case maestro.Succeeded:
		return Runs, nil
	case maestro.InProgress:
		if c != nil && !c.StableSince.IsZero() {
			return Soaks, p.soakReasons(channel)
		}
		if d, _ := p.channelDecision(channel); d.Step != "" {
			return Deploys, []string{d.Step}
		}
		return Deploys, nil
	case maestro.Pending:
		return Waits, p.holdReasons(channel)
	default:
		return Fails, []string{string(phase)}
	}
}

// soakReasons names the checks and extensions that watch a channel after a deployment.
func (p *simulation) soakReasons(channel string) []string {
	var by []string
	spec, _ := p.s.Spec.Channel(channel)
	for _, c := range spec.Checks {
		if c.RunsAfterDeployment() {
			by = append(by, c.ID)
		}
	}
	for _, e := range spec.Extensions {
		if e.Stage == entities.PostDeployment {
			by = append(by, e.Name)
		}
	}
	return []string{"soaks: " + strings.Join(by, ", ")}
}

// holdReasons returns the reasons that hold the release before a channel: the conditions that do not pass, or the releases ahead of it.
func (p *simulation) holdReasons(channel string) []string {
	d, _ := p.channelDecision(channel)
	if d.Next == nil {
		return d.Texts()
	}
	var out []string
	for _, g := range d.Gates {
		// A gate that was not evaluated yet has no reason of its own.
		isApproval := g.Kind == decide.KindApproval
		if g.Verdict != entities.Pass && g.Code != decide.CodeNotEvaluated && !(isApproval && p.Approve) {
			out = append(out, gateText(g))
		}
	}
	if d.Status == entities.StatusPaused {
		out = append(out, d.Texts()...)
	}
	if d.Next.ID != p.release.ID { // it holds the release as long as the reasons above
		out = append(out, "behind "+d.Next.FullVersion)
	}
	return out
}

// gateText names a condition by its id, unless its reason is sufficient.
func gateText(g decide.Judgement) string {
	if g.Kind == decide.KindChannelStable || g.Kind == decide.KindInProgress || g.Reason == "" {
		return cmp.Or(g.Reason, g.ID)
	}
	return g.ID + ": " + g.Reason
}

func (p *simulation) finish(cutOff bool) {
	p.timeline.To, p.timeline.CutOff = p.now, cutOff
}
