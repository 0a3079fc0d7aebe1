package plan

import "slices"

// State is what became of a node.
type State string

// The states of a node.
const (
	Waiting    State = ""
	Running    State = "running"
	Held       State = "held" // it may go on, and waits for people or for others: meanwhile it takes no place
	Done       State = "done"
	Failed     State = "failed"
	Blocked    State = "blocked"    // what it needs failed
	Superseded State = "superseded" // a newer plan came before it began
)

// Progress is what became of one node. Cause is the node that failed, where this one is blocked.
type Progress struct {
	State State `json:"state,omitempty"`
	Cause int   `json:"cause,omitempty"`
}

// over tells whether nothing more comes of a node.
func (s State) over() bool { return s != Waiting && s != Running && s != Held }

// undeployed tells whether nothing is deployed by a DEPLOY that is so.
func (s State) undeployed() bool { return s == Failed || s == Blocked }

// Step is what a walk does next.
type Step struct {
	Begin []int // nodes that begin now
	Block []int // nodes that never will, with the node that failed in their Progress
	Over  bool  // nothing runs, and nothing will
}

// Undeployed lists the services with a DEPLOY that failed or is blocked, in order.
func (p *Plan) Undeployed(so []Progress) (names []string) {
	for n := range so {
		if p.Nodes[n].Kind == Deploy && so[n].State.undeployed() {
			names = append(names, p.Nodes[n].Service)
		}
	}
	return slices.Compact(names)
}

// serial tells whether one node runs on a target at a time.
func (p *Plan) serial(target string) bool {
	_, is := slices.BinarySearch(p.Serial, target)
	return is
}
