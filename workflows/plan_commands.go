package workflows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file runs the commands of many nodes. Each event wakes every coroutine of a workflow, so the cost of an event, now and in each
// replay, grows with the number of coroutines. So only running commands have a coroutine. A command that waits for a lease, for people or
// for a retry is only recorded with its due time.

// maxRunningCommands is how many commands of a plan run in parallel at most, regardless of the plan's own limit.
const maxRunningCommands = 50

// commands are the commands of a node. They run one after another, or in parallel for CALLBACK.
type commands struct {
	node     int
	work     protocol.PlanWork
	parallel bool
	// queue holds the listed commands that have not started. More are listed from index next on, until allListed is set.
	queue          []protocol.PlanCommand
	next           int
	allListed      bool // all are listed
	listing        bool
	waiting        []*waitingCommand // in the order in which they began to wait
	done           []byte            // letters
	tries          map[int]int       // failed attempts of commands that are not done
	coroutines     int               // how many coroutines run
	idleCoroutines int               // how many of these have not taken a command yet
	failed         string
}

// waitingCommand is a command that failed or could not run, and is run again.
type waitingCommand struct {
	protocol.PlanCommand
	due    time.Time
	wait   time.Duration // the delay
	why    string
	notRun bool // it did not run
}

// dueNode is a node with a waiting command.
type dueNode struct {
	at   time.Time
	node int
}

// freeCapacity is how much more may start.
func (p *planRun) freeCapacity() plan.Capacity {
	return plan.Capacity{Limit: p.limit, Used: p.extraCallbacks, Commands: max(0, maxRunningCommands-p.inFlight)}
}

// unpack reads the progress of the plan and of the commands of its nodes.
func (p *planRun) unpack(begun *protocol.PlanStart) error {
	if err := begun.State.Unpack(&p.state); err != nil {
		return temporal.NewNonRetryableApplicationError("the progress of the plan cannot be read: "+err.Error(), "Malformed", err)
	}
	for _, part := range p.state.Parts {
		p.parts[part.Node] = part
	}
	return nil
}

// partsProgress is the progress of the commands of each node.
func (p *planRun) partsProgress() (parts []protocol.NodeProgress) {
	all := maps.Clone(p.parts)
	for _, n := range entities.SortedKeys(p.commands) {
		c := p.commands[n]
		if done := strings.TrimRight(string(c.done), string(plan.Waiting.Letter())); done != "" || len(c.tries) > 0 {
			all[n] = protocol.NodeProgress{Node: n, Done: done, Failed: maps.Clone(c.tries)}
		}
	}
	for _, n := range entities.SortedKeys(all) {
		parts = append(parts, all[n])
	}
	return parts
}

// startCommands starts or continues the commands of a node.
func (p *planRun) startCommands(n int) {
	c := p.commands[n]
	if c == nil {
		part := p.parts[n]
		c = &commands{
			node: n, work: p.workOf(n), parallel: p.plan.Nodes[n].Kind == plan.Callback, done: []byte(part.Done), tries: maps.Clone(part.Failed),
		}
		if c.tries == nil {
			c.tries = map[int]int{}
		}
		delete(p.parts, n)
		p.commands[n] = c
	}
	if c.parallel {
		p.callback = c
	}
	p.startCoroutine(c)
}

// startCoroutine starts one more coroutine for the commands of a node.
func (p *planRun) startCoroutine(c *commands) {
	p.inFlight++
	c.idleCoroutines++
	if c.coroutines++; c.coroutines > 1 {
		p.extraCallbacks++
	}
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		idle := true
		p.runCommands(ctx, c, func() {
			if idle {
				idle = false
				c.idleCoroutines--
			}
		})
		p.inFlight--
		p.woken = true
		if c.coroutines--; c.coroutines > 0 {
			p.extraCallbacks--
			return
		}
		p.recordResult(c)
	})
}

// runCommands runs commands. A coroutine in addition to the first runs only one, so that other ready nodes get a turn.
func (p *planRun) runCommands(ctx workflow.Context, c *commands, onTaken func()) {
	defer onTaken()
	for ctx.Err() == nil && c.failed == "" && !p.shouldEnd() {
		command, retried, found := c.takeReady(workflow.Now(ctx))
		if !found {
			if !p.listMore(ctx, c) {
				return
			}
			continue
		}
		onTaken()
		p.runOnce(ctx, c, command, retried)
		if c.parallel && c.coroutines > 1 || !c.parallel && len(c.waiting) > 0 {
			return
		}
	}
}

// takeReady takes the next command that may run now.
func (c *commands) takeReady(now time.Time) (command protocol.PlanCommand, retried *waitingCommand, found bool) {
	for n, w := range c.waiting {
		if !w.due.After(now) {
			c.waiting = slices.Delete(c.waiting, n, n+1)
			return w.PlanCommand, w, true
		}
	}
	if len(c.queue) == 0 || !c.parallel && len(c.waiting) > 0 {
		return command, nil, false
	}
	command, c.queue = c.queue[0], c.queue[1:]
	return command, nil, true
}

