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

// Turn says whether a service may get the configuration now.
type Turn struct {
	Go     bool
	Halted bool   // does not continue without a change
	Reason string // for people
	At     time.Time
}

// plan is what services report about an incarnation.
type plan struct {
	incarnation int64
	all         []protocol.Configured // by workflow id
}

// Next returns whether a service may get the configuration for a release, from the reports of all services of its application.
func Next(policy entities.ConfigRollout, incarnation int64, all []protocol.Configured, service, release string, now time.Time) Turn {
	p := &plan{incarnation, slices.Clone(all)}
	slices.SortFunc(p.all, func(a, b protocol.Configured) int { return cmp.Compare(a.Service, b.Service) })
	me := slices.IndexFunc(p.all, func(c protocol.Configured) bool { return c.Service == service })
	switch {
	case me >= 0 && p.all[me].Err != "":
		return p.waits("once " + protocol.ShortID(service) + " can be reached")
	case me >= 0 && (p.all[me].Behind || p.all[me].Opening):
		return p.waits("once " + protocol.ShortID(service) + " has processed it")
	case me < 0 || p.all[me].Release != release:
		return Turn{Go: true, Reason: "it is not a config release"}
	case p.all[me].Entered:
		return Turn{Go: true, Reason: fmt.Sprintf("it already has incarnation %d", incarnation)}
	}
	if failed := p.named(func(c protocol.Configured) bool { return c.Failed }); len(failed) >= policy.MaxFailures {
		return Turn{Halted: true, Reason: fmt.Sprintf("%d of %d services failed with incarnation %d: %s; held until they are fixed or a newer configuration is published",
			len(failed), len(p.concerned()), incarnation, entities.Few(failed))}
	}
	if late := p.named(func(c protocol.Configured) bool { return c.Err != "" }); len(late) > 0 {
		return p.waits("once " + entities.Few(late) + " can be reached")
	}
	if late := p.named(func(c protocol.Configured) bool { return c.Behind || c.Opening }); len(late) > 0 {
		return p.waits("once " + entities.Few(late) + " " + entities.Has(late) + " processed it")
	}
	return p.turn(policy, p.all[me], now)
}

// turn is the turn of a waiting service when all reports are complete.
func (p *plan) turn(policy entities.ConfigRollout, me protocol.Configured, now time.Time) Turn {
	concerned := p.concerned()
	s := selection.Select(instances(concerned), &entities.Rollout{Steps: policy.Steps}, now)
	var next []string
	for _, n := range s.Next {
		if concerned[n].Service == me.Service {
			return Turn{Go: true, Reason: p.progress() + "; it is one of the next"}
		}
		next = append(next, protocol.ShortID(concerned[n].Service))
	}
	switch {
	case me.Held != "":
		return p.waits("others, because this one is held: " + me.Held)
	case s.Wait == selection.Stable:
		return p.waits(fmt.Sprintf("%d once %s succeeded", s.More, p.underWay()))
	case s.Wait == selection.Pause:
		t := p.waits(fmt.Sprintf("%d at %s", s.More, s.At.UTC().Format("15:04:05 MST")))
		t.At = s.At
		return t
	}
	return p.waits(entities.Few(next))
}

// instances maps the services to instances of one channel. A failed service counts as finished while the policy allows failures.
func instances(concerned []protocol.Configured) []selection.Instance {
	out := make([]selection.Instance, len(concerned))
	for n, c := range concerned {
		out[n] = selection.Instance{Updated: c.Entered, Held: c.Held != "", Stable: !c.Entered || c.Succeeded || c.Failed, Since: c.Since}
	}
	return out
}

func (p *plan) waits(what string) Turn { return Turn{Reason: p.progress() + "; next " + what} }

// concerned returns the services that have the incarnation or are to get it.
func (p *plan) concerned() []protocol.Configured {
	return slices.DeleteFunc(slices.Clone(p.all), func(c protocol.Configured) bool { return !c.Entered && !c.Waits })
}

// progress describes how many services have the incarnation.
func (p *plan) progress() string {
	entered := p.named(func(c protocol.Configured) bool { return c.Entered })
	return fmt.Sprintf("%d of %d services have incarnation %d", len(entered), len(p.concerned()), p.incarnation)
}

// underWay names the services that have not finished their first channel.
func (p *plan) underWay() string {
	on := p.named(func(c protocol.Configured) bool { return c.Entered && !c.Succeeded && !c.Failed })
	return entities.Few(on) + " " + entities.Has(on)
}

func (p *plan) named(which func(protocol.Configured) bool) (out []string) {
	for _, c := range p.all {
		if which(c) {
			out = append(out, protocol.ShortID(c.Service))
		}
	}
	return out
}
