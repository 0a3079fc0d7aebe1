package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file runs the commands of nodes. On a target that allows one operation at a time they take a lease, as do services that apply there
// and other plans (E14). A running command holds the lease; a waiting one does not.

// workOf describes a node to activities, and records how many services are undeployed when it starts.
func (p *planRun) workOf(n int) protocol.PlanWork {
	node := &p.plan.Nodes[n]
	work := protocol.PlanWork{PlanRef: p.in.PlanRef, Hash: p.hash, Kind: string(node.Kind), Service: node.Service, Target: node.Target}
	if node.Collects() || node.Kind == plan.Callback {
		work.Undeployed = p.nodes.Undeployed()
		_, work.Rerun = p.undeployedAtStart[n]
		p.undeployedAtStart[n] = len(work.Undeployed)
		if len(entities.Fitting(work.Undeployed, maxInlineUndeployed)) < len(work.Undeployed) {
			work.UndeployedNodes, work.Undeployed = p.nodesOf(work.Undeployed), nil
		}
	}
	return work
}

// maxInlineUndeployed is the size in bytes up to which their names are sent inline.
const maxInlineUndeployed = 24 << 10

// nodesOf has one letter per node: x for nodes of the given services.
func (p *planRun) nodesOf(services []string) string {
	of, out := map[string]bool{}, []byte(strings.Repeat(".", len(p.plan.Nodes)))
	for _, service := range services {
		of[service] = true
	}
	for n := range out {
		if of[p.plan.Nodes[n].Service] {
			out[n] = 'x'
		}
	}
	return string(out)
}

// errPostponed: a command did not run; the node continues later, perhaps in the next run.
var errPostponed = errors.New("postponed")

// setHeld shows why a node is blocked; "" means that it is running.
func (p *planRun) setHeld(n int, why string) {
	state := plan.Running
	if why != "" {
		state = plan.Held
	}
	if p.nodes.Progress(n).State != state || p.notes[n] != why {
		p.setState(n, state, why)
	}
}

// runStep runs a step before or after all nodes until it succeeds or has no attempts left. It returns the failure.
func (p *planRun) runStep(ctx workflow.Context, work protocol.PlanWork, c protocol.PlanCommand) (failed string) {
	wait := time.Duration(0)
	for attempt := 1; ; {
		if workflow.Sleep(ctx, wait) != nil {
			return "cancelled"
		}
		ran, err := p.execute(ctx, work, c, attempt)
		switch {
		case temporal.IsCanceledError(err):
			return "cancelled"
		case err == nil && ran.HoldReason != "":
			wait = min(max(2*wait, 10*time.Second), 5*time.Minute)
			continue
		case err != nil:
			ran.Err = "interrupted: " + rootCause(err)
		}
		if ran.Err == "" {
			return ""
		}
		if attempt >= c.Run.MaxAttempts {
			return ran.Err
		}
		wait = backoff(c.Run, attempt)
		attempt++
	}
}

func (p *planRun) execute(ctx workflow.Context, work protocol.PlanWork, c protocol.PlanCommand, attempt int) (ran protocol.PlanRunAnswer, err error) {
	queue := taskQueueOf(work.Target, entities.RuntimeSpec{Remote: c.Run.Remote})
	options := heartbeatOptions(queue, c.Run.Timeout+margin, 0, fmt.Sprintf("run %s for %s", c.Run.Name, work))
	options.WaitForCancellation = true
	err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivityPlanRun,
		protocol.PlanRunRequest{PlanWork: work, Command: c, Attempt: attempt}).Get(ctx, &ran)
	return ran, err
}

// planLease is a lease that a node has, or waits for.
type planLease struct {
	node    int
	granted bool
	runtime string
}

func (p *planRun) leaseID(work protocol.PlanWork) string { return p.in.ID() + "/" + work.String() }

// minLeaseDelay is the first delay before a lease that was not granted is requested again, and maxLeaseDelay the longest.
const (
	minLeaseDelay = 10 * time.Second
	maxLeaseDelay = 10 * time.Minute
)

func (p *planRun) requestLease(ctx workflow.Context, work protocol.PlanWork) {
	p.callRuntime(ctx, protocol.LeaseCall{Runtime: work.Target, Request: &entities.LeaseRequest{
		ID: p.leaseID(work), Holder: p.in.ID(), Description: fmt.Sprintf("%s %s, plan %s", p.in.Application, work, p.in.Name), Limit: 1, Timeout: time.Hour,
	}})
}

// isGranted queries the runtime, because a signal alone is no proof.
func (p *planRun) isGranted(ctx workflow.Context, l protocol.LeaseSignal) bool {
	ctx = withoutCancel(ctx)
	var answer protocol.GrantedAnswer
	err := localCall{name: protocol.ActivityGranted, request: l, timeout: confirmTimeout, dependency: depRuntimes}.do(ctx, &answer)
	return err == nil && answer.Granted
}

func (p *planRun) returnLease(ctx workflow.Context, work protocol.PlanWork) {
	id := p.leaseID(work)
	delete(p.leases, id)
	p.callRuntime(ctx, protocol.LeaseCall{Runtime: work.Target, Return: id})
}

// callRuntime calls a Runtime workflow. A call that does not arrive is repeated, or the Runtime queries the plan later.
func (p *planRun) callRuntime(ctx workflow.Context, call protocol.LeaseCall) {
	ctx = withoutCancel(ctx)
	_ = localCall{name: protocol.ActivityLease, request: call, timeout: requiredCallTimeout, dependency: depRuntimes}.do(ctx, nil)
}

// receiveLeaseSignals receives the lease signals of runtimes.
func (p *planRun) receiveLeaseSignals() {
	signals := func(name string, take func(workflow.Context, protocol.LeaseSignal)) {
		workflow.Go(p.ctx, func(ctx workflow.Context) {
			for channel := workflow.GetSignalChannel(ctx, name); ; {
				var l protocol.LeaseSignal
				channel.Receive(ctx, &l)
				take(ctx, l)
			}
		})
	}
	signals(protocol.SignalGranted, func(ctx workflow.Context, l protocol.LeaseSignal) {
		if lease := p.leases[l.ID]; lease != nil {
			lease.granted = true
			p.makeDue(lease.node)
		} else if l.Runtime != "" {
			p.callRuntime(ctx, protocol.LeaseCall{Runtime: l.Runtime, Return: l.ID})
		}
	})
	signals(protocol.SignalHeld, func(ctx workflow.Context, l protocol.LeaseSignal) {
		if l.Runtime == "" {
			return
		}
		call := protocol.LeaseCall{Runtime: l.Runtime, Return: l.ID}
		if p.leases[l.ID] != nil {
			call.Return, call.Confirm = "", l.ID
		}
		p.callRuntime(ctx, call)
	})
}
