package workflows

import (
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
)

// Priorities of activities in Temporal, for workers with more work than they can do: 1 is first; the default is 3.
const (
	rollbackFirst = 1
	thenApplies   = 2 // and other changes
	thenChecks    = 3
	thenFollowing = 4 // readings of instances that change
	thenWatching  = 5 // readings of steady instances
)

// priority has one of these keys. On servers that support fairness, applications share each priority fairly.
func (s *service) priority(key int) temporal.Priority {
	return temporal.Priority{PriorityKey: key, FairnessKey: fairnessKey(s.application)}
}

// longestFairness is in bytes, a limit of the server.
const longestFairness = 64

func fairnessKey(application string) string {
	if len(application) > longestFairness {
		return entities.DigestOf(application)[:longestFairness]
	}
	return application
}

// applyPriority is the priority of an apply: a rollback never waits behind a release.
func (s *service) applyPriority(id entities.InstanceID) temporal.Priority {
	if i := s.state.Instances[id]; i != nil && i.RollingBack() {
		return s.priority(rollbackFirst)
	}
	return s.priority(thenApplies)
}
