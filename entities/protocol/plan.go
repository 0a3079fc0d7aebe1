package protocol

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
)

// This file holds what is said of plans that run (E8–E14). A plan is a workflow; how far it is lies in the store, where the services
// that it concerns look.

// PlanRef names a plan: what is deployed and fitted together in a release channel of an application, for one cause.
type PlanRef struct {
	Application string `json:"application"`
	Channel     string `json:"channel"`
	// Name is i12 of a change of configuration that incarnation 12 brings, web-v3 of a release of one service, and the id of a
	// release over several services.
	Name string `json:"name"`
}

// ID is the id of the plan's workflow.
func (r PlanRef) ID() string { return "plan/" + r.Application + "/" + r.Channel + "/" + r.Name }

// PlanOfIncarnation names the plan of a change of configuration.
func PlanOfIncarnation(application, channel string, incarnation int64) PlanRef {
	return PlanRef{Application: application, Channel: channel, Name: fmt.Sprintf("i%d", incarnation)}
}

// PlanAsked is what a plan is asked to do.
type PlanAsked struct {
	Incarnation int64 `json:"incarnation"` // by whose configuration it goes
	// Release is the id of the release of Services, by their first names, that people or CI made; "": the configuration's.
	Release  string   `json:"release,omitempty"`
	Services []string `json:"services,omitempty"`
	// Whole: everything; Changed: what these services make necessary. Neither: what changed since the last plan that was done whole.
	Whole   bool     `json:"whole,omitempty"`
	Changed []string `json:"changed,omitempty"`
	// Limit is how many nodes may run at once; 0: as is declared. Eager: RECONCILE does not wait for aggregators.
	Limit int    `json:"limit,omitempty"`
	Eager bool   `json:"eager,omitempty"`
	By    string `json:"by,omitempty"` // who asks; "": a service whose turn it is to be
}

// PlanInput begins a run of a plan, or goes on with it.
type PlanInput struct {
	PlanRef
	PlanAsked
	Logic int `json:"logic,omitempty"`
	// Goes: another run of the workflow, which goes on whatever became of the nodes.
	Goes bool `json:"goes,omitempty"`
}

// PlanNote says of a node, by its index, why it is as it is.
type PlanNote struct {
	Node int    `json:"node"`
	Text string `json:"text"`
}

// PlanState is what became of a plan so far.
type PlanState struct {
	// Nodes, Before and After have a letter for each node or step (plan.Letters).
	Nodes  string `json:"nodes"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Notes are of some nodes, by index; Trouble is of a step that failed.
	Notes   []PlanNote `json:"notes,omitempty"`
	Trouble string     `json:"trouble,omitempty"`
	// Over: nothing more comes of it. Ended says why before everything was done: superseded or cancelled.
	Over  bool   `json:"over,omitempty"`
	Ended string `json:"ended,omitempty"`
}

// Why a plan was ended before everything was done.
const (
	PlanSuperseded = "superseded"
	PlanCancelled  = "cancelled"
)

// PlanRecord is a plan as the store has it: what it is of, and how far it is.
type PlanRecord struct {
	PlanRef
	PlanAsked
	Hash string `json:"hash"` // of the incarnation
	// All, or what changed: of what the plan was built.
	All   bool     `json:"all,omitempty"`
	Scope []string `json:"scope,omitempty"`
	PlanState
}

// PlanBegun is a plan as it begins, or goes on.
type PlanBegun struct {
	Hash  string `json:"hash"`
	Plan  Packed `json:"plan"` // plan.Plan
	Limit int    `json:"limit,omitempty"`
	PlanState
}

// PlanKeepRequest keeps how far a plan is, and grants entry to the DEPLOYs that run (local activity).
type PlanKeepRequest struct {
	PlanRef
	PlanState
}

// PlanNode is what became of a node.
type PlanNode struct {
	Node  int    `json:"node"`
	State string `json:"state"` // plan.State
	Text  string `json:"text,omitempty"`
}

// PlanFollowed is what became of DEPLOYs that run.
type PlanFollowed struct {
	Nodes      []PlanNode `json:"nodes,omitempty"`
	Superseded bool       `json:"superseded,omitempty"` // by the plan of a newer incarnation
}

// PlanWork names a piece of work of a plan: a node, by its kind, service and target, or a step before or after all of them.
type PlanWork struct {
	PlanRef
	Hash    string `json:"hash"`
	Kind    string `json:"kind"` // plan.Kind, or before or after
	Service string `json:"service,omitempty"`
	Target  string `json:"target,omitempty"`
}

// The kinds of steps around all nodes.
const (
	PlanBefore = "before"
	PlanAfter  = "after"
)

// String is "RECONCILE sonarr@media", or "before".
func (w PlanWork) String() string {
	if w.Service == "" {
		return w.Kind
	}
	return w.Kind + " " + w.Service + "@" + w.Target
}

// PlanCommand runs for a piece of work, and for a service where it is one's.
type PlanCommand struct {
	Service string             `json:"service,omitempty"`
	Run     entities.Extension `json:"run"`
}

// PlanCommands are what runs for a piece of work, one after another.
type PlanCommands struct {
	Commands []PlanCommand `json:"commands,omitempty"`
}

// PlanRunRequest runs one of them once.
type PlanRunRequest struct {
	PlanWork
	Command PlanCommand `json:"command"`
	Attempt int         `json:"attempt"`
}

// PlanRan is how a command went. Held: it was not run, and why.
type PlanRan struct {
	ExtensionAnswer
	Held string `json:"held,omitempty"`
}

// PlanStatus answers a plan's status query, and is what a plan ends with.
type PlanStatus struct {
	Schema string `json:"schema"` // converge.plan-run/v1
	PlanRef
	Nodes   []PlanNodeStatus `json:"nodes"`
	Before  string           `json:"before,omitempty"` // a letter for each step
	After   string           `json:"after,omitempty"`
	Trouble string           `json:"trouble,omitempty"`
	Over    bool             `json:"over,omitempty"`
	Ended   string           `json:"ended,omitempty"`
}

// PlanNodeStatus is a node, and what became of it: waiting, running, held, done, failed, blocked or superseded.
type PlanNodeStatus struct {
	Node  string `json:"node"` // "DEPLOY sonarr@media"
	State string `json:"state"`
	Text  string `json:"text,omitempty"` // why
}

// DeployedQuestion asks a service how far it is with what a plan deploys in a channel: with one release, by its id, or with the
// configuration of an incarnation, or, where that brings nothing, with those of the incarnations Since one.
type DeployedQuestion struct {
	Channel     string `json:"channel"`
	Release     string `json:"release,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`
	Since       int64  `json:"since,omitempty"`
}

// Deployed answers a Service's deployed query.
type Deployed struct {
	Spec  string `json:"spec,omitempty"` // digest of the rules in force
	State string `json:"state"`          // plan.State: running, held, done or failed
	Text  string `json:"text,omitempty"`
}
