package decide

import (
	"fmt"
	"sort"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds the gates that other channels are: the release has succeeded where it must have, and can still
// come here (A8).

func judgeChannelsStable(p *admission, _ entities.Stage) {
	for _, c := range p.spec.Conditions {
		if c.Kind == entities.ChannelStable {
			p.add(judgeChannelStable(c, p.release))
		}
	}
}

// judgeUnknown: a condition of a newer version is an ERROR, never a PASS.
func judgeUnknown(p *admission, _ entities.Stage) {
	for _, c := range p.spec.Conditions {
		if !knownCondition(c.Kind) {
			p.add(Judgement{Kind: KindUnknown, ID: c.ID, Verdict: entities.Error, Reason: fmt.Sprintf("condition kind %q is unknown to this version", c.Kind)})
		}
	}
}

func knownCondition(k entities.ConditionKind) bool {
	return k == entities.ChannelStable || k == entities.ManualApproval
}

func unknownConditions(v *view, entered bool) []string {
	var out []string
	for _, c := range v.spec.Conditions {
		if !knownCondition(c.Kind) && !entered {
			out = append(out, c.ID)
		}
	}
	return out
}

// judgeChannelStable passes when the release has succeeded in all named channels. A success is
// part of the release, so it is sticky for that release even if the channel moves on (A8).
func judgeChannelStable(c entities.Condition, r *state.Release) Judgement {
	j := Judgement{Kind: KindChannelStable, ID: c.ID, Verdict: entities.Pass}
	var reasons []string
	for _, name := range c.Channels {
		p := r.Phases[name]
		if p == nil {
			continue // the channel was added after the release: it has nothing to say about it
		}
		v, why := stableIn(name, p, r.FullVersion)
		if v.Worse(j.Verdict) {
			j.Verdict, reasons = v, nil
		}
		if v == j.Verdict {
			reasons = append(reasons, why)
			if p.Since.After(j.Since) {
				j.Since = p.Since
			}
		}
	}
	sort.Strings(reasons)
	j.Reason = strings.Join(reasons, ", ")
	return j
}

func stableIn(channel string, p *state.PhaseState, version string) (entities.Verdict, string) {
	switch p.Phase {
	case maestro.Succeeded:
		return entities.Pass, fmt.Sprintf("%s stable at %s", channel, version)
	case maestro.Pending:
		return entities.Wait, fmt.Sprintf("%s has not entered %s yet", version, channel)
	case maestro.InProgress:
		return entities.Wait, fmt.Sprintf("%s is going out to %s", version, channel)
	default:
		return entities.Fail, fmt.Sprintf("%s %s in %s", version, p.Phase, channel)
	}
}

// judgeUpstream: a failure lies further up than the channels that this one names.
func judgeUpstream(p *admission, _ entities.Stage) {
	for _, j := range p.gates {
		if j.Kind == KindChannelStable && j.Verdict == entities.Fail {
			return // it says so itself
		}
	}
	if p.turn.Stuck != "" {
		p.add(Judgement{Kind: KindUpstream, ID: string(KindUpstream), Verdict: entities.Fail, Reason: p.release.FullVersion + " " + p.turn.Stuck})
	}
}

func unblockRetry(v *view, j *Judgement, r *state.Release) string {
	if j.Verdict != entities.Fail {
		return ""
	}
	return v.retry(r.FullVersion)
}

func whereStuck(v *view, entered bool) []string {
	if entered || v.turn.Stuck == "" {
		return nil
	}
	return []string{string(KindUpstream)}
}

// conditions lists the declared conditions of a kind.
func conditions(kind entities.ConditionKind) func(*view, bool) []string {
	return func(v *view, entered bool) []string {
		var out []string
		for _, c := range v.spec.Conditions {
			if c.Kind == kind && !entered {
				out = append(out, c.ID)
			}
		}
		return out
	}
}
