// Package selection says which instances of a channel a release goes to next (D23, D24): a function of the instances, which
// of them are updated and since when they are stable there, the policy, and the time. It keeps nothing from one call to the
// next, so that an instance more or less, or another policy midway, needs no migration.
package selection

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Instance is one instance of the channel.
type Instance struct {
	// Updated: the release is its target. Apart: the release does not touch it, so that it only counts for what is unavailable.
	Updated, Apart bool
	// Held: it cannot be selected now, as when it is paused.
	Held bool
	// Stable: it runs what is its target, and is healthy there; Since when, where it is updated.
	Stable bool
	Since  time.Time
}

// Wait is what keeps anything from being selected.
type Wait string

// The waits.
const (
	None   Wait = ""
	Stable Wait = "stable" // the instances of the steps before are not stable yet
	Pause  Wait = "pause"  // they were not stable for long enough
	Room   Wait = "room"   // no more may be unavailable
	Held   Wait = "held"   // all that are left are held
	Choice Wait = "choice" // a command has chosen none
)

// Selection is what is next. Empty means nothing now, never everything.
type Selection struct {
	Next []int     // indexes of instances, in their order
	Wait Wait      // why it is empty; None, too, where all are updated
	At   time.Time // when a pause ends
	// Step is the one that is under way, of so many, counted from 1. Updated are, of so many that the release concerns, and
	// More are to come in the step.
	Step, Steps          int
	Updated, Of, More    int
	Unavailable, Allowed int // now, and at most; Allowed is 0 where nothing bounds it
}

// stage is a step with the pauses behind it.
type stage struct {
	until int // so many are updated once it is done
	pause time.Duration
}

// Select says which instances are next. No policy selects all at once.
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

// Order is that in which n instances are listed.
func Order(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// Choose takes what a command has chosen, by indexes, the first one first, as far as the policy's bound lets it. Whatever it says,
// nothing is next that cannot be.
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

// Free tells whether an instance can be selected.
func (i Instance) Free() bool { return !i.Updated && !i.Apart && !i.Held }

// count says how far the release is, and since when those of the updated instances are stable that are.
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

// ripe says what is waited for after these steps, and until when: as many as they updated must have been stable, for as long
// as they say.
func (done steps) ripe(since []time.Time, now time.Time) (Wait, time.Time) {
	last := done[len(done)-1]
	if len(since) < last.until {
		return Stable, time.Time{}
	}
	slices.SortFunc(since, time.Time.Compare)
	var pause time.Duration
	for n := len(done) - 1; n >= 0 && done[n].until == last.until; n-- {
		pause += done[n].pause // steps that round to the same number follow each other
	}
	if until := since[last.until-1].Add(pause); now.Before(until) {
		return Pause, until
	}
	return None, time.Time{}
}

// stagesOf are the steps for so many instances. What they leave is the last step.
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

// moving counts the updated instances that are not there yet.
func (s *Selection) moving(all []Instance) (n int) {
	for _, i := range all {
		if i.Updated && !i.Stable {
			n++
		}
	}
	return n
}

// choose takes the first instances of this order that may be taken, as many as the step is short of. One that is unavailable already costs
// no availability: so what is broken never keeps out what mends it. No more move at once than may be unavailable, all the same.
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
