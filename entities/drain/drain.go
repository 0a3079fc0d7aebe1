// Package drain orders how services leave a drained runtime, and how they return (A16). Dependents leave before the services that they
// depend on, and return after them. The package queries nothing. It has only functions of what services report about themselves.
package drain

import (
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// plan is the services on one runtime.
type plan struct {
	runtime string
	drain   entities.Drain
	all     []protocol.Placement // those with instances on the runtime, and those that did not answer; sorted
	index   map[string]int       // index in all, by workflow id
	needs   [][]int              // by index: the services on the runtime that it depends on
}

func newPlan(runtime string, d entities.Drain, placed []protocol.Placement) *plan {
	p := &plan{runtime: runtime, drain: d, index: map[string]int{}}
	for _, s := range placed {
		instances := slices.DeleteFunc(slices.Clone(s.Instances), func(i protocol.InstancePlacement) bool { return i.Runtime != runtime })
		if s.Instances = instances; len(instances) > 0 || s.Err != "" {
			p.all = append(p.all, s)
		}
	}
	slices.SortFunc(p.all, func(a, b protocol.Placement) int { return strings.Compare(a.Service, b.Service) })
	for n := range p.all {
		p.index[p.all[n].Service] = n
	}
	p.needs = make([][]int, len(p.all))
	for n := range p.all {
		for _, i := range p.all[n].Instances {
			for _, name := range i.RequiredServices {
				if k, instances := p.index[name]; instances && k != n && !slices.Contains(p.needs[n], k) {
					p.needs[n] = append(p.needs[n], k)
				}
			}
		}
	}
	return p
}

// Next returns the progress of a drain and which services may move now, from what services report.
func Next(runtime string, d entities.Drain, placed []protocol.Placement) entities.Drain {
	p, next := newPlan(runtime, d, placed), d
	next.Permits, next.Done = nil, true
	for n := range p.all {
		permit := entities.DrainPermit{Service: p.all[n].Service, Allowed: d.PermitOf(p.all[n].Service).Allowed}
		if !permit.Allowed {
			permit.WaitsFor = p.waitsFor(n)
			permit.Allowed = permit.WaitsFor == ""
		}
		next.Permits = append(next.Permits, permit)
		next.Done = next.Done && p.isFinished(n, permit)
	}
	return next
}

// isFinished reports whether a service is finished: nothing of it is left on the runtime, or it may return.
func (p *plan) isFinished(n int, permit entities.DrainPermit) bool {
	if p.drain.Restoring {
		return permit.Allowed
	}
	return p.all[n].Err == "" && !p.hasInstances(n)
}

// hasInstances reports whether a service still has something to move off the runtime.
func (p *plan) hasInstances(n int) bool {
	return slices.ContainsFunc(p.all[n].Instances, func(i protocol.InstancePlacement) bool { return i.Running && i.KeepReason == "" })
}

// hasReturned reports whether a service has returned completely and is stable.
func (p *plan) hasReturned(n int) bool {
	return p.all[n].Err == "" && p.drain.PermitOf(p.all[n].Service).Allowed && !p.hasDrain(n) &&
		!slices.ContainsFunc(p.all[n].Instances, func(i protocol.InstancePlacement) bool { return !i.Stable })
}

// hasDrain reports whether a service has the runtime as drained in its state.
func (p *plan) hasDrain(n int) bool { return ReportedDrain(p.runtime, p.all[n]) != nil }

// ReportedDrain returns the drain of a runtime that a service has in its state, or nil.
func ReportedDrain(runtime string, s protocol.Placement) *entities.Pause {
	for n := range s.Drains {
		if s.Drains[n].Scope == entities.ScopeRuntime+runtime {
			return &s.Drains[n]
		}
	}
	return nil
}

// waitsFor returns what a service waits for before it may move, or "".
func (p *plan) waitsFor(n int) string {
	var before []string
	for k := range p.all {
		if !p.precedes(k, n) {
			continue
		}
		if p.drain.Restoring && !p.hasReturned(k) || !p.drain.Restoring && (p.all[k].Err != "" || p.hasInstances(k)) {
			before = append(before, protocol.ShortID(p.all[k].Service))
		}
	}
	switch {
	case p.drain.Force && p.drain.Restoring:
		return ""
	case len(before) > 0 && p.drain.Restoring:
		return "once " + entities.FirstNames(before) + " " + isOrAre(before) + " stable on " + p.runtime
	case len(before) > 0:
		return "once " + entities.FirstNames(before) + " " + entities.HasOrHave(before) + " left " + p.runtime
	case p.drain.Force:
		return ""
	}
	return p.unansweredText()
}

// precedes reports whether service k has to leave, or return, before service n or a service of its dependency cycle.
func (p *plan) precedes(k, n int) bool {
	if p.inSameCycle(k, n) {
		return false
	}
	for m := range p.all {
		first, then := k, m // dependencies return first
		if !p.drain.Restoring {
			first, then = m, k
		}
		if slices.Contains(p.needs[then], first) && p.inSameCycle(m, n) {
			return true
		}
	}
	return false
}

// inSameCycle reports whether two services depend on each other, directly or not. Such services move at the same time.
func (p *plan) inSameCycle(a, b int) bool { return a == b || p.dependsOn(a, b) && p.dependsOn(b, a) }

// unansweredText returns what to wait for if services did not answer: they may depend on any other.
func (p *plan) unansweredText() string {
	var unanswered []string
	for _, s := range p.all {
		if s.Err != "" {
			unanswered = append(unanswered, protocol.ShortID(s.Service))
		}
	}
	if len(unanswered) == 0 {
		return ""
	}
	return "once " + entities.FirstNames(unanswered) + " can be reached"
}

// dependsOn reports whether a service depends on another, directly or not.
func (p *plan) dependsOn(from, to int) bool {
	seen := make([]bool, len(p.all))
	var walk func(int) bool
	walk = func(n int) bool {
		if n == to {
			return true
		}
		if seen[n] {
			return false
		}
		seen[n] = true
		return slices.ContainsFunc(p.needs[n], walk)
	}
	return walk(from)
}

// OnlyOn names the channels that would have nothing left without a runtime, or "".
func OnlyOn(runtime string, placed []protocol.Placement) string {
	var channels []string
	for _, s := range placed {
		for _, i := range s.Instances {
			if i.Runtime == runtime && i.Running && i.KeepReason == "" && !runsElsewhere(s, i) {
				channels = append(channels, protocol.ShortID(s.Service)+" "+i.Channel)
			}
		}
	}
	if len(channels) == 0 {
		return ""
	}
	slices.Sort(channels)
	return entities.FirstNames(channels)
}

// runsElsewhere reports whether a channel also runs on another runtime that is not drained.
func runsElsewhere(s protocol.Placement, of protocol.InstancePlacement) bool {
	return slices.ContainsFunc(s.Instances, func(i protocol.InstancePlacement) bool {
		return i.Channel == of.Channel && i.Runtime != of.Runtime && i.Running && ReportedDrain(i.Runtime, s) == nil
	})
}

// Order returns the steps in which services would leave a runtime. The services of a step leave together.
func Order(runtime string, placed []protocol.Placement) (steps [][]string) {
	remaining := slices.Clone(placed)
	for n := range remaining {
		remaining[n].Err = ""
	}
	for range remaining {
		p, d := newPlan(runtime, entities.Drain{}, remaining), Next(runtime, entities.Drain{}, remaining)
		var step []string
		for n, t := range d.Permits {
			if t.Allowed && p.hasInstances(n) {
				step = append(step, t.Service)
			}
		}
		if len(step) == 0 {
			break
		}
		steps = append(steps, step)
		remaining = slices.DeleteFunc(remaining, func(s protocol.Placement) bool { return slices.Contains(step, s.Service) })
	}
	return steps
}

func isOrAre(of []string) string {
	if len(of) == 1 {
		return "is"
	}
	return "are"
}
