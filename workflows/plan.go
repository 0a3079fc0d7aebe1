package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// Plan walks a plan once (E8–E14). It lets services enter, follows their releases, and runs the commands of the other nodes, each as soon
// as the nodes that it needs are done. The result of a node is in the store before the plan continues.
//
// It is not an entity that lives forever. Other workflows exchange only leases with it, and all its state is in the store, so a plan that
// was terminated can continue from there.
func Plan(ctx workflow.Context, in protocol.PlanInput) (protocol.PlanStatus, error) {
	p := &planRun{
		ctx: ctx, in: in, leases: map[string]*planLease{}, notes: map[int]string{}, undeployedAtStart: map[int]int{},
		commands: map[int]*commands{}, parts: map[int]protocol.NodeProgress{},
	}
	p.state.Nodes = ""
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&p.large, "plan "+in.ID(), p.status, cutPlan)); err != nil {
		return protocol.PlanStatus{}, err
	}
	p.followCtx, p.stopFollowing = workflow.WithCancel(ctx)
	p.receiveLeaseSignals()
	if err := p.load(); err != nil {
		return protocol.PlanStatus{}, err
	}
	if p.runSteps(protocol.PlanBefore, &p.state.Before) {
		p.walk()
		if p.shouldEnd() {
			return protocol.PlanStatus{}, p.continueAsNew()
		}
		if p.allDone() && p.runSteps(protocol.PlanAfter, &p.state.After) {
			p.show()
		}
	}
	if ctx.Err() != nil {
		p.markCancelled()
	}
	p.state.Over = true
	p.save()
	p.show()
	return p.result(), ctx.Err()
}

// planRun is one run of a plan.
type planRun struct {
	ctx           workflow.Context
	in            protocol.PlanInput
	followCtx     workflow.Context // of the follow activity and the alarm
	stopFollowing workflow.CancelFunc
	plan          plan.Plan
	hash          string
	limit         int
	nodes         *plan.Walker
	notes         map[int]string
	state         protocol.PlanState  // as stored; Nodes and Notes are filled in on write
	record        protocol.PlanRecord // the stored record of state

	inFlight       int  // running commands, and waits for leases
	following      bool // the follow activity runs
	woken          bool
	unsaved        bool  // state is not stored yet
	collectNodes   []int // nodes that give collected values to an aggregator
	mayRecollect   bool  // some of collectNodes may have to run again
	shownDetails   string
	large          largeAnswers
	leases         map[string]*planLease
	commands       map[int]*commands             // of started nodes
	parts          map[int]protocol.NodeProgress // of nodes that an earlier run started, and this one has not yet
	callback       *commands
	extraCallbacks int       // how many CALLBACK commands run in addition to the first
	due            []dueNode // the earliest first
	wakeTime       time.Time // when the timer for due fires

	undeployedAtStart map[int]int // per node that gives collected values to an aggregator: how many services were undeployed when it started
}

// callStore calls the store within the workflow task and retries until it answers. A refusal is an error.
func (p *planRun) callStore(ctx workflow.Context, name string, request, answer any) error {
	ctx = withoutCancel(ctx)
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := localCall{name: name, request: request, timeout: requiredCallTimeout, dependency: depStore}.do(ctx, answer)
		var app *temporal.ApplicationError
		if digest := storedAnswerDigest(answer); err == nil && digest != "" {
			return p.fetchStoredAnswer(ctx, digest, answer)
		}
		if err == nil || errors.As(err, &app) && app.Type() == protocol.ErrRefused {
			return err
		}
		if err := workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{Summary: "call the store again"}).Get(ctx, nil); err != nil {
			return err
		}
	}
}

// fetchStoredAnswer reads an answer that the activity put in the store.
func (p *planRun) fetchStoredAnswer(ctx workflow.Context, digest string, answer any) error {
	packed, err := fetchParts(ctx, digest, func(r protocol.RestoreRequest, part *protocol.RestoreAnswer) error {
		return p.callStore(ctx, protocol.ActivityRestore, r, part)
	})
	if err != nil {
		return err
	}
	return packed.Unpack(answer)
}