// listMore lists more commands, and reports whether there may be more to take.
func (p *planRun) listMore(ctx workflow.Context, c *commands) bool {
	switch {
	case c.allListed, !c.parallel && len(c.waiting) > 0:
		return false
	case c.listing:
		return workflow.Await(ctx, func() bool { return !c.listing }) == nil
	}
	c.listing = true
	defer func() { c.listing, p.woken = false, true }()
	all, err := p.listFrom(ctx, c.work, c.next)
	if err != nil {
		c.failed = rootCause(err)
		return false
	}
	for _, command := range all.Commands {
		if !c.isDone(command.At) {
			c.queue = append(c.queue, command)
		}
	}
	c.next, c.allListed = all.Next, all.Next == 0
	return true
}

func (p *planRun) listFrom(ctx workflow.Context, work protocol.PlanWork, from int) (all protocol.PlanCommands, err error) {
	err = p.callStore(ctx, protocol.ActivityPlanCommands, protocol.PlanCommandsRequest{PlanWork: work, From: from}, &all)
	return all, err
}

// listSteps lists all steps before or after all nodes.
func (p *planRun) listSteps(work protocol.PlanWork) (all []protocol.PlanCommand, err error) {
	for from := 0; ; {
		some, err := p.listFrom(p.ctx, work, from)
		all = append(all, some.Commands...)
		if from = some.Next; err != nil || from == 0 {
			return all, err
		}
	}
}

func (c *commands) isDone(at int) bool { return at < len(c.done) && c.done[at] == plan.Done.Letter() }

func (c *commands) finish(at int) {
	for len(c.done) <= at {
		c.done = append(c.done, plan.Waiting.Letter())
	}
	c.done[at] = plan.Done.Letter()
	delete(c.tries, at)
}

// runOnce runs a command once, and records the result.
func (p *planRun) runOnce(ctx workflow.Context, c *commands, command protocol.PlanCommand, retried *waitingCommand) {
	if retried == nil || !retried.notRun {
		p.setHeld(c.node, "")
	}
	ran, err := p.attempt(ctx, c, command)
	name := command.Run.Name
	switch {
	case errors.Is(err, errPostponed) && (ctx.Err() != nil || p.shouldEnd()):
		c.queue = slices.Insert(c.queue, 0, command)
	case errors.Is(err, errPostponed):
		p.postpone(c, &waitingCommand{PlanCommand: command, wait: retried.nextDelay(minLeaseDelay, maxLeaseDelay), why: "waits for a lease on " + c.work.Target, notRun: true})
	case temporal.IsCanceledError(err):
		c.setFailed(name + ": cancelled")
	case err == nil && ran.HoldReason != "":
		p.postpone(c, &waitingCommand{PlanCommand: command, wait: retried.nextDelay(10*time.Second, 5*time.Minute), why: ran.HoldReason, notRun: true})
	case err == nil && ran.Err == "":
		c.finish(command.At)
	default:
		if err != nil {
			ran.Err = "interrupted: " + rootCause(err)
		}
		c.tries[command.At]++
		tried, most := c.tries[command.At], command.Run.MaxAttempts
		if tried >= most {
			c.setFailed(name + ": " + ran.Err)
			break
		}
		wait := backoff(command.Run, tried)
		p.postpone(c, &waitingCommand{
			PlanCommand: command, wait: wait, why: fmt.Sprintf("%s failed, attempt %d of %d: %s; again in %s", name, tried, most, ran.Err, wait),
		})
	}
	p.unsaved, p.woken = true, true
}

// setFailed sets the failure of a node; the first one counts.
func (c *commands) setFailed(why string) {
	if c.failed == "" {
		c.failed = why
	}
}

// nextDelay is the next delay of a command that did not run.
func (w *waitingCommand) nextDelay(least, most time.Duration) time.Duration {
	if w == nil || !w.notRun {
		return least
	}
	return min(max(2*w.wait, least), most)
}

// postpone makes a command wait without a coroutine.
func (p *planRun) postpone(c *commands, w *waitingCommand) {
	w.due = workflow.Now(p.ctx).Add(w.wait)
	c.waiting = append(c.waiting, w)
	p.scheduleNode(w.due, c.node)
}

func (p *planRun) attempt(ctx workflow.Context, c *commands, command protocol.PlanCommand) (ran protocol.PlanRunAnswer, err error) {
	if slices.Contains(p.plan.Serial, c.work.Target) {
		if !p.acquireLease(ctx, c) {
			return ran, errPostponed
		}
		defer p.returnLease(ctx, c.work)
	}
	return p.execute(ctx, c.work, command, c.tries[command.At]+1)
}

