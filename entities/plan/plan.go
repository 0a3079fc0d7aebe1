// Package plan computes the order in which the services of an application are deployed and integrated: a directed acyclic graph of nodes,
// derived from the declarations of the services, and which nodes may begin now (E1–E14). It is pure: the same input gives the same plan.
// The caller stores the state of the nodes.
package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Kind is the action of a node.
type Kind string

// The kinds, in the order in which plans list them.
const (
	Deploy    Kind = "DEPLOY"    // deploys a service to a target
	Callback  Kind = "CALLBACK"  // captures the results of a first setup, and renders again what depends on them
	Sync      Kind = "SYNC"      // updates an aggregator with the fragments collected for it, and reloads it
	Redeploy  Kind = "REDEPLOY"  // redeploys an aggregator that reads fragments only at a deployment
	Reconcile Kind = "RECONCILE" // integrates a service with others
	DNS       Kind = "DNS"       // points the names of services to their targets
)

var kinds = []Kind{Deploy, Callback, Sync, Redeploy, Reconcile, DNS}

// Service is the input of a plan about a service.
type Service struct {
	Name string `json:"name"`
	// Key is the name by which workflows and the store know it, if that differs.
	Key     string   `json:"key,omitempty"`
	Targets []string `json:"targets"` // where it is deployed
	// Requires names services whose DEPLOY comes before its own.
	Requires []string `json:"requires,omitempty"`
	// SetupCallback: its first setup produces values that others need.
	SetupCallback bool `json:"setupCallback,omitempty"`
	// Captured: its payload contains captured values, so its DEPLOY waits for them. ReconcilesCaptured: its reconcilers contain them.
	Captured           bool `json:"captured,omitempty"`
	ReconcilesCaptured bool `json:"reconcilesCaptured,omitempty"`
	// Aggregator is how the service receives collected fragments, Sync or Redeploy; "" if it collects none. Feeds names the aggregators that
	// collect a fragment of this service.
	Aggregator Kind     `json:"aggregator,omitempty"`
	Feeds      []string `json:"feeds,omitempty"`
	// Reconciles: it has reconcilers. They run after those of the services in ReconcilesAfter, which have reconcilers too.
	Reconciles      bool     `json:"reconciles,omitempty"`
	ReconcilesAfter []string `json:"reconcilesAfter,omitempty"`
	// Integrations names services that are integrated with it, in either direction. If one of them changes, this service is planned too.
	Integrations []string `json:"integrations,omitempty"`
	// DNS: it has names, listed in Names.
	DNS   bool     `json:"dns,omitempty"`
	Names []string `json:"names,omitempty"`
}

// Scope limits a plan.
type Scope struct {
	// All: everything. Otherwise the nodes that the changed services require (E7).
	All     bool
	Changed []string
	// Eager: RECONCILE does not wait for aggregators (E12).
	Eager bool
}

// Node is one step of work. Needs and After are indexes of nodes: those that must succeed before, and those that must only end before.
type Node struct {
	Kind    Kind   `json:"kind"`
	Service string `json:"service,omitempty"` // empty for CALLBACK and DNS
	Target  string `json:"target,omitempty"`
	Needs   []int  `json:"needs,omitempty"`
	After   []int  `json:"after,omitempty"`
}

// String returns the name of the node: "DEPLOY sonarr@media", "DNS".
func (n *Node) String() string {
	if n.Service == "" {
		return string(n.Kind)
	}
	return string(n.Kind) + " " + n.Service + "@" + n.Target
}

// ParseNode parses a name that String returned.
func ParseNode(name string) Node {
	kind, rest, _ := strings.Cut(name, " ")
	service, target, _ := strings.Cut(rest, "@")
	return Node{Kind: Kind(kind), Service: service, Target: target}
}

// Collects reports whether a node passes collected fragments to an aggregator.
func (n *Node) Collects() bool { return n.Kind == Sync || n.Kind == Redeploy }

// Plan is a graph without cycles. Its nodes are sorted by kind, service and target.
type Plan struct {
	Nodes []Node `json:"nodes"`
	// Serial names the targets that run one node at a time.
	Serial []string `json:"serial,omitempty"`

	ranked []int // see byRank
}

// Bytes returns the plan as JSON: the same for the same input (E13).
func (p *Plan) Bytes() ([]byte, error) { return json.Marshal(p) }

// Downstream lists the nodes that some nodes block if they fail, without those nodes.
func (p *Plan) Downstream(from ...int) (blocked []int) {
	seen := make([]bool, len(p.Nodes))
	for _, n := range from {
		seen[n] = true
	}
	blocked = transitiveDependents(p.neededBy(), seen, from)
	slices.Sort(blocked)
	return blocked
}

// transitiveDependents lists the nodes that need some nodes, directly or not, and are not in seen.
func transitiveDependents(neededBy [][]int, seen []bool, from []int) (dependents []int) {
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		for _, n := range neededBy[queue[0]] {
			if !seen[n] {
				seen[n] = true
				dependents, queue = append(dependents, n), append(queue, n)
			}
		}
	}
	return dependents
}

// IfFails returns the final states if the DEPLOYs of a service fail and everything else that can run succeeds. ok is false if it has none.
func (p *Plan) IfFails(service string) (progress []Progress, ok bool) {
	w := p.Walker(nil)
	for n := range p.Nodes {
		if p.Nodes[n].Kind == Deploy && p.Nodes[n].Service == service {
			w.Set(n, Failed)
			ok = true
		}
	}
	w.block()
	return w.progress, ok
}

// neededBy lists for each node the nodes that need it.
func (p *Plan) neededBy() [][]int {
	neededBy := make([][]int, len(p.Nodes))
	for n := range p.Nodes {
		for _, m := range p.Nodes[n].Needs {
			neededBy[m] = append(neededBy[m], n)
		}
	}
	return neededBy
}

// UnknownError says that a service names another one that does not exist (E6).
type UnknownError struct {
	Service, Field, Name string // Service is "" if the changes name it
}

func (e *UnknownError) Error() string {
	if e.Service == "" {
		return fmt.Sprintf("the changes name an unknown service %q", e.Name)
	}
	return fmt.Sprintf("service %s: %s names an unknown service %q", e.Service, e.Field, e.Name)
}

// AggregatorError says that a service feeds a service that collects nothing.
type AggregatorError struct{ Service, Name string }

func (e *AggregatorError) Error() string {
	return fmt.Sprintf("service %s: feeds names %s, which is not an aggregator", e.Service, e.Name)
}

// CycleError says that nodes wait for each other (E6). Path begins and ends with the same node.
type CycleError struct{ Path []Node }

func (e *CycleError) Error() string {
	if len(e.Path) == 2 {
		return e.Path[0].String() + " requires itself"
	}
	names := make([]string, len(e.Path))
	for n := range e.Path {
		names[n] = e.Path[n].String()
	}
	return "dependency cycle: " + strings.Join(names, " → ")
}
