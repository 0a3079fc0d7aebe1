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
	all     []protocol.Placed // those with instances on the runtime, and those that did not answer; sorted
	at      map[string]int    // index in all, by workflow id
	needs   [][]int           // by index: the services on the runtime that it depends on
}

func newPlan(runtime string, d entities.Drain, placed []protocol.Placed) *plan {
	p := &plan{runtime: runtime, drain: d, at: map[string]int{}}
	for _, s := range placed {
		here := slices.DeleteFunc(slices.Clone(s.Instances), func(i protocol.PlacedInstance) bool { return i.Runtime != runtime })
		if s.Instances = here; len(here) > 0 || s.Err != "" {
			p.all = append(p.all, s)
		}
	}
	slices.SortFunc(p.all, func(a, b protocol.Placed) int { return strings.Compare(a.Service, b.Service) })
	for n := range p.all {
		p.at[p.all[n].Service] = n
	}
	p.needs = make([][]int, len(p.all))
	for n := range p.all {
		for _, i := range p.all[n].Instances {
			for _, name := range i.Needs {
				if k, here := p.at[name]; here && k != n && !slices.Contains(p.needs[n], k) {
					p.needs[n] = append(p.needs[n], k)
				}
			}
		}
	}
	return p
}

// Next returns the progress of a drain and which services may move now, from what services report.
func Next(runtime string, d entities.Drain, placed []protocol.Placed) entities.Drain {
	p, next := newPlan(runtime, d, placed), d
	next.Turns, next.Done = nil, true
	for n := range p.all {
		turn := entities.Turn{Service: p.all[n].Service, Go: d.Of(p.all[n].Service).Go}
		if !turn.Go {
			turn.Waits = p.waits(n)
			turn.Go = turn.Waits == ""
		}
		next.Turns = append(next.Turns, turn)
		next.Done = next.Done && p.over(n, turn)
	}
	return next
}

// over reports whether a service is finished: nothing of it is left on the runtime, or it may return.
func (p *plan) over(n int, turn entities.Turn) bool {
	if p.drain.Up {
		return turn.Go
	}
	return p.all[n].Err == "" && !p.there(n)
}

// there reports whether a service still has something to move off the runtime.
func (p *plan) there(n int) bool {
	return slices.ContainsFunc(p.all[n].Instances, func(i protocol.PlacedInstance) bool { return i.There && i.Stays == "" })
}

// back reports whether a service has returned completely and is stable.
func (p *plan) back(n int) bool {
	return p.all[n].Err == "" && p.drain.Of(p.all[n].Service).Go && !p.told(n) &&
		!slices.ContainsFunc(p.all[n].Instances, func(i protocol.PlacedInstance) bool { return !i.Stable })
}

// told reports whether a service has the runtime as drained in its state.
func (p *plan) told(n int) bool { return Told(p.runtime, p.all[n]) != nil }

// Told returns the drain of a runtime that a service has in its state, or nil.
func Told(runtime string, s protocol.Placed) *entities.Pause {
	for n := range s.Drains {
		if s.Drains[n].Scope == entities.ScopeRuntime+runtime {
			return &s.Drains[n]
		}
	}
	return nil
}

// waits returns what a service waits for before it may move, or "".
func (p *plan) waits(n int) string {
	var before []string
	for k := range p.all {
		if !p.comesBefore(k, n) {
			continue
		}
		if p.drain.Up && !p.back(k) || !p.drain.Up && (p.all[k].Err != "" || p.there(k)) {
			before = append(before, protocol.ShortID(p.all[k].Service))
		}
	}
	switch {
	case p.drain.Force && p.drain.Up:
		return ""
	case len(before) > 0 && p.drain.Up:
		return "once " + entities.Few(before) + " " + is(before) + " stable on " + p.runtime
	case len(before) > 0:
		return "once " + entities.Few(before) + " " + entities.Has(before) + " left " + p.runtime
	case p.drain.Force:
		return ""
	}
	return p.unasked()
}

// comesBefore reports whether service k has to leave, or return, before service n or a service of its dependency cycle.
func (p *plan) comesBefore(k, n int) bool {
	if p.together(k, n) {
		return false
	}
	for m := range p.all {
		first, then := k, m // dependencies return first
		if !p.drain.Up {
			first, then = m, k
		}
		if slices.Contains(p.needs[then], first) && p.together(m, n) {
			return true
		}
	}
	return false
}

// together reports whether two services depend on each other, directly or not. Such services move at the same time.
func (p *plan) together(a, b int) bool { return a == b || p.leads(a, b) && p.leads(b, a) }

// unasked returns what to wait for if services did not answer: they may depend on any other.
func (p *plan) unasked() string {
	var some []string
	for _, s := range p.all {
		if s.Err != "" {
			some = append(some, protocol.ShortID(s.Service))
		}
	}
	if len(some) == 0 {
		return ""
	}
	return "once " + entities.Few(some) + " can be reached"
}

// leads reports whether a service depends on another, directly or not.
func (p *plan) leads(from, to int) bool {
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

// Alone names the channels that would have nothing left without a runtime, or "".
func Alone(runtime string, placed []protocol.Placed) string {
	var alone []string
	for _, s := range placed {
		for _, i := range s.Instances {
			if i.Runtime == runtime && i.There && i.Stays == "" && !remains(s, i) {
				alone = append(alone, protocol.ShortID(s.Service)+" "+i.Channel)
			}
		}
	}
	if len(alone) == 0 {
		return ""
	}
	slices.Sort(alone)
	return entities.Few(alone)
}

// remains reports whether a channel also runs on another runtime that is not drained.
func remains(s protocol.Placed, of protocol.PlacedInstance) bool {
	return slices.ContainsFunc(s.Instances, func(i protocol.PlacedInstance) bool {
		return i.Channel == of.Channel && i.Runtime != of.Runtime && i.There && Told(i.Runtime, s) == nil
	})
}

// Order returns the steps in which services would leave a runtime. The services of a step leave together.
func Order(runtime string, placed []protocol.Placed) (steps [][]string) {
	left := slices.Clone(placed)
	for n := range left {
		left[n].Err = ""
	}
	for range left {
		p, d := newPlan(runtime, entities.Drain{}, left), Next(runtime, entities.Drain{}, left)
		var step []string
		for n, t := range d.Turns {
			if t.Go && p.there(n) {
				step = append(step, t.Service)
			}
		}
		if len(step) == 0 {
			break
		}
		steps = append(steps, step)
		left = slices.DeleteFunc(left, func(s protocol.Placed) bool { return slices.Contains(step, s.Service) })
	}
	return steps
}

func is(of []string) string {
	if len(of) == 1 {
		return "is"
	}
	return "are"
}