func (p *planRun) load() error {
	var begun protocol.PlanStart
	if err := p.callStore(p.ctx, protocol.ActivityPlanBegin, p.in, &begun); err != nil {
		return err
	}
	if err := begun.Plan.Unpack(&p.plan); err != nil {
		return temporal.NewNonRetryableApplicationError("the plan cannot be read: "+err.Error(), "Malformed", err)
	}
	if err := p.unpack(&begun); err != nil {
		return err
	}
	p.hash, p.limit = begun.Hash, begun.Limit
	p.record = protocol.PlanRecord{
		PlanRef: p.in.PlanRef, PlanTask: p.in.PlanTask, Hash: begun.Hash, All: begun.All, Scope: begun.Scope, SupersededAfter: begun.SupersededAfter,
	}
	p.state.Over, p.state.Ended, p.state.StepError = false, "", ""
	p.nodes, p.mayRecollect = p.plan.Walker(p.plan.ReadLetters(p.state.Nodes)), true
	for n := range p.plan.Nodes {
		if p.plan.Nodes[n].Collects() {
			p.collectNodes = append(p.collectNodes, n)
		}
	}
	for _, n := range p.state.Notes {
		p.notes[n.Node] = n.Text
	}
	return nil
}

// shouldEnd reports whether this run should end: the server suggests continue-as-new, or another version of workers is current.
func (p *planRun) shouldEnd() bool {
	info := workflow.GetInfo(p.ctx)
	return p.ctx.Err() == nil && !p.finished() && (info.GetContinueAsNewSuggested() || info.GetTargetWorkerDeploymentVersionChanged())
}

// continueAsNew continues as new. The next run reads the progress from the store.
func (p *planRun) continueAsNew() error {
	p.save()
	next := p.in
	next.Continued = true
	return workflow.NewContinueAsNewErrorWithOptions(p.ctx, continueOptions, protocol.PlanWorkflow, next)
}

// walk processes the nodes until no node can make progress, or the run ends.
func (p *planRun) walk() {
	for {
		p.woken = false
		working := p.ctx.Err() == nil && !p.shouldEnd()
		if working {
			p.step()
		}
		if p.unsaved {
			p.save()
		}
		p.show()
		if p.inFlight == 0 && (!working || p.finished()) {
			break
		}
		p.follow(working)
		if p.woken {
			continue
		}
		_ = workflow.Await(p.ctx, func() bool { return p.woken || p.ctx.Err() != nil && working || working && p.shouldEnd() })
		if p.ctx.Err() != nil { // the work in progress was cancelled
			_ = workflow.Await(withoutCancel(p.ctx), func() bool { return p.inFlight == 0 })
		}
	}
	p.stopFollowing()
	p.returnAllLeases()
}

// step starts the nodes that are ready.
func (p *planRun) step() {
	p.recollect()
	p.resumeDue() // before new work starts: it may hold a lease
	step := p.nodes.Step(p.freeCapacity())
	p.unsaved = p.unsaved || len(step.Begin)+len(step.Block) > 0
	p.woken, p.mayRecollect = p.woken || len(step.Block) > 0, p.mayRecollect || len(step.Block) > 0
	for _, n := range step.Begin {
		if p.plan.Nodes[n].Kind != plan.Deploy {
			p.startCommands(n)
		}
	}
	p.startExtraCallbacks()
}

// recollect runs nodes again that give collected values to an aggregator if a DEPLOY failed since: its service keeps its previous
// values.
func (p *planRun) recollect() {
	if !p.mayRecollect {
		return
	}
	p.mayRecollect = false
	undeployed := len(p.nodes.Undeployed())
	for _, n := range p.collectNodes {
		if p.nodes.Progress(n).State == plan.Done && p.undeployedAtStart[n] < undeployed && p.state.Ended == "" {
			p.nodes.Set(n, plan.Waiting)
			p.undeployedAtStart[n] = undeployed
		}
	}
}

