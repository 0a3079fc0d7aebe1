// Package selection computes the instances of a channel that a release updates next (D23, D24). It is a function of the instances, which
// of them are updated and since when they are stable, the policy, and the time. It keeps no state between calls, so an added or removed
// instance, or a changed policy during a rollout, needs no migration.
package selection

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// InstanceState is one instance of the channel.
type InstanceState struct {
	// Updated: the release is its target. Unaffected: the release does not concern it; it only counts as available or unavailable.
	Updated, Unaffected bool
	// Held: it cannot be selected now, for example because it is paused.
	Held bool
	// Stable: it runs its target and is healthy; if it is updated, since Since.
	Stable bool
	Since  time.Time
}

// WaitReason is the reason for an empty selection.
type WaitReason string

// The reasons to wait.
const (
	None         WaitReason = ""
	Stable       WaitReason = "stable" // the instances of the previous steps are not stable yet
	Pause        WaitReason = "pause"  // they were not stable for long enough
	LimitReached WaitReason = "room"   // no further instance may be unavailable
	Held         WaitReason = "held"   // all remaining instances are held
	NoneSelected WaitReason = "choice" // the command selected none
)

// Selection is the set of next instances. Empty means none now, never all.
type Selection struct {
	Next []int      // indexes of instances, in their order
	Wait WaitReason // why Next is empty; None also if all are updated
	At   time.Time  // when a pause ends
	// Step is the current step of Steps, counted from 1. Updated counts the updated instances of the Of that the release concerns. More
	// is how many are left in the step.
	Step, Steps          int
	Updated, Total, More int
	Unavailable, Allowed int // now, and the maximum; 0: no bound
}

// stage is a step with the pauses after it.
type stage struct {
	until int // number of updated instances at the end of the step
	pause time.Duration
}

// Select returns the next instances. Without a policy it selects all at once.
func Select(all []InstanceState, policy *entities.Rollout, now time.Time) Selection {
	if policy == nil {
		policy = &entities.Rollout{}
	}
	s, since := count(all, policy)
	stages := stagesOf(policy, s.Total)
	s.Steps = len(stages)
	k := slices.IndexFunc(stages, func(st stage) bool { return st.until > s.Updated })
	if k < 0 {
		s.Step = s.Steps
		return s
	}
	s.Step, s.More = k+1, stages[k].until-s.Updated
	if k > 0 {
		if s.Wait, s.At = stages[:k].waitAfter(since, now); s.Wait != None {
			return s
		}
	}
	s.take(all, Order(len(all)))
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

// SelectByCommand takes the instances that a command selected, by index and in that order, within the bound of the policy. It never selects
// an instance that is not free.
func SelectByCommand(all []InstanceState, policy *entities.Rollout, indexes []int) Selection {
	s, _ := count(all, policy)
	s.Step, s.Steps = 1, 1
	if s.More = min(len(indexes), s.Total-s.Updated); s.Total > s.Updated {
		s.take(all, indexes)
		if s.Wait == Held && slices.ContainsFunc(all, InstanceState.Free) {
			s.Wait = NoneSelected
		}
	}
	return s
}

// Free reports whether an instance can be selected.
func (i InstanceState) Free() bool { return !i.Updated && !i.Unaffected && !i.Held }

// count returns the progress of the release, and since when each stable updated instance is stable.
func count(all []InstanceState, policy *entities.Rollout) (s Selection, since []time.Time) {
	for _, i := range all {
		if !i.Stable {
			s.Unavailable++
		}
		if i.Unaffected {
			continue
		}
		s.Total++
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

// waitAfter returns the reason to wait after these steps, and until when. As many instances as the steps updated must have been stable for
// the pauses of the last step.
func (done steps) waitAfter(since []time.Time, now time.Time) (WaitReason, time.Time) {
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
func stagesOf(policy *entities.Rollout, total int) steps {
	var out steps
	for _, step := range policy.Steps {
		switch {
		case step.Instances != nil:
			until := step.Instances.Of(total, true)
			if n := len(out); n > 0 {
				until = max(until, out[n-1].until)
			}
			out = append(out, stage{until: until})
		case len(out) > 0:
			out[len(out)-1].pause += step.Pause
		}
	}
	if n := len(out); n == 0 || out[n-1].until < total {
		out = append(out, stage{until: total})
	}
	return out
}

// moving counts the updated instances that are not stable yet.
func (s *Selection) moving(all []InstanceState) (n int) {
	for _, i := range all {
		if i.Updated && !i.Stable {
			n++
		}
	}
	return n
}

// take takes the first free instances of this order, up to the number that the step lacks. An instance that is unavailable already
// costs no availability, so broken instances never block their fix. Still, no more instances move at once than may be unavailable.
func (s *Selection) take(all []InstanceState, order []int) {
	available, movable := len(all), len(all)
	if s.Allowed > 0 {
		available = max(0, s.Allowed-s.Unavailable)
		movable = max(0, s.Allowed-s.moving(all))
	}
	s.Wait = Held
	for _, n := range order {
		switch i := all[n]; {
		case len(s.Next) == s.More || !i.Free():
		case movable == 0 || i.Stable && available == 0:
			s.Wait = LimitReached
		case !i.Stable:
			s.Next, movable = append(s.Next, n), movable-1
		default:
			s.Next, available, movable = append(s.Next, n), available-1, movable-1
		}
	}
	if len(s.Next) > 0 {
		s.Wait = None
	}
}
