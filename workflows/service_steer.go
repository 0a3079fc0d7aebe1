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
		if i.Steer == nil || s.steering[key] || !s.state.Declared(id) {
			continue
		}
		s.steering[key] = true
		s.steerOne(id, key, *i.Steer)
	}
}

func (s *service) steerOne(id, key entities.InstanceID, asked state.Steer) {
	name, rt := s.state.Runtime(id)
	queue := queueOf(name, rt)
	text := fmt.Sprintf("%s %s in %s", asked.Way, asked.FullVersion, s.state.Shown(id))
	options := lasting(queue, steerTimeout+margin, absence(queue, time.Time{}, s.now()), text)
	options.Priority = s.priority(thenApplies)
	if asked.Way == protocol.Abort {
		options.Priority = s.priority(rollbackFirst)
	}
	options.RetryPolicy = &temporal.RetryPolicy{InitialInterval: takeover, BackoffCoefficient: 1, MaximumAttempts: 3}
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(s.work, options), protocol.ActivitySteer, protocol.SteerRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID, Runtime: name, RuntimeDigest: rt.Digest,
		Instance: s.steeredRef(id), Timeout: steerTimeout, Way: asked.Way, Full: asked.Full, At: asked.At,
	})
	s.await(func(ctx workflow.Context) {
		var answer protocol.SteerAnswer
		switch err := future.Get(ctx, &answer); {
		case untaken(err):
			answer.Err = noWorker(name).Message
		case err != nil:
			answer.Err = "interrupted: " + rootCause(err)
		}
		delete(s.steering, key)
		s.state.Steered(s.state.Named(key), asked, answer.Did, answer.Err, workflow.Now(ctx))
	})
}

// steeredRef names the current target of the instance: its objects are steered.
func (s *service) steeredRef(id entities.InstanceID) protocol.InstanceRef {
	if t := s.state.Instances[id].Delivery.Target; t != nil {
		return s.instanceRef(id, *t)
	}
	return protocol.InstanceRef{ID: s.state.Key(id)}
}
