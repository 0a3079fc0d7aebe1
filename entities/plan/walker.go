package plan

import (
	"container/heap"
	"slices"
)

// Walker executes a plan: it takes the states of nodes and returns which nodes begin next (E8–E10). The work per node grows with the edges
// of the node, not with the plan, so a thousand nodes cost no more each than ten.
type Walker struct {
	plan          *Plan
	so            []Progress
	letters       []byte
	count         map[State]int
	needed, after [][]int // by node: the nodes that need it, and those that come after it
	unmet         []int   // by node: how many of its dependencies are not met yet
	place         []int   // by node: position in the order
	deploys, rest queue   // ready nodes: DEPLOY, and all others
	queued        []bool
	parked        map[string]*parked // ready nodes while their serial target is busy
	busy          map[string]int     // running nodes by serial target
	failed        []int              // failed since their dependents were last blocked
	undeployed    []string
	stale         bool // undeployed is outdated
	looked        int
}

// Walker returns a walker that starts from the given states.
func (p *Plan) Walker(so []Progress) *Walker {
	size := len(p.Nodes)
	w := &Walker{
		plan: p, so: make([]Progress, size), letters: make([]byte, size), count: map[State]int{Waiting: size}, unmet: make([]int, size),
		place: make([]int, size), queued: make([]bool, size), parked: map[string]*parked{}, busy: map[string]int{}, needed: p.needed(), after: make([][]int, size),
	}
	for turn, n := range p.inTurn() {
		w.place[n] = turn
	}
	w.deploys.of, w.rest.of = w, w
	for n := range p.Nodes {
		w.letters[n] = Waiting.Letter()
		w.unmet[n] = len(p.Nodes[n].Needs) + len(p.Nodes[n].After)
		for _, m := range p.Nodes[n].After {
			w.after[m] = append(w.after[m], n)
		}
	}
	for n := range p.Nodes {
		if w.wait(n); n < len(so) {
			w.Set(n, so[n].State)
			w.so[n].Cause = so[n].Cause
		}
	}
	return w
}

// So returns the state of a node.
func (w *Walker) So(n int) Progress { return w.so[n] }

// Count returns how many nodes are in a state.
func (w *Walker) Count(s State) int { return w.count[s] }

// Letters returns a letter per node.
func (w *Walker) Letters() string { return string(w.letters) }

// Looked returns how many nodes and edges the walker has visited.
func (w *Walker) Looked() int { return w.looked }

// Over reports whether all nodes are in a final state.
func (w *Walker) Over() bool { return w.count[Waiting]+w.count[Running]+w.count[Held] == 0 }

// Set sets the state of a node.
func (w *Walker) Set(n int, is State) {
	was := w.so[n].State
	if was == is {
		return
	}
	w.looked++
	w.so[n], w.letters[n] = Progress{State: is}, is.Letter()
	w.count[was]--
	w.count[is]++
	w.tell(w.needed[n], was == Done, is == Done)
	w.tell(w.after[n], was.over(), is.over())
	w.stale = w.stale || w.plan.Nodes[n].Kind == Deploy && (was.undeployed() || is.undeployed())
	if is == Failed {
		w.failed = append(w.failed, n)
	}
	w.occupy(n, was, is)
	w.wait(n)
}

// tell updates the dependents of a node when the dependency becomes met or unmet.
func (w *Walker) tell(nodes []int, was, is bool) {
	if was == is {
		return
	}
	w.looked += len(nodes)
	for _, n := range nodes {
		if is {
			w.unmet[n]--
		} else {
			w.unmet[n]++
		}
		w.wait(n)
	}
}

// occupy counts the running nodes of a serial target. When none runs, the next node may begin.
func (w *Walker) occupy(n int, was, is State) {
	target := w.plan.Nodes[n].Target
	if !w.plan.serial(target) {
		return
	}
	if is == Running {
		w.busy[target]++
	}
	if was != Running {
		return
	}
	w.busy[target]--
	w.unpark(target)
}

// parked holds the ready nodes of a busy serial target. DEPLOYs are separate, since a DEPLOY may begin where no command may.
type parked struct{ deploys, rest queue }

// unpark queues the next nodes of an idle serial target. When one of them begins, the other is parked again.
func (w *Walker) unpark(target string) {
	p := w.parked[target]
	if p == nil || w.busy[target] > 0 {
		return
	}
	for _, q := range []*queue{&p.deploys, &p.rest} {
		for q.Len() > 0 && !w.unparkOne(q) {
		}
	}
}

