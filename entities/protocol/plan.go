package protocol

import (
	"fmt"

	"github.com/converge-engine/converge/entities"
)

// This file holds the execution of plans (E8–E14). A plan is a workflow. Its state is in the store, where the services concerned read it.

// PlanRef names a plan: the deployment and integration in a release channel of an application, for one cause.
type PlanRef struct {
	Application string `json:"application"`
	Channel     string `json:"channel"`
	// Name is i12 for a change of configuration by incarnation 12, web-v3 for a release of one service, and the id of a release for a release
	// of several services.
	Name string `json:"name"`
}

// ID returns the id of the plan's workflow.
func (r PlanRef) ID() string { return PlanIDPrefix(r.Application) + r.Channel + "/" + r.Name }

// PlanIDPrefix returns the prefix of the ids of an application's plans.
func PlanIDPrefix(application string) string { return "plan/" + application + "/" }

// PlanOfIncarnation names the plan of a change of configuration.
func PlanOfIncarnation(application, channel string, incarnation int64) PlanRef {
	return PlanRef{Application: application, Channel: channel, Name: fmt.Sprintf("i%d", incarnation)}
}

// PlanTask is the task of a plan.
type PlanTask struct {
	Incarnation int64 `json:"incarnation"` // whose configuration it uses
	// Release is the id of the release of Services, by their first names, that a user or CI created; "": the configuration's.
	Release  string   `json:"release,omitempty"`
	Services []string `json:"services,omitempty"`
	// Whole: everything; Changed: the nodes that these services require. Neither: the changes since the last completed whole plan.
	Whole   bool     `json:"whole,omitempty"`
	Changed []string `json:"changed,omitempty"`
	// Limit is how many nodes may run at once; 0: as declared. Eager: RECONCILE does not wait for aggregators.
	Limit int  `json:"limit,omitempty"`
	Eager bool `json:"eager,omitempty"`
	// Recapture names services whose captured values it captures again.
	Recapture []string `json:"recapture,omitempty"`
	By        string   `json:"by,omitempty"` // the caller; "": a service that waits for the plan
}

// PlanInput starts a run of a plan, or continues it.
type PlanInput struct {
	PlanRef
	PlanTask
	// Continued: another run of the workflow; it continues with any state of the nodes.
	Continued bool `json:"goes,omitempty"`
}

// PlanNote explains the state of a node, by its index.
type PlanNote struct {
	Node int    `json:"node"`
	Text string `json:"text"`
}

// NodeProgress is the progress of a started, unfinished node's commands.
type NodeProgress struct {
	Node int    `json:"node"`
	Done string `json:"done,omitempty"` // a letter for each command, if some are done
	// Failed is how often retried commands failed, by index.
	Failed map[int]int `json:"failed,omitempty"`
}

// PlanState is the state of a plan.
type PlanState struct {
	// Nodes, Before and After have a letter for each node or step (plan.Letters).
	Nodes  string `json:"nodes"`
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Parts belong to nodes that have begun, by index.
	Parts []NodeProgress `json:"parts,omitempty"`
	// Notes belong to some nodes, by index. StepError is the error of a failed step.
	Notes     []PlanNote `json:"notes,omitempty"`
	StepError string     `json:"trouble,omitempty"`
	// Over: the plan is finished. Ended says why it ended early: superseded or cancelled.
	Over  bool   `json:"over,omitempty"`
	Ended string `json:"ended,omitempty"`
}

// The reasons why a plan ended early.
const (
	PlanSuperseded = "superseded"
	PlanCancelled  = "cancelled"
)

// PlanRecord is a plan in the store: its scope and its state.
type PlanRecord struct {
	PlanRef
	PlanTask
	Hash string `json:"hash"` // of the incarnation
	// All, or the changes in Scope: what the plan was built from.
	All   bool     `json:"all,omitempty"`
	Scope []string `json:"scope,omitempty"`
	// SupersededAfter is the newest incarnation with a plan of the channel at the time when a user requested this one. That plan does not
	// supersede it.
	SupersededAfter int64 `json:"beyond,omitempty"`
	PlanState
}

