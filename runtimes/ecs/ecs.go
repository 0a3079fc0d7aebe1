// Package ecs is the runtime for Amazon ECS services: a task definition that is registered once for its content, a service that runs
// it, and the state of its deployments in ECS.
//
// It owns exactly the services and task definitions with its tags, and changes only the declared fields. ECS does the rollout, the
// health check and the rollback: a rollback by its circuit breaker is reported as a failure of the version. The package makes no
// decisions. It may import entities and runtimes.
package ecs

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Runtime is one definition of kind ecs, connected at its first use. Safe for concurrent use.
type Runtime struct {
	def     entities.RuntimeDefinition
	cluster *cluster
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Watcher = (*Runtime)(nil)
	_ runtimes.Planner = (*Runtime)(nil)
	_ runtimes.Remover = (*Runtime)(nil)
)

// New makes the runtime of a definition. Definitions that name one cluster in the same way share its reader, and those of one
// account and region share its rate limit. It sends no request yet.
func New(def entities.RuntimeDefinition, accounts *Accounts) (*Runtime, error) {
	if def.Kind != entities.RuntimeECS || def.ECS == nil || def.ECS.Cluster == "" {
		return nil, fmt.Errorf("runtime %s: kind is %q; expected %q with a cluster", def.Name, def.Kind, entities.RuntimeECS)
	}
	return &Runtime{def: def, cluster: accounts.cluster(*def.ECS)}, nil
}

// Watch implements runtimes.Watcher: the reader of the cluster polls all services that a caller is interested in.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) { return r.cluster.watch(hint) }

// timing has the intervals and timeouts, in real time.
type timing struct {
	watch    time.Duration // shortest interval between two readings of a service by the cluster's reader
	each     time.Duration // the part of it per service on the cluster: a thousand services are read in a thousand times this
	fresh    time.Duration // maximum age of a reading for an observation
	gather   time.Duration // how long a reading waits for others to join it
	settle   time.Duration // how long reads may lag behind a write
	wait     time.Duration // poll interval for a draining service
	tasks    time.Duration // interval for the tasks of an unhealthy service
	log      time.Duration // poll interval for a log that does not exist yet
	call     time.Duration // timeout of one call
	listed   time.Duration // maximum age of a list of all services
	patience time.Duration // how long an apply waits for the rate limit of ECS before it returns an error
	interest time.Duration // how long a service is polled after the last request for it
}

func defaultTiming() timing {
	return timing{
		watch: 5 * time.Second, each: 25 * time.Millisecond, fresh: 3 * time.Second, gather: 10 * time.Millisecond,
		settle: 2 * time.Minute, wait: 5 * time.Second, tasks: 15 * time.Second, log: time.Second, call: 20 * time.Second,
		patience: time.Minute, listed: 10 * time.Minute, interest: 15 * time.Minute,
	}
}