// unparkOne takes a node from the parked ones, and reports whether it may begin.
func (w *Walker) unparkOne(from *queue) bool {
	n := heap.Pop(from).(int)
	w.queued[n] = false
	w.wait(n)
	return w.queued[n]
}

// wait queues a node that may begin.
func (w *Walker) wait(n int) {
	if w.queued[n] || w.so[n].State != Waiting || w.unmet[n] > 0 {
		return
	}
	w.looked++
	w.queued[n] = true
	if w.plan.Nodes[n].Kind == Deploy {
		heap.Push(&w.deploys, n)
	} else {
		heap.Push(&w.rest, n)
	}
}

// Room limits how much may run at once.
type Room struct {
	Limit    int // nodes; 0: no limit
	Taken    int // slots that something other than a node uses
	Commands int // how many nodes other than DEPLOY may begin; below 0: no limit
}

// Step returns the next step, and marks its nodes as running or blocked. At most one node per serial target runs at once. Held nodes count
// neither there nor for the limit. Of the ready nodes those with the longest chain behind them begin first.
func (w *Walker) Step(room Room) (step Step) {
	step.Block = w.block()
	for room.Limit == 0 || w.count[Running]+room.Taken < room.Limit {
		n, found := w.next(room.Commands != 0)
		if !found {
			break
		}
		if w.plan.Nodes[n].Kind != Deploy {
			room.Commands--
		}
		w.Set(n, Running)
		step.Begin = append(step.Begin, n)
	}
	step.Over = w.count[Running]+w.count[Held] == 0
	return step
}

// next takes the next node from the queues.
func (w *Walker) next(commands bool) (n int, found bool) {
	for {
		from := &w.deploys
		if commands && w.rest.Len() > 0 && (from.Len() == 0 || w.place[w.rest.nodes[0]] < w.place[from.nodes[0]]) {
			from = &w.rest
		}
		if from.Len() == 0 {
			return 0, false
		}
		n = heap.Pop(from).(int)
		w.queued[n] = false
		w.looked++
		switch target := w.plan.Nodes[n].Target; {
		case w.busy[target] > 0:
			w.park(target, n)
		case w.so[n].State != Waiting || w.unmet[n] > 0: // no longer ready
			w.unpark(target)
		default:
			return n, true
		}
	}
}

func (w *Walker) park(target string, n int) {
	if w.parked[target] == nil {
		w.parked[target] = &parked{queue{of: w}, queue{of: w}}
	}
	w.queued[n] = true
	if w.plan.Nodes[n].Kind == Deploy {
		heap.Push(&w.parked[target].deploys, n)
	} else {
		heap.Push(&w.parked[target].rest, n)
	}
}

// block marks the nodes that can never begin because of failed nodes. The cause is the failed node itself; of several, the first.
func (w *Walker) block() (blocked []int) {
	slices.Sort(w.failed)
	for _, cause := range w.failed {
		if w.so[cause].State != Failed {
			continue
		}
		for from := []int{cause}; len(from) > 0; from = from[1:] {
			w.looked += len(w.needed[from[0]])
			for _, n := range w.needed[from[0]] {
				if w.so[n].State == Waiting { // nodes behind a blocked one are already blocked
					w.Set(n, Blocked)
					w.so[n].Cause = cause
					blocked, from = append(blocked, n), append(from, n)
				}
			}
		}
	}
	w.failed = nil
	return blocked
}

// Undeployed lists the services with a failed or blocked DEPLOY, in order.
func (w *Walker) Undeployed() []string {
	if w.stale {
		w.undeployed, w.stale = w.plan.Undeployed(w.so), false
	}
	return w.undeployed
}

// queue is a heap of nodes, the next one first.
type queue struct {
	of    *Walker
	nodes []int
}

func (q *queue) Len() int           { return len(q.nodes) }
func (q *queue) Less(a, b int) bool { return q.of.place[q.nodes[a]] < q.of.place[q.nodes[b]] }
func (q *queue) Swap(a, b int)      { q.nodes[a], q.nodes[b] = q.nodes[b], q.nodes[a] }
func (q *queue) Push(n any)         { q.nodes = append(q.nodes, n.(int)) }
func (q *queue) Pop() any {
	last := q.nodes[len(q.nodes)-1]
	q.nodes = q.nodes[:len(q.nodes)-1]
	return last
}
