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
func (r PlanRef) ID() string { return PlansOf(r.Application) + r.Channel + "/" + r.Name }

// PlansOf is what the ids of all plans of an application begin with.
func PlansOf(application string) string { return "plan/" + application + "/" }

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
	Limit int  `json:"limit,omitempty"`
	Eager bool `json:"eager,omitempty"`
	// Recapture names services of which it captures anew what was captured before.
	Recapture []string `json:"recapture,omitempty"`
	By        string   `json:"by,omitempty"` // who asks; "": a service whose turn it is to be
}

// PlanInput begins a run of a plan, or goes on with it.
type PlanInput struct {
	PlanRef
	PlanAsked
	// Goes: another run of the workflow, which goes on whatever became of the nodes.
	Goes bool `json:"goes,omitempty"`
}

// PlanNote says of a node, by its index, why it is as it is.
type PlanNote struct {
	Node int    `json:"node"`
	Text string `json:"text"`
}

// PlanPart is how far the commands of a node are that has begun, and is not done.
type PlanPart struct {
	Node int    `json:"node"`
	Done string `json:"done,omitempty"` // a letter for each command, as far as some are done
	// Failed is how often those failed that are tried again, by index.
	Failed map[int]int `json:"failed,omitempty"`
}

// PlanState is what became of a plan so far.
type PlanState struct {
	// Nodes, Before and After have a letter for each node or step (plan.Letters).
	Nodes  string `json:"nodes"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Parts are of nodes that have begun, by index.
	Parts []PlanPart `json:"parts,omitempty"`
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
	// Beyond is the newest incarnation of which a plan of the channel had begun when people asked for this one: it is not superseded by that.
	Beyond int64 `json:"beyond,omitempty"`
	PlanState
}

// PlanBegun is a plan as it begins, or goes on.
type PlanBegun struct {
	InStore
	Hash  string `json:"hash"`
	Plan  Packed `json:"plan"` // plan.Plan
	Limit int    `json:"limit,omitempty"`
	// All, Scope and Beyond are those of the record.
	All    bool     `json:"all,omitempty"`
	Scope  []string `json:"scope,omitempty"`
	Beyond int64    `json:"beyond,omitempty"`
	State  Packed   `json:"state"` // PlanState
}

// PlanKeepRequest keeps how far a plan is, and grants entry to the DEPLOYs that run (local activity). It has the whole record, which the
// store may have lost.
type PlanKeepRequest struct {
	PlanRecord
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
	// Undeployed, of CALLBACK, SYNC and REDEPLOY, names services whose DEPLOY failed in this plan, or is blocked. Again: it ran before some
	// of these failed.
	Undeployed []string `json:"undeployed,omitempty"`
	Again      bool     `json:"again,omitempty"`
	// UndeployedNodes says so of thousands, in the place of Undeployed: a letter for each node of the plan, x for those of these services.
	UndeployedNodes string `json:"undeployedNodes,omitempty"`
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

// PlanCommandsRequest asks what runs for a piece of work, from a command on, as much as fits into an answer (local activity).
type PlanCommandsRequest struct {
	PlanWork
	From int `json:"from,omitempty"`
}

// PlanCommand runs for a piece of work, and for a service where it is one's.
type PlanCommand struct {
	Service string             `json:"service,omitempty"`
	Run     entities.Extension `json:"run"`
	// Captures are the names of the secrets that it prints.
	Captures []string `json:"captures,omitempty"`
	// At is its index among all that runs for that piece of work.
	At int `json:"at,omitempty"`
}

// PlanCommands are what runs for a piece of work, one after another. Next is from which command on more are to be asked for; 0: there are none.
type PlanCommands struct {
	Commands []PlanCommand `json:"commands,omitempty"`
	Next     int           `json:"next,omitempty"`
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

// PlanStatus answers a plan's status query, and is what a plan ends with, without nodes that are done then.
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
	// Needs and After are indexes of the nodes that must have succeeded before, and of those that must have ended.
	Needs []int `json:"needs,omitempty"`
	After []int `json:"after,omitempty"`
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