// PlanStart is a plan when it begins, or continues.
type PlanStart struct {
	StoredAnswer
	Hash  string `json:"hash"`
	Plan  Packed `json:"plan"` // plan.Plan
	Limit int    `json:"limit,omitempty"`
	// All, Scope and SupersededAfter are those of the record.
	All             bool     `json:"all,omitempty"`
	Scope           []string `json:"scope,omitempty"`
	SupersededAfter int64    `json:"beyond,omitempty"`
	State           Packed   `json:"state"` // PlanState
}

// PlanKeepRequest stores the state of a plan, and grants entry to its running DEPLOYs (local activity). It contains the whole record, since
// the store may have lost it.
type PlanKeepRequest struct {
	PlanRecord
}

// PlanNode is the state of a node.
type PlanNode struct {
	Node  int    `json:"node"`
	State string `json:"state"` // plan.State
	Text  string `json:"text,omitempty"`
}

// PlanFollowAnswer is the state of running DEPLOYs.
type PlanFollowAnswer struct {
	Nodes      []PlanNode `json:"nodes,omitempty"`
	Superseded bool       `json:"superseded,omitempty"` // by the plan of a newer incarnation
}

// PlanWork names a work item of a plan: a node, by its kind, service and target, or a step before or after all of them.
type PlanWork struct {
	PlanRef
	Hash    string `json:"hash"`
	Kind    string `json:"kind"` // plan.Kind, or before or after
	Service string `json:"service,omitempty"`
	Target  string `json:"target,omitempty"`
	// Undeployed, for CALLBACK, SYNC and REDEPLOY, names services whose DEPLOY failed in this plan, or is blocked. Rerun: it ran before some
	// of these failed.
	Undeployed []string `json:"undeployed,omitempty"`
	Rerun      bool     `json:"again,omitempty"`
	// UndeployedNodes replaces Undeployed for thousands of services: a letter for each node of the plan, x for the nodes of these services.
	UndeployedNodes string `json:"undeployedNodes,omitempty"`
}

// The kinds of steps around all nodes.
const (
	PlanBefore = "before"
	PlanAfter  = "after"
)

// String returns "RECONCILE sonarr@media", or "before".
func (w PlanWork) String() string {
	if w.Service == "" {
		return w.Kind
	}
	return w.Kind + " " + w.Service + "@" + w.Target
}

// PlanCommandsRequest requests the commands of a work item, from a given command on, as many as fit into an answer (local activity).
type PlanCommandsRequest struct {
	PlanWork
	From int `json:"from,omitempty"`
}

// PlanCommand is a command of a work item, and of a service if it belongs to one.
type PlanCommand struct {
	Service string             `json:"service,omitempty"`
	Run     entities.Extension `json:"run"`
	// Captures are the names of the secrets that it prints.
	Captures []string `json:"captures,omitempty"`
	// At is its index among all commands of the work item.
	At int `json:"at,omitempty"`
}

// PlanCommands are the commands of a work item, in order. Next is the first command of the next request; 0: there are no more.
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

// PlanRunAnswer is the result of a command. HoldReason: it did not run, and why.
type PlanRunAnswer struct {
	ExtensionAnswer
	HoldReason string `json:"held,omitempty"`
}

// PlanStatus answers a plan's status query. It is also the result of a plan, then without the nodes that are done.
type PlanStatus struct {
	Schema string `json:"schema"` // converge.plan-run/v1
	PlanRef
	Nodes     []PlanNodeStatus `json:"nodes"`
	Before    string           `json:"before,omitempty"` // a letter for each step
	After     string           `json:"after,omitempty"`
	StepError string           `json:"trouble,omitempty"`
	Over      bool             `json:"over,omitempty"`
	Ended     string           `json:"ended,omitempty"`
}

// PlanNodeStatus is a node and its state: waiting, running, held, done, failed, blocked or superseded.
type PlanNodeStatus struct {
	Node  string `json:"node"` // "DEPLOY sonarr@media"
	State string `json:"state"`
	Text  string `json:"text,omitempty"` // why
	// Needs and After are indexes of the nodes that must succeed before, and of those that must only end before.
	Needs []int `json:"needs,omitempty"`
	After []int `json:"after,omitempty"`
}

// DeployedQuestion asks a service about its progress with a plan's deployment in a channel: of one release, by its id, or of the
// configuration of an incarnation. If that configuration creates no release, it is about the incarnations from Since on.
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
