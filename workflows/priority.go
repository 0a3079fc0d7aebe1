package workflows

import (
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
)

// Priorities of activities in Temporal, for workers with more work than they can do: 1 is first; the default is 3.
const (
	priorityRollback = 1
	priorityApply    = 2 // and other changes
	priorityCheck    = 3
	priorityChanging = 4 // readings of instances that change
	prioritySteady   = 5 // readings of steady instances
)

// priority has one of these keys. On servers that support fairness, applications share each priority fairly.
func (s *service) priority(key int) temporal.Priority {
	return temporal.Priority{PriorityKey: key, FairnessKey: fairnessKey(s.application)}
}

// maxFairnessKeyBytes is in bytes, a limit of the server.
const maxFairnessKeyBytes = 64

func fairnessKey(application string) string {
	if len(application) > maxFairnessKeyBytes {
		return entities.DigestOf(application)[:maxFairnessKeyBytes]
	}
	return application
}

// applyPriority is the priority of an apply: a rollback never waits behind a release.
func (s *service) applyPriority(id entities.InstanceID) temporal.Priority {
	if s.isRollingBack(id) {
		return s.priority(priorityRollback)
	}
	return s.priority(priorityApply)
}

func (s *service) isRollingBack(id entities.InstanceID) bool {
	i := s.state.Instances[id]
	return i != nil && i.RollingBack()
}
