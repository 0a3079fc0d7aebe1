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

// Connect makes the runtime of a definition. That of a definition with access: read can only be observed and planned.
func Connect(def entities.RuntimeDefinition, accounts *Accounts) (runtimes.Runtime, error) {
	r, err := New(def, accounts)
	if err == nil && def.ReadOnly {
		return &readOnly{r}, nil
	}
	return r, err
}

// New makes the runtime of a definition. Definitions that name one cluster in the same way share its reader, and those of one
// account and region share its rate limit. It sends no request yet.
func New(def entities.RuntimeDefinition, accounts *Accounts) (*Runtime, error) {
	if def.Kind != entities.RuntimeECS || def.ECS == nil || def.ECS.Cluster == "" {
		return nil, fmt.Errorf("runtime %s: kind is %q; expected %q with a cluster", def.Name, def.Kind, entities.RuntimeECS)
	}
	return &Runtime{def: def, cluster: accounts.cluster(def)}, nil
}

// Watch implements runtimes.Watcher: the reader of the cluster polls all services that a caller is interested in.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) { return r.cluster.watch(hint) }

// timing has the intervals and timeouts, in real time.
type timing struct {
	pollInterval      time.Duration // shortest interval between two readings of a service by the cluster's reader
	perService        time.Duration // the part of it per service on the cluster: a thousand services are read in a thousand times this
	maxAge            time.Duration // maximum age of a reading for an observation
	batchDelay        time.Duration // how long a reading waits for others to join it
	readLag           time.Duration // how long reads may lag behind a write
	drainPollInterval time.Duration // poll interval for a draining service
	taskInterval      time.Duration // interval for the tasks of an unhealthy service
	logPollInterval   time.Duration // poll interval for a log that does not exist yet
	callTimeout       time.Duration // timeout of one call
	listMaxAge        time.Duration // maximum age of a list of all services
	throttleTimeout   time.Duration // how long an apply waits for the rate limit of ECS before it returns an error
	idleTimeout       time.Duration // how long a service is polled after the last request for it
}

func defaultTiming() timing {
	return timing{
		pollInterval: 5 * time.Second, perService: 25 * time.Millisecond, maxAge: 3 * time.Second, batchDelay: 10 * time.Millisecond,
		readLag: 2 * time.Minute, drainPollInterval: 5 * time.Second, taskInterval: 15 * time.Second, logPollInterval: time.Second, callTimeout: 20 * time.Second,
		throttleTimeout: time.Minute, listMaxAge: 10 * time.Minute, idleTimeout: 15 * time.Minute,
	}
}