func (p *planRun) finished() bool { return p.inFlight == 0 && p.nodes.Over() }

// allDone reports whether all nodes are done.
func (p *planRun) allDone() bool {
	return p.nodes.Count(plan.Done) == len(p.plan.Nodes) && p.ctx.Err() == nil
}

// setState records the new state of a node.
func (p *planRun) setState(n int, state plan.State, why string) {
	p.nodes.Set(n, state)
	p.woken, p.unsaved = true, true
	p.mayRecollect = p.mayRecollect || state == plan.Failed || state == plan.Done && p.plan.Nodes[n].Collects()
	delete(p.notes, n)
	if why != "" && state != plan.Done && state != plan.Running {
		p.notes[n] = clip(why)
	}
}

// maxNotes is the limit on stored reasons for the states of nodes.
const maxNotes = 100

// save stores the progress of the plan.
func (p *planRun) save() {
	p.unsaved = false
	p.state.Nodes, p.state.Notes = p.nodes.Letters(), nil
	for _, n := range entities.SortedKeys(p.notes) {
		if text := p.notes[n]; text != "" && len(p.state.Notes) < maxNotes {
			p.state.Notes = append(p.state.Notes, protocol.PlanNote{Node: n, Text: text})
		}
	}
	p.state.Parts = p.partsProgress()
	p.record.PlanState = p.state
	_ = p.callStore(p.ctx, protocol.ActivityPlanKeep, protocol.PlanKeepRequest{PlanRecord: p.record}, nil)
}

// followRetryDelay is the delay before the follow activity is started again after it failed.
const followRetryDelay = 10 * time.Second

// follow starts the activity that follows the deployed services, while the plan runs.
func (p *planRun) follow(working bool) {
	if p.following || !working {
		return
	}
	p.following = true
	ctx := withLongActivity(p.followCtx, "follow deployed services")
	future := workflow.ExecuteActivity(ctx, protocol.ActivityPlanFollow, p.in.PlanRef)
	workflow.Go(p.followCtx, func(ctx workflow.Context) {
		var found protocol.PlanFollowAnswer
		err := future.Get(ctx, &found)
		if err != nil { // cancelled, the record is gone, or its worker was gone for over an hour: start again
			_ = workflow.Sleep(ctx, followRetryDelay)
			p.unsaved = true
		}
		p.following, p.woken = false, true
		for _, node := range found.Nodes {
			if n := node.Node; n < len(p.plan.Nodes) && p.isActive(n) {
				p.setState(n, plan.State(node.State), node.Text)
			}
		}
		if found.Superseded {
			p.supersedeWaiting(protocol.PlanSuperseded)
		}
	})
}

// isActive reports whether a node has started and is not finished.
func (p *planRun) isActive(n int) bool {
	s := p.nodes.Progress(n).State
	return s == plan.Running || s == plan.Held
}

// supersedeWaiting prevents further nodes from starting.
func (p *planRun) supersedeWaiting(why string) {
	p.state.Ended = why
	for n := range p.plan.Nodes {
		if p.nodes.Progress(n).State == plan.Waiting {
			p.setState(n, plan.Superseded, "")
		}
	}
}

// markCancelled does not touch services that were let in: they continue on their own.
func (p *planRun) markCancelled() {
	p.supersedeWaiting(protocol.PlanCancelled)
	for n := range p.plan.Nodes {
		if p.isActive(n) {
			p.setState(n, plan.Superseded, "the plan was cancelled")
		}
	}
}

