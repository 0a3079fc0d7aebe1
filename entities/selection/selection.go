// Package selection computes the instances of a channel that a release updates next (D23, D24). It is a function of the instances, which
// of them are updated and since when they are stable, the policy, and the time. It keeps no state between calls, so an added or removed
// instance, or a changed policy during a rollout, needs no migration.
package selection

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Instance is one instance of the channel.
type Instance struct {
	// Updated: the release is its target. Apart: the release does not concern it; it only counts as available or unavailable.
	Updated, Apart bool
	// Held: it cannot be selected now, for example because it is paused.
	Held bool
	// Stable: it runs its target and is healthy; if it is updated, since Since.
	Stable bool
	Since  time.Time
}

// Wait is the reason for an empty selection.
type Wait string

// The reasons to wait.
const (
	None   Wait = ""
	Stable Wait = "stable" // the instances of the previous steps are not stable yet
	Pause  Wait = "pause"  // they were not stable for long enough
	Room   Wait = "room"   // no further instance may be unavailable
	Held   Wait = "held"   // all remaining instances are held
	Choice Wait = "choice" // the command selected none
)

// Selection is the set of next instances. Empty means none now, never all.
type Selection struct {
	Next []int     // indexes of instances, in their order
	Wait Wait      // why Next is empty; None also if all are updated
	At   time.Time // when a pause ends
	// Step is the current step of Steps, counted from 1. Updated counts the updated instances of the Of that the release concerns. More
	// is how many are left in the step.
	Step, Steps          int
	Updated, Of, More    int
	Unavailable, Allowed int // now, and the maximum; 0: no bound
}

// stage is a step with the pauses after it.
type stage struct {
	until int // number of updated instances at the end of the step
	pause time.Duration
}

// Select returns the next instances. Without a policy it selects all at once.
func Select(all []Instance, policy *entities.Rollout, now time.Time) Selection {
	if policy == nil {
		policy = &entities.Rollout{}
	}
	s, since := count(all, policy)
	stages := stagesOf(policy, s.Of)
	s.Steps = len(stages)
	k := slices.IndexFunc(stages, func(st stage) bool { return st.until > s.Updated })
	if k < 0 {
		s.Step = s.Steps
		return s
	}
	s.Step, s.More = k+1, stages[k].until-s.Updated
	if k > 0 {
		if s.Wait, s.At = stages[:k].ripe(since, now); s.Wait != None {
			return s
		}
	}
	s.choose(all, Order(len(all)))
	return s
}

// Order returns the default order of n instances.
func Order(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// Choose takes the instances that a command selected, by index and in that order, within the bound of the policy. It never selects an
// instance that is not free.
func Choose(all []Instance, policy *entities.Rollout, chosen []int) Selection {
	s, _ := count(all, policy)
	s.Step, s.Steps = 1, 1
	if s.More = min(len(chosen), s.Of-s.Updated); s.Of > s.Updated {
		s.choose(all, chosen)
		if s.Wait == Held && slices.ContainsFunc(all, Instance.Free) {
			s.Wait = Choice
		}
	}
	return s
}

// Free reports whether an instance can be selected.
func (i Instance) Free() bool { return !i.Updated && !i.Apart && !i.Held }

// count returns the progress of the release, and since when each stable updated instance is stable.
func count(all []Instance, policy *entities.Rollout) (s Selection, since []time.Time) {
	for _, i := range all {
		if !i.Stable {
			s.Unavailable++
		}
		if i.Apart {
			continue
		}
		s.Of++
		if i.Updated {
			s.Updated++
			if i.Stable {
				since = append(since, i.Since)
			}
		}
	}
	if policy.MaxUnavailable != nil {
		s.Allowed = policy.MaxUnavailable.Of(len(all), false)
	}
	return s, since
}

type steps []stage

// ripe returns the reason to wait after these steps, and until when. As many instances as the steps updated must have been stable for the
// pauses of the last step.
func (done steps) ripe(since []time.Time, now time.Time) (Wait, time.Time) {
	last := done[len(done)-1]
	if len(since) < last.until {
		return Stable, time.Time{}
	}
	slices.SortFunc(since, time.Time.Compare)
	var pause time.Duration
	for n := len(done) - 1; n >= 0 && done[n].until == last.until; n-- {
		pause += done[n].pause // consecutive steps can round to the same number
	}
	if until := since[last.until-1].Add(pause); now.Before(until) {
		return Pause, until
	}
	return None, time.Time{}
}

// stagesOf computes the steps for a number of instances. The remaining instances form a last step.
func stagesOf(policy *entities.Rollout, of int) steps {
	var out steps
	for _, step := range policy.Steps {
		switch {
		case step.Instances != nil:
			until := step.Instances.Of(of, true)
			if n := len(out); n > 0 {
				until = max(until, out[n-1].until)
			}
			out = append(out, stage{until: until})
		case len(out) > 0:
			out[len(out)-1].pause += step.Pause
		}
	}
	if n := len(out); n == 0 || out[n-1].until < of {
		out = append(out, stage{until: of})
	}
	return out
}

// moving counts the updated instances that are not stable yet.
func (s *Selection) moving(all []Instance) (n int) {
	for _, i := range all {
		if i.Updated && !i.Stable {
			n++
		}
	}
	return n
}

// choose takes the first free instances of this order, up to the number that the step lacks. An instance that is unavailable already
// costs no availability, so broken instances never block their fix. Still, no more instances move at once than may be unavailable.
func (s *Selection) choose(all []Instance, order []int) {
	room, moves := len(all), len(all)
	if s.Allowed > 0 {
		room = max(0, s.Allowed-s.Unavailable)
		moves = max(0, s.Allowed-s.moving(all))
	}
	s.Wait = Held
	for _, n := range order {
		switch i := all[n]; {
		case len(s.Next) == s.More || !i.Free():
		case moves == 0 || i.Stable && room == 0:
			s.Wait = Room
		case !i.Stable:
			s.Next, moves = append(s.Next, n), moves-1
		default:
			s.Next, room, moves = append(s.Next, n), room-1, moves-1
		}
	}
	if len(s.Next) > 0 {
		s.Wait = None
	}
}
