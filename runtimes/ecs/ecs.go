// Package ecs is the runtime made of Amazon ECS services: a task definition registered once for what it says, a service
// that runs it, and what ECS itself says of its deployments.
//
// It owns exactly the services and task definitions that carry its tags, changes the declared fields and no others, and
// lets ECS roll, judge and roll back: what its circuit breaker took back is reported as a failure of the version. It
// decides nothing. It may import entities and runtimes.
package ecs

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Runtime is one definition of kind ecs, connected when first used. Safe for concurrent use.
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

// New makes the runtime of a definition. Definitions that name one cluster in the same way share its reader, and those of
// one account and region what its API allows. It asks nothing yet.
func New(def entities.RuntimeDefinition, accounts *Accounts) (*Runtime, error) {
	if def.Kind != entities.RuntimeECS || def.ECS == nil || def.ECS.Cluster == "" {
		return nil, fmt.Errorf("runtime %s: kind is %q; expected %q with a cluster", def.Name, def.Kind, entities.RuntimeECS)
	}
	return &Runtime{def: def, cluster: accounts.cluster(*def.ECS)}, nil
}

// Watch implements runtimes.Watcher: the cluster is read again and again for all services that somebody asks about.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) { return r.cluster.watch(hint) }

// timing is how long things are waited for, in real time.
type timing struct {
	watch    time.Duration // between two readings of a service by the cluster's reader, at least
	each     time.Duration // of that, for each service on the cluster: a thousand are read in a thousand times this
	fresh    time.Duration // how old what was read may be for who observes
	gather   time.Duration // how long a reading waits for others to go with it
	settle   time.Duration // how long reads may lag behind a write
	wait     time.Duration // between two looks at what drains
	tasks    time.Duration // between two looks at the tasks of a service that does not get well
	log      time.Duration // between two looks at a log that is not there yet
	call     time.Duration // that one call may take
	listed   time.Duration // how old a list of all services may be
	patience time.Duration // how long an apply waits for what ECS allows before it says so
	interest time.Duration // how long a service is read that nobody asks about
}

func defaultTiming() timing {
	return timing{
		watch: 5 * time.Second, each: 25 * time.Millisecond, fresh: 3 * time.Second, gather: 10 * time.Millisecond,
		settle: 2 * time.Minute, wait: 5 * time.Second, tasks: 15 * time.Second, log: time.Second, call: 20 * time.Second,
		patience: time.Minute, listed: 10 * time.Minute, interest: 15 * time.Minute,
	}
}
