package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// steerTimeout is enough for a few requests to a cluster.
const steerTimeout = time.Minute

// steer carries out the commands of people to rollouts (H3), one at a time per instance. If this run ends before it is done, the next run
// starts it again; steps that were done already are detected.
func (s *service) steer() {
	for _, id := range entities.SortedIDs(s.state.Instances) {
		i := s.state.Instances[id]
		key := s.state.Key(id)
		if i.Steer == nil || s.steering[key] || !s.state.Declared(id) || i.Steer.Action == state.SteerReturn && i.Delivery.Apply.Running {
			continue
		}
		s.steering[key] = true
		s.steerOne(id, key, *i.Steer)
	}
}

func (s *service) steerOne(id, key entities.InstanceID, command state.Steer) {
	name, rt := s.state.Runtime(id)
	queue := taskQueueOf(name, rt)
	text := fmt.Sprintf("%s %s in %s", command.Action, command.FullVersion, s.state.DisplayName(id))
	options := heartbeatOptions(queue, steerTimeout+margin, pickupTimeout(queue, time.Time{}, s.now()), text)
	options.Priority = s.priority(priorityApply)
	if command.Action == protocol.Abort {
		options.Priority = s.priority(priorityRollback)
	}
	options.RetryPolicy = &temporal.RetryPolicy{InitialInterval: takeoverDelay, BackoffCoefficient: 1, MaximumAttempts: 3}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(s.workCtx, options), protocol.ActivitySteer, protocol.SteerRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID, Runtime: name, RuntimeDigest: rt.Digest,
		Instance: s.steeredRef(id), Timeout: steerTimeout, Action: command.Action, Full: command.Full, At: command.At,
	})
	s.trackOperation(func(ctx workflow.Context) {
		var answer protocol.SteerAnswer
		switch err := future.Get(ctx, &answer); {
		case neverStarted(err):
			answer.Err = noWorkerError(name).Message
		case err != nil:
			answer.Err = "interrupted: " + rootCause(err)
		}
		delete(s.steering, key)
		s.state.RecordSteer(s.state.IDByKey(key), command, answer.Actions, answer.Err, workflow.Now(ctx))
	})
}

// steeredRef names the current target of the instance: its objects are steered.
func (s *service) steeredRef(id entities.InstanceID) protocol.InstanceRef {
	if t := s.state.Instances[id].Delivery.Target; t != nil {
		return s.instanceRef(id, *t)
	}
	return protocol.InstanceRef{ID: s.state.Key(id)}
}
