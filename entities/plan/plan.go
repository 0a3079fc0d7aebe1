// Package plan says in which order the services of an application are deployed and fitted together: a directed acyclic graph of
// pieces of work, derived from what the services say of each other, and which of them may begin now (E1–E14). It is pure: the same
// input gives the same plan, and what became of its nodes is the caller's to remember.
package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Kind is what a node does.
type Kind string

// The kinds, in the order in which plans list them.
const (
	Deploy    Kind = "DEPLOY"    // brings a service to a target
	Callback  Kind = "CALLBACK"  // captures what setting up produced, and renders again what depends on that
	Sync      Kind = "SYNC"      // gives an aggregator what was collected for it, and has it read that
	Redeploy  Kind = "REDEPLOY"  // deploys an aggregator that reads it only so
	Reconcile Kind = "RECONCILE" // fits a service into the others
	DNS       Kind = "DNS"       // makes the names of services lead to them
)

var kinds = []Kind{Deploy, Callback, Sync, Redeploy, Reconcile, DNS}

// Service is what a plan knows of a service.
type Service struct {
	Name string `json:"name"`
	// Key is what workflows and the store know it by, where that is another name.
	Key     string   `json:"key,omitempty"`
	Targets []string `json:"targets"` // where it is deployed
	// Requires names services whose DEPLOY comes before its own.
	Requires []string `json:"requires,omitempty"`
	// SetupCallback: setting it up for the first time produces what others need.
	SetupCallback bool `json:"setupCallback,omitempty"`
	// Captured: its payload has what is captured, so that its DEPLOY waits for that. ReconcilesCaptured: its reconcilers have.
	Captured           bool `json:"captured,omitempty"`
	ReconcilesCaptured bool `json:"reconcilesCaptured,omitempty"`
	// Aggregator is how it takes what is collected for it, Sync or Redeploy; "" where nothing is. Feeds names the aggregators for
	// which something of this service is collected.
	Aggregator Kind     `json:"aggregator,omitempty"`
	Feeds      []string `json:"feeds,omitempty"`
	// Reconciles: it has reconcilers. They come after those of the services in ReconcilesAfter, which have some.
	Reconciles      bool     `json:"reconciles,omitempty"`
	ReconcilesAfter []string `json:"reconcilesAfter,omitempty"`
	// Integrations names services that it is fitted into, or that are fitted into it: when one of them changes, it is looked at too.
	Integrations []string `json:"integrations,omitempty"`
	// DNS: it has names, which are Names.
	DNS   bool     `json:"dns,omitempty"`
	Names []string `json:"names,omitempty"`
}

// Scope is how much is planned.
type Scope struct {
	// All: everything. Otherwise what Changed, the names of services, makes necessary (E7).
	All     bool
	Changed []string
	// Eager: RECONCILE does not wait for aggregators (E12).
	Eager bool
}

// Node is one piece of work. Needs and After are indexes of nodes: those that must have succeeded before, and those that must
// have ended.
type Node struct {
	Kind    Kind   `json:"kind"`
	Service string `json:"service,omitempty"` // none: CALLBACK and DNS
	Target  string `json:"target,omitempty"`
	Needs   []int  `json:"needs,omitempty"`
	After   []int  `json:"after,omitempty"`
}

// String names the node: "DEPLOY sonarr@media", "DNS".
func (n *Node) String() string {
	if n.Service == "" {
		return string(n.Kind)
	}
	return string(n.Kind) + " " + n.Service + "@" + n.Target
}

// Named is the node of a name that String gives.
func Named(name string) Node {
	kind, of, _ := strings.Cut(name, " ")
	service, target, _ := strings.Cut(of, "@")
	return Node{Kind: Kind(kind), Service: service, Target: target}
}

// Collects tells whether a node gives an aggregator what was collected for it.
func (n *Node) Collects() bool { return n.Kind == Sync || n.Kind == Redeploy }

// Plan is a graph without cycles. Its nodes are ordered by kind, service and target.
type Plan struct {
	Nodes []Node `json:"nodes"`
	// Serial are the targets on which one node runs at a time, by name.
	Serial []string `json:"serial,omitempty"`

	turn []int // see inTurn
}

// Bytes is the plan as JSON: the same for the same input (E13).
func (p *Plan) Bytes() ([]byte, error) { return json.Marshal(p) }

// Downstream lists what some nodes block when they fail, without those themselves.
func (p *Plan) Downstream(from ...int) (blocked []int) {
	seen := make([]bool, len(p.Nodes))
	for _, n := range from {
		seen[n] = true
	}
	blocked = behindOf(p.needed(), seen, from)
	slices.Sort(blocked)
	return blocked
}

// behindOf lists what needs some nodes, directly or not, and was not seen before.
func behindOf(needed [][]int, seen []bool, from []int) (behind []int) {
	for queue := slices.Clone(from); len(queue) > 0; queue = queue[1:] {
		for _, n := range needed[queue[0]] {
			if !seen[n] {
				seen[n] = true
				behind, queue = append(behind, n), append(queue, n)
			}
		}
	}
	return behind
}

// IfFails is what becomes of the plan when the DEPLOYs of a service fail, and all else goes well that can; ok: there is one.
func (p *Plan) IfFails(service string) (so []Progress, ok bool) {
	w := p.Walker(nil)
	for n := range p.Nodes {
		if p.Nodes[n].Kind == Deploy && p.Nodes[n].Service == service {
			w.Set(n, Failed)
			ok = true
		}
	}
	w.block()
	return w.so, ok
}

// needed lists for each node those that need it.
func (p *Plan) needed() [][]int {
	needed := make([][]int, len(p.Nodes))
	for n := range p.Nodes {
		for _, m := range p.Nodes[n].Needs {
			needed[m] = append(needed[m], n)
		}
	}
	return needed
}

// UnknownError is that a service names one that there is not (E6).
type UnknownError struct {
	Service, Field, Name string // Service is "" where the changes name it
}

func (e *UnknownError) Error() string {
	if e.Service == "" {
		return fmt.Sprintf("what changed names %q, and there is no such service", e.Name)
	}
	return fmt.Sprintf("service %s: %s names %q, and there is no such service", e.Service, e.Field, e.Name)
}

// AggregatorError is that a service feeds one that collects nothing.
type AggregatorError struct{ Service, Name string }

func (e *AggregatorError) Error() string {
	return fmt.Sprintf("service %s: feeds names %s, which is no aggregator", e.Service, e.Name)
}

// CycleError is that nodes wait for each other (E6). Path begins and ends with the same one.
type CycleError struct{ Path []Node }

func (e *CycleError) Error() string {
	if len(e.Path) == 2 {
		return e.Path[0].String() + " requires itself"
	}
	names := make([]string, len(e.Path))
	for n := range e.Path {
		names[n] = e.Path[n].String()
	}
	return "a cycle, in which all would wait for ever: " + strings.Join(names, " → ")
}
