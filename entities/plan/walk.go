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

// Step is what a walk does next.
type Step struct {
	Begin []int // nodes that begin now
	Block []int // nodes that never will, with the node that failed in their Progress
	Over  bool  // nothing runs, and nothing will
}

// Walk says what is next in a plan of which this became so far, by node, and notes there what is blocked (E8–E10). At most one node
// for each serial target runs at once, and at most limit in all; 0 is no limit. What is held counts for neither. Of those that are ready
// the ones with the longest way behind them begin first.
func (p *Plan) Walk(so []Progress, limit int) (step Step) {
	step.Block = p.block(so)
	busy, running, held := map[string]bool{}, 0, false
	for n := range so {
		held = held || so[n].State == Held
		if so[n].State == Running {
			running++
			busy[p.Nodes[n].Target] = true
		}
	}
	for _, n := range p.inTurn() {
		target := p.Nodes[n].Target
		if limit > 0 && running >= limit {
			break
		}
		if so[n].State != Waiting || !p.ready(n, so) || p.serial(target) && busy[target] {
			continue
		}
		step.Begin = append(step.Begin, n)
		busy[target] = true
		running++
	}
	step.Over = running == 0 && !held
	return step
}

// serial tells whether one node runs on a target at a time.
func (p *Plan) serial(target string) bool {
	_, is := slices.BinarySearch(p.Serial, target)
	return is
}

// ready tells whether all that a node waits for is so.
func (p *Plan) ready(n int, so []Progress) bool {
	for _, m := range p.Nodes[n].Needs {
		if so[m].State != Done {
			return false
		}
	}
	for _, m := range p.Nodes[n].After {
		if !so[m].State.over() {
			return false
		}
	}
	return true
}

// block notes what failed nodes keep from ever beginning. The cause is the failed node itself, of several the first.
func (p *Plan) block(so []Progress) (blocked []int) {
	for n := range so {
		if so[n].State != Failed {
			continue
		}
		for _, m := range p.Downstream(n) {
			if so[m].State == Waiting {
				so[m] = Progress{State: Blocked, Cause: n}
				blocked = append(blocked, m)
			}
		}
	}
	return blocked
}
