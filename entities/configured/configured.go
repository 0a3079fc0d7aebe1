// Package configured decides which service may get a configuration next, if many services get it step by step. It queries nothing and
// stores nothing. The result is a function of what services report, the policy and the time.
package configured

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/selection"
)

// Admission says whether a service may get the configuration now.
type Admission struct {
	Allowed bool
	Halted  bool   // does not continue without a change
	Reason  string // for people
	At      time.Time
}

// plan is what services report about an incarnation.
type plan struct {
	incarnation int64
	all         []protocol.Configured // by workflow id
}

// Next returns whether a service may get the configuration for a release, from the reports of all services of its application.
func Next(policy entities.ConfigRollout, incarnation int64, all []protocol.Configured, service, release string, now time.Time) Admission {
	p := &plan{incarnation, slices.Clone(all)}
	slices.SortFunc(p.all, func(a, b protocol.Configured) int { return cmp.Compare(a.Service, b.Service) })
	self := slices.IndexFunc(p.all, func(c protocol.Configured) bool { return c.Service == service })
	switch {
	case self >= 0 && p.all[self].Err != "":
		return p.waiting("once " + protocol.ShortID(service) + " can be reached")
	case self >= 0 && (p.all[self].Behind || p.all[self].Opening):
		return p.waiting("once " + protocol.ShortID(service) + " has processed it")
	case self < 0 || p.all[self].Release != release:
		return Admission{Allowed: true, Reason: "it is not a config release"}
	case p.all[self].Entered:
		return Admission{Allowed: true, Reason: fmt.Sprintf("it already has incarnation %d", incarnation)}
	}
	if failed := p.namesOf(func(c protocol.Configured) bool { return c.Failed }); len(failed) >= policy.MaxFailures {
		return Admission{Halted: true, Reason: fmt.Sprintf("%d of %d services failed with incarnation %d: %s; held until they are fixed or a newer configuration is published",
			len(failed), len(p.concerned()), incarnation, entities.FirstNames(failed))}
	}
	if waiting := p.namesOf(func(c protocol.Configured) bool { return c.Err != "" }); len(waiting) > 0 {
		return p.waiting("once " + entities.FirstNames(waiting) + " can be reached")
	}
	if waiting := p.namesOf(func(c protocol.Configured) bool { return c.Behind || c.Opening }); len(waiting) > 0 {
		return p.waiting("once " + entities.FirstNames(waiting) + " " + entities.HasOrHave(waiting) + " processed it")
	}
	return p.admit(policy, p.all[self], now)
}

// admit decides whether a waiting service may get the configuration now, when all reports are complete.
func (p *plan) admit(policy entities.ConfigRollout, self protocol.Configured, now time.Time) Admission {
	concerned := p.concerned()
	s := selection.Select(instances(concerned), &entities.Rollout{Steps: policy.Steps}, now)
	var next []string
	for _, n := range s.Next {
		if concerned[n].Service == self.Service {
			return Admission{Allowed: true, Reason: p.progress() + "; it is one of the next"}
		}
		next = append(next, protocol.ShortID(concerned[n].Service))
	}
	switch {
	case self.HoldReason != "":
		return p.waiting("others, because this one is held: " + self.HoldReason)
	case s.Wait == selection.Stable:
		return p.waiting(fmt.Sprintf("%d once %s succeeded", s.More, p.inProgressText()))
	case s.Wait == selection.Pause:
		t := p.waiting(fmt.Sprintf("%d at %s", s.More, s.At.UTC().Format("15:04:05 MST")))
		t.At = s.At
		return t
	}
	return p.waiting(entities.FirstNames(next))
}

// instances maps the services to instances of one channel. A failed service counts as finished while the policy allows failures.
func instances(concerned []protocol.Configured) []selection.InstanceState {
	out := make([]selection.InstanceState, len(concerned))
	for n, c := range concerned {
		out[n] = selection.InstanceState{Updated: c.Entered, Held: c.HoldReason != "", Stable: !c.Entered || c.Succeeded || c.Failed, Since: c.Since}
	}
	return out
}

func (p *plan) waiting(what string) Admission {
	return Admission{Reason: p.progress() + "; next " + what}
}

// concerned returns the services that have the incarnation or are to get it.
func (p *plan) concerned() []protocol.Configured {
	return slices.DeleteFunc(slices.Clone(p.all), func(c protocol.Configured) bool { return !c.Entered && !c.Waiting })
}

// progress describes how many services have the incarnation.
func (p *plan) progress() string {
	entered := p.namesOf(func(c protocol.Configured) bool { return c.Entered })
	return fmt.Sprintf("%d of %d services have incarnation %d", len(entered), len(p.concerned()), p.incarnation)
}

// inProgressText names the services that have not finished their first channel.
func (p *plan) inProgressText() string {
	inProgress := p.namesOf(func(c protocol.Configured) bool { return c.Entered && !c.Succeeded && !c.Failed })
	return entities.FirstNames(inProgress) + " " + entities.HasOrHave(inProgress)
}

func (p *plan) namesOf(which func(protocol.Configured) bool) (out []string) {
	for _, c := range p.all {
		if which(c) {
			out = append(out, protocol.ShortID(c.Service))
		}
	}
	return out
}