// runSteps runs the commands before or after all nodes one by one, and reports whether all are done. Commands that are done already are not
// run again.
func (p *planRun) runSteps(kind string, letters *string) bool {
	if strings.Trim(*letters, string(plan.Done.Letter())) == "" {
		return true
	}
	work := protocol.PlanWork{PlanRef: p.in.PlanRef, Hash: p.hash, Kind: kind}
	all, err := p.listSteps(work)
	if err != nil {
		p.state.StepError = rootCause(err)
		return false
	}
	set := func(n int, s plan.State) {
		*letters = (*letters)[:n] + string(s.Letter()) + (*letters)[n+1:]
		p.save()
		p.show()
	}
	for n := range min(len(all), len(*letters)) {
		if (*letters)[n] == plan.Done.Letter() {
			continue
		}
		set(n, plan.Running)
		failed := p.runStep(p.ctx, work, all[n])
		if failed != "" {
			p.state.StepError = clip(all[n].Run.Name + ": " + failed)
			set(n, plan.Failed)
			return false
		}
		set(n, plan.Done)
	}
	return true
}

func (p *planRun) status() (protocol.PlanStatus, error) {
	out := protocol.PlanStatus{
		Schema: "converge.plan-run/v1", PlanRef: p.in.PlanRef, Before: p.state.Before, After: p.state.After, StepError: p.state.StepError,
		Over: p.state.Over, Ended: p.state.Ended, Nodes: []protocol.PlanNodeStatus{},
	}
	for n := range p.plan.Nodes {
		of, so := &p.plan.Nodes[n], p.nodes.Progress(n)
		node := protocol.PlanNodeStatus{Node: of.String(), State: string(so.State), Text: p.notes[n], Needs: of.Needs, After: of.After}
		switch so.State {
		case plan.Waiting:
			node.State = "waiting"
		case plan.Blocked:
			node.Text = "by " + p.plan.Nodes[so.Cause].String()
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out, nil
}

// result is the result of a plan: the nodes that are not done, up to the limit on notes. The status query, which also works after the end,
// has all nodes.
func (p *planRun) result() protocol.PlanStatus {
	status, _ := p.status()
	status.Nodes = slices.DeleteFunc(status.Nodes, func(n protocol.PlanNodeStatus) bool { return n.State == string(plan.Done) })
	status.Nodes = status.Nodes[:min(maxNotes, len(status.Nodes))]
	for n := range status.Nodes {
		status.Nodes[n].Needs, status.Nodes[n].After = nil, nil
	}
	status.Nodes = entities.Fitting(status.Nodes, resultBytes)
	return status
}

// resultBytes is the size available for nodes in the result of a plan.
const resultBytes = 48 << 10

// show updates the text in the Temporal UI.
func (p *planRun) show() {
	if text := p.details(); text != p.shownDetails {
		workflow.SetCurrentDetails(p.ctx, text)
		p.shownDetails = text
	}
}

func (p *planRun) details() string {
	var b, table strings.Builder
	fmt.Fprintf(&b, "**%d of %d done**", p.nodes.Count(plan.Done), len(p.plan.Nodes))
	rows := 0
	for _, s := range []plan.State{plan.Running, plan.Held, plan.Failed, plan.Blocked, plan.Superseded} {
		if count := p.nodes.Count(s); count > 0 {
			fmt.Fprintf(&b, ", %d %s", count, s)
			rows += count
		}
	}
	for n, shown := 0, 0; shown < min(rows, maxRows); n++ {
		if s := p.nodes.Progress(n).State; s != plan.Done && s != plan.Waiting {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", explain.Plain(p.plan.Nodes[n].String()), s, explain.Plain(p.notes[n]))
			shown++
		}
	}
	if p.state.StepError != "" {
		b.WriteString("\n\n" + explain.Plain(p.state.StepError))
	}
	if rows == 0 {
		return b.String()
	}
	b.WriteString("\n\n| what | | |\n|---|---|---|\n" + table.String())
	if rows > maxRows {
		fmt.Fprintf(&b, "\nand %d more", rows-maxRows)
	}
	return b.String()
}

// backoff is the delay before the next attempt of a command.
func backoff(e entities.Extension, attempt int) time.Duration {
	wait := max(e.RetryBackoff, time.Second)
	for range min(attempt-1, 20) {
		wait = min(2*wait, max(e.RetryMax, wait))
	}
	return wait
}
