package plan

import (
	"container/heap"
	"slices"
)

// Walker executes a plan: it takes the states of nodes and returns which nodes begin next (E8–E10). The work per node grows with the edges
// of the node, not with the plan, so a thousand nodes cost no more each than ten.
type Walker struct {
	plan            *Plan
	progress        []Progress
	letters         []byte
	count           map[State]int
	neededBy, after [][]int // by node: the nodes that need it, and those that come after it
	unmet           []int   // by node: how many of its dependencies are not met yet
	position        []int   // by node: position in the order
	deploys, others queue   // ready nodes: DEPLOY, and all others
	queued          []bool
	parked          map[string]*parked // ready nodes while their serial target is busy
	busy            map[string]int     // running nodes by serial target
	failed          []int              // failed since their dependents were last blocked
	undeployed      []string
	stale           bool // undeployed is outdated
	visits          int
}

// Walker returns a walker that starts from the given states.
func (p *Plan) Walker(progress []Progress) *Walker {
	size := len(p.Nodes)
	w := &Walker{
		plan: p, progress: make([]Progress, size), letters: make([]byte, size), count: map[State]int{Waiting: size}, unmet: make([]int, size),
		position: make([]int, size), queued: make([]bool, size), parked: map[string]*parked{}, busy: map[string]int{}, neededBy: p.neededBy(), after: make([][]int, size),
	}
	for position, n := range p.byRank() {
		w.position[n] = position
	}
	w.deploys.walker, w.others.walker = w, w
	for n := range p.Nodes {
		w.letters[n] = Waiting.Letter()
		w.unmet[n] = len(p.Nodes[n].Needs) + len(p.Nodes[n].After)
		for _, m := range p.Nodes[n].After {
			w.after[m] = append(w.after[m], n)
		}
	}
	for n := range p.Nodes {
		if w.enqueue(n); n < len(progress) {
			w.Set(n, progress[n].State)
			w.progress[n].Cause = progress[n].Cause
		}
	}
	return w
}

// Progress returns the state of a node.
func (w *Walker) Progress(n int) Progress { return w.progress[n] }

// Count returns how many nodes are in a state.
func (w *Walker) Count(s State) int { return w.count[s] }

// Letters returns a letter per node.
func (w *Walker) Letters() string { return string(w.letters) }

// Visits returns how many nodes and edges the walker has visited.
func (w *Walker) Visits() int { return w.visits }

// Over reports whether all nodes are in a final state.
func (w *Walker) Over() bool { return w.count[Waiting]+w.count[Running]+w.count[Held] == 0 }

// Set sets the state of a node.
func (w *Walker) Set(n int, state State) {
	previous := w.progress[n].State
	if previous == state {
		return
	}
	w.visits++
	w.progress[n], w.letters[n] = Progress{State: state}, state.Letter()
	w.count[previous]--
	w.count[state]++
	w.updateUnmet(w.neededBy[n], previous == Done, state == Done)
	w.updateUnmet(w.after[n], previous.final(), state.final())
	w.stale = w.stale || w.plan.Nodes[n].Kind == Deploy && (previous.undeployed() || state.undeployed())
	if state == Failed {
		w.failed = append(w.failed, n)
	}
	w.updateBusy(n, previous, state)
	w.enqueue(n)
}

// updateUnmet updates the dependents of a node when the dependency becomes met or unmet.
func (w *Walker) updateUnmet(nodes []int, wasMet, isMet bool) {
	if wasMet == isMet {
		return
	}
	w.visits += len(nodes)
	for _, n := range nodes {
		if isMet {
			w.unmet[n]--
		} else {
			w.unmet[n]++
		}
		w.enqueue(n)
	}
}

// updateBusy counts the running nodes of a serial target. When none runs, the next node may begin.
func (w *Walker) updateBusy(n int, previous, state State) {
	target := w.plan.Nodes[n].Target
	if !w.plan.serial(target) {
		return
	}
	if state == Running {
		w.busy[target]++
	}
	if previous != Running {
		return
	}
	w.busy[target]--
	w.unpark(target)
}

// parked holds the ready nodes of a busy serial target. DEPLOYs are separate, since a DEPLOY may begin where no command may.
type parked struct{ deploys, others queue }

