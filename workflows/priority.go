package workflows

import (
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
)

// The order in which workers that have too much to do take activities, by priority of Temporal: 1 is first, and what is not
// mentioned has 3.
const (
	rollbackFirst = 1
	thenApplies   = 2 // and what else changes something
	thenChecks    = 3
	thenFollowing = 4 // readings of what moves
	thenWatching  = 5 // readings of what is steady
)

// priority is one of these, beside which applications are treated alike where the server knows fairness.
func (s *service) priority(key int) temporal.Priority {
	return temporal.Priority{PriorityKey: key, FairnessKey: fairnessKey(s.application)}
}

// longestFairness is in bytes, as the server has it.
const longestFairness = 64

func fairnessKey(application string) string {
	if len(application) > longestFairness {
		return entities.DigestOf(application)[:longestFairness]
	}
	return application
}

// applyPriority is that of an apply: what takes a version back is never behind what brings one.
func (s *service) applyPriority(id entities.InstanceID) temporal.Priority {
	if i := s.state.Instances[id]; i != nil && i.RollingBack() {
		return s.priority(rollbackFirst)
	}
	return s.priority(thenApplies)
}
