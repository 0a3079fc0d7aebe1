package plan

import "slices"

// State is the state of a node.
type State string

// The states of a node.
const (
	Waiting    State = ""
	Running    State = "running"
	Held       State = "held" // may continue later, waits for users or for others; it does not count as running
	Done       State = "done"
	Failed     State = "failed"
	Blocked    State = "blocked"    // a node that it needs failed
	Superseded State = "superseded" // a newer plan replaced this one before the node began
)

// Progress is the state of one node. Cause is the failed node if this one is blocked.
type Progress struct {
	State State `json:"state,omitempty"`
	Cause int   `json:"cause,omitempty"`
}

// final reports whether a state is final.
func (s State) final() bool { return s != Waiting && s != Running && s != Held }

// undeployed reports whether a DEPLOY in this state deployed nothing.
func (s State) undeployed() bool { return s == Failed || s == Blocked }

// Step is the next step of a walk.
type Step struct {
	Begin []int // nodes that begin now
	Block []int // nodes that never begin; their Progress names the failed node
	Over  bool  // nothing runs, and nothing will
}

// Undeployed lists the services with a failed or blocked DEPLOY, in order.
func (p *Plan) Undeployed(progress []Progress) (names []string) {
	for n := range progress {
		if p.Nodes[n].Kind == Deploy && progress[n].State.undeployed() {
			names = append(names, p.Nodes[n].Service)
		}
	}
	return slices.Compact(names)
}

// serial reports whether a target runs one node at a time.
func (p *Plan) serial(target string) bool {
	_, found := slices.BinarySearch(p.Serial, target)
	return found
}