// unpark queues the next nodes of an idle serial target. When one of them begins, the other is parked again.
func (w *Walker) unpark(target string) {
	p := w.parked[target]
	if p == nil || w.busy[target] > 0 {
		return
	}
	for _, q := range []*queue{&p.deploys, &p.others} {
		for q.Len() > 0 && !w.unparkOne(q) {
		}
	}
}

// unparkOne takes a node from the parked ones, and reports whether it may begin.
func (w *Walker) unparkOne(q *queue) bool {
	n := heap.Pop(q).(int)
	w.queued[n] = false
	w.enqueue(n)
	return w.queued[n]
}

// enqueue queues a node that may begin.
func (w *Walker) enqueue(n int) {
	if w.queued[n] || w.progress[n].State != Waiting || w.unmet[n] > 0 {
		return
	}
	w.visits++
	w.queued[n] = true
	if w.plan.Nodes[n].Kind == Deploy {
		heap.Push(&w.deploys, n)
	} else {
		heap.Push(&w.others, n)
	}
}

// Capacity limits how much may run at once.
type Capacity struct {
	Limit    int // nodes; 0: no limit
	Used     int // slots that something other than a node uses
	Commands int // how many nodes other than DEPLOY may begin; below 0: no limit
}

// Step returns the next step, and marks its nodes as running or blocked. At most one node per serial target runs at once. Held nodes count
// neither there nor for the limit. Of the ready nodes those with the longest chain behind them begin first.
func (w *Walker) Step(capacity Capacity) (step Step) {
	step.Block = w.block()
	for capacity.Limit == 0 || w.count[Running]+capacity.Used < capacity.Limit {
		n, found := w.next(capacity.Commands != 0)
		if !found {
			break
		}
		if w.plan.Nodes[n].Kind != Deploy {
			capacity.Commands--
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
		q := &w.deploys
		if commands && w.others.Len() > 0 && (q.Len() == 0 || w.position[w.others.nodes[0]] < w.position[q.nodes[0]]) {
			q = &w.others
		}
		if q.Len() == 0 {
			return 0, false
		}
		n = heap.Pop(q).(int)
		w.queued[n] = false
		w.visits++
		switch target := w.plan.Nodes[n].Target; {
		case w.busy[target] > 0:
			w.park(target, n)
		case w.progress[n].State != Waiting || w.unmet[n] > 0: // no longer ready
			w.unpark(target)
		default:
			return n, true
		}
	}
}

func (w *Walker) park(target string, n int) {
	if w.parked[target] == nil {
		w.parked[target] = &parked{queue{walker: w}, queue{walker: w}}
	}
	w.queued[n] = true
	if w.plan.Nodes[n].Kind == Deploy {
		heap.Push(&w.parked[target].deploys, n)
	} else {
		heap.Push(&w.parked[target].others, n)
	}
}

// block marks the nodes that can never begin because of failed nodes. The cause is the failed node itself; of several, the first.
func (w *Walker) block() (blocked []int) {
	slices.Sort(w.failed)
	for _, cause := range w.failed {
		if w.progress[cause].State != Failed {
			continue
		}
		for queue := []int{cause}; len(queue) > 0; queue = queue[1:] {
			w.visits += len(w.neededBy[queue[0]])
			for _, n := range w.neededBy[queue[0]] {
				if w.progress[n].State == Waiting { // nodes behind a blocked one are already blocked
					w.Set(n, Blocked)
					w.progress[n].Cause = cause
					blocked, queue = append(blocked, n), append(queue, n)
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
		w.undeployed, w.stale = w.plan.Undeployed(w.progress), false
	}
	return w.undeployed
}

// queue is a heap of nodes, the next one first.
type queue struct {
	walker *Walker
	nodes  []int
}

func (q *queue) Len() int { return len(q.nodes) }
func (q *queue) Less(a, b int) bool {
	return q.walker.position[q.nodes[a]] < q.walker.position[q.nodes[b]]
}
func (q *queue) Swap(a, b int) { q.nodes[a], q.nodes[b] = q.nodes[b], q.nodes[a] }
func (q *queue) Push(n any)    { q.nodes = append(q.nodes, n.(int)) }
func (q *queue) Pop() any {
	last := q.nodes[len(q.nodes)-1]
	q.nodes = q.nodes[:len(q.nodes)-1]
	return last
}