// acquireLease reports whether a node has the lease of its target. If the lease is not granted soon, the request stays queued.
func (p *planRun) acquireLease(ctx workflow.Context, c *commands) bool {
	id := p.leaseID(c.work)
	lease := p.leases[id]
	if lease == nil {
		lease = &planLease{node: c.node, runtime: c.work.Target}
		p.leases[id] = lease
	}
	if !lease.granted {
		p.requestLease(ctx, c.work)
		_, _ = workflow.AwaitWithTimeout(ctx, minLeaseDelay, func() bool { return lease.granted || p.shouldEnd() })
	}
	if ctx.Err() != nil || p.shouldEnd() {
		p.returnLease(ctx, c.work)
		return false
	}
	if p.isGranted(ctx, protocol.LeaseSignal{ID: id, Runtime: c.work.Target}) {
		p.setHeld(c.node, "")
		return true
	}
	lease.granted = false
	return false
}

// returnAllLeases returns the leases of waiting commands, or withdraws the requests.
func (p *planRun) returnAllLeases() {
	for _, id := range entities.SortedKeys(p.leases) {
		runtime := p.leases[id].runtime
		delete(p.leases, id)
		p.callRuntime(p.ctx, protocol.LeaseCall{Runtime: runtime, Return: id})
	}
}

// recordResult records the state of a node with no running command.
func (p *planRun) recordResult(c *commands) {
	state, why := plan.Waiting, "" // the run ends, and the next one continues
	switch {
	case c.failed != "":
		state, why = plan.Failed, c.failed
	case c.allListed && len(c.queue) == 0 && len(c.waiting) == 0:
		state = plan.Done
	case len(c.waiting) > 0 && p.ctx.Err() == nil && !p.shouldEnd():
		state, why = plan.Held, c.waiting[0].why
	}
	if state == plan.Failed || state == plan.Done {
		delete(p.commands, c.node)
	}
	p.setState(c.node, state, why)
}

// makeDue makes the waiting commands of a node due, because its lease was granted.
func (p *planRun) makeDue(n int) {
	c, now := p.commands[n], workflow.Now(p.ctx)
	if c == nil || len(c.waiting) == 0 {
		return
	}
	for _, w := range c.waiting {
		w.due = now
	}
	p.scheduleNode(now, n)
}

// scheduleNode schedules a node for a time.
func (p *planRun) scheduleNode(at time.Time, n int) {
	index, _ := slices.BinarySearchFunc(p.due, at, func(d dueNode, at time.Time) int {
		if d.at.After(at) {
			return 1
		}
		return -1
	})
	p.due = slices.Insert(p.due, index, dueNode{at, n})
	p.woken = true
}

// resumeDue continues nodes that are due, within the limit on commands.
func (p *planRun) resumeDue() {
	now := workflow.Now(p.ctx)
	for len(p.due) > 0 && !p.due[0].at.After(now) && p.inFlight < maxRunningCommands {
		c := p.commands[p.due[0].node]
		p.due = p.due[1:]
		if c != nil && c.coroutines == 0 && p.nodes.Progress(c.node).State == plan.Held && c.ready(now) > 0 {
			p.startCoroutine(c)
		}
	}
	if len(p.due) > 0 && p.due[0].at.After(now) {
		p.wakeAt(p.due[0].at)
	}
}

// ready is how many commands of a node may be taken.
func (c *commands) ready(now time.Time) (count int) {
	for _, w := range c.waiting {
		if !w.due.After(now) {
			count++
		}
	}
	return count + len(c.queue)
}

// wakeAt wakes the plan at a time.
func (p *planRun) wakeAt(at time.Time) {
	if !p.wakeTime.IsZero() && !p.wakeTime.After(at) {
		return
	}
	p.wakeTime = at
	workflow.Go(p.followCtx, func(ctx workflow.Context) {
		_ = workflow.NewTimerWithOptions(ctx, at.Sub(workflow.Now(ctx)), workflow.TimerOptions{Summary: "continue waiting commands"}).Get(ctx, nil)
		if p.wakeTime.Equal(at) {
			p.wakeTime = time.Time{}
		}
		p.woken = true
	})
}

// startExtraCallbacks starts more coroutines for CALLBACK commands, in slots that no other node uses.
func (p *planRun) startExtraCallbacks() {
	c := p.callback
	if c == nil {
		return
	}
	ready := c.ready(workflow.Now(p.ctx))
	if !c.allListed && !c.listing {
		ready++ // a coroutine that finds none lists more
	}
	for c.coroutines > 0 && c.failed == "" && ready > c.idleCoroutines && p.inFlight < maxRunningCommands {
		if p.limit > 0 && p.nodes.Count(plan.Running)+p.extraCallbacks >= p.limit {
			return
		}
		p.startCoroutine(c)
	}
}
