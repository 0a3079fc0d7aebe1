// Package kubernetes is the runtime for sets of Kubernetes objects: server-side apply in waves, health and versions from watched
// objects, and drift by the server's own dry run.
//
// It owns exactly the objects that carry its labels. It takes over objects of others, or removes objects, only if the payload says
// so. It makes no decisions: it reports objects in the common form. It may import entities and runtimes.
package kubernetes

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Runtime is one definition of kind kubernetes, connected at its first use. Safe for concurrent use.
type Runtime struct {
	def     entities.RuntimeDefinition
	cluster *cluster
	// now is the clock of observations, for the duration of a pod's failure.
	now       func() time.Time
	verdicts  verdicts
	recent    recentCache
	nodes     nodes
	rules     healthRules
	unwatched unwatched
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Watcher = (*Runtime)(nil)
	_ runtimes.Planner = (*Runtime)(nil)
	_ runtimes.Remover = (*Runtime)(nil)

	_ runtimes.RemovalPlanner = (*Runtime)(nil)
)

// Connect makes the runtime of a definition. That of a definition with access: read can only be observed and planned.
func Connect(def entities.RuntimeDefinition, clusters *Clusters) (runtimes.Runtime, error) {
	r, err := New(def, clusters)
	if err == nil && def.ReadOnly {
		return &readOnly{r}, nil
	}
	return r, err
}

// New makes the runtime of a definition. Definitions that name one cluster in the same way share its connection and its caches. New
// does not check that the cluster exists: a later call may find it.
func New(def entities.RuntimeDefinition, clusters *Clusters) (*Runtime, error) {
	if def.Kind != entities.RuntimeKubernetes || def.Kubernetes == nil {
		return nil, fmt.Errorf("runtime %s: kind is %q; expected %q with its connection", def.Name, def.Kind, entities.RuntimeKubernetes)
	}
	rules, err := newHealthRules(def)
	if err != nil {
		return nil, err
	}
	return &Runtime{def: def, cluster: clusters.cluster(def), now: time.Now, rules: rules}, nil
}
