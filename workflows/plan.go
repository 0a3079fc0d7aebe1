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
		ctx: ctx, in: in, leases: map[string]*planLease{}, notes: map[int]string{}, without: map[int]int{},
		commands: map[int]*commands{}, parts: map[int]protocol.PlanPart{},
	}
	p.state.Nodes = ""
	if err := workflow.SetQueryHandler(ctx, protocol.QueryStatus, inParts(&p.large, "plan "+in.ID(), p.status, cutPlan)); err != nil {
		return protocol.PlanStatus{}, err
	}
	p.watch, p.stop = workflow.WithCancel(ctx)
	p.listen()
	if err := p.begin(); err != nil {
		return protocol.PlanStatus{}, err
	}
	if p.steps(protocol.PlanBefore, &p.state.Before) {
		p.walk()
		if p.ends() {
			return protocol.PlanStatus{}, p.goOn()
		}
		if p.whole() && p.steps(protocol.PlanAfter, &p.state.After) {
			p.show()
		}
	}
	if ctx.Err() != nil {
		p.cancelled()
	}
	p.state.Over = true
	p.keep()
	p.show()
	return p.result(), ctx.Err()
}

// planRun is one run of a plan.
type planRun struct {
	ctx    workflow.Context
	in     protocol.PlanInput
	watch  workflow.Context // of the follow activity and the alarm
	stop   workflow.CancelFunc
	plan   plan.Plan
	hash   string
	limit  int
	nodes  *plan.Walker
	notes  map[int]string
	state  protocol.PlanState  // as stored; Nodes and Notes are filled in on write
	record protocol.PlanRecord // the stored record of state

	busy      int  // commands under way, and waits for leases
	following bool // the follow activity runs
	woken     bool
	dirty     bool  // state is not stored yet
	collects  []int // nodes that give collected values to an aggregator
	failing   bool  // some of collects may have to run again
	shown     string
	large     largeAnswers
	leases    map[string]*planLease
	commands  map[int]*commands         // of started nodes
	parts     map[int]protocol.PlanPart // of nodes that an earlier run started, and this one has not yet
	callback  *commands
	beside    int       // how many CALLBACK commands run in addition to the first
	due       []dueNode // the earliest first
	alarm     time.Time // when the timer for due fires

	without map[int]int // per node that gives collected values to an aggregator: how many services were undeployed when it started
}

// briefCall calls the store within the workflow task and retries until it answers. A refusal is an error.
func (p *planRun) briefCall(ctx workflow.Context, name string, request, answer any) error {
	ctx = uncancelled(ctx)
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := localCall{name: name, request: request, patient: asLongAs, of: theStore}.do(ctx, answer)
		var app *temporal.ApplicationError
		if digest := leftInStore(answer); err == nil && digest != "" {
			return p.fetchAnswer(ctx, digest, answer)
		}
		if err == nil || errors.As(err, &app) && app.Type() == protocol.ErrRefused {
			return err
		}
		if err := workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{Summary: "call the store again"}).Get(ctx, nil); err != nil {
			return err
		}
	}
}

// fetchAnswer reads an answer that the activity put in the store.
func (p *planRun) fetchAnswer(ctx workflow.Context, digest string, answer any) error {
	packed, err := fetchParts(ctx, digest, func(r protocol.RestoreRequest, part *protocol.RestoreAnswer) error {
		return p.briefCall(ctx, protocol.ActivityRestore, r, part)
	})
	if err != nil {
		return err
	}
	return packed.Unpack(answer)
}

func (p *planRun) begin() error {
	var begun protocol.PlanBegun
	if err := p.briefCall(p.ctx, protocol.ActivityPlanBegin, p.in, &begun); err != nil {
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
		PlanRef: p.in.PlanRef, PlanAsked: p.in.PlanAsked, Hash: begun.Hash, All: begun.All, Scope: begun.Scope, Beyond: begun.Beyond,
	}
	p.state.Over, p.state.Ended, p.state.Trouble = false, "", ""
	p.nodes, p.failing = p.plan.Walker(p.plan.Read(p.state.Nodes)), true
	for n := range p.plan.Nodes {
		if p.plan.Nodes[n].Collects() {
			p.collects = append(p.collects, n)
		}
	}
	for _, n := range p.state.Notes {
		p.notes[n.Node] = n.Text
	}
	return nil
}

// ends reports whether this run should end: the server suggests continue-as-new, or another version of workers is current.
func (p *planRun) ends() bool {
	info := workflow.GetInfo(p.ctx)
	return p.ctx.Err() == nil && !p.over() && (info.GetContinueAsNewSuggested() || info.GetTargetWorkerDeploymentVersionChanged())
}

// goOn continues as new. The next run reads the progress from the store.
func (p *planRun) goOn() error {
	p.keep()
	next := p.in
	next.Goes = true
	return workflow.NewContinueAsNewErrorWithOptions(p.ctx, onward, protocol.PlanWorkflow, next)
}

// walk processes the nodes until no node can make progress, or the run ends.
func (p *planRun) walk() {
	for {
		p.woken = false
		going := p.ctx.Err() == nil && !p.ends()
		if going {
			p.step()
		}
		if p.dirty {
			p.keep()
		}
		p.show()
		if p.busy == 0 && (!going || p.over()) {
			break
		}
		p.follow(going)
		if p.woken {
			continue
		}
		_ = workflow.Await(p.ctx, func() bool { return p.woken || p.ctx.Err() != nil && going || going && p.ends() })
		if p.ctx.Err() != nil { // the work in progress was cancelled
			_ = workflow.Await(uncancelled(p.ctx), func() bool { return p.busy == 0 })
		}
	}
	p.stop()
	p.giveAllBack()
}

// step starts the nodes that are ready.
func (p *planRun) step() {
	p.collectAgain()
	p.resume() // before new work starts: it may hold a lease
	step := p.nodes.Step(p.room())
	p.dirty = p.dirty || len(step.Begin)+len(step.Block) > 0
	p.woken, p.failing = p.woken || len(step.Block) > 0, p.failing || len(step.Block) > 0
	for _, n := range step.Begin {
		if p.plan.Nodes[n].Kind != plan.Deploy {
			p.carryOut(n)
		}
	}
	p.lend()
}

// collectAgain runs nodes again that give collected values to an aggregator if a DEPLOY failed since: its service keeps its previous
// values.
func (p *planRun) collectAgain() {
	if !p.failing {
		return
	}
	p.failing = false
	undeployed := len(p.nodes.Undeployed())
	for _, n := range p.collects {
		if p.nodes.So(n).State == plan.Done && p.without[n] < undeployed && p.state.Ended == "" {
			p.nodes.Set(n, plan.Waiting)
			p.without[n] = undeployed
		}
	}
}

func (p *planRun) over() bool { return p.busy == 0 && p.nodes.Over() }

// whole reports whether all nodes are done.
func (p *planRun) whole() bool {
	return p.nodes.Count(plan.Done) == len(p.plan.Nodes) && p.ctx.Err() == nil
}

// became records the new state of a node.
func (p *planRun) became(n int, state plan.State, why string) {
	p.nodes.Set(n, state)
	p.woken, p.dirty = true, true
	p.failing = p.failing || state == plan.Failed || state == plan.Done && p.plan.Nodes[n].Collects()
	delete(p.notes, n)
	if why != "" && state != plan.Done && state != plan.Running {
		p.notes[n] = clip(why)
	}
}

// maxNotes is the limit on stored reasons for the states of nodes.
const maxNotes = 100

// keep stores the progress of the plan.
func (p *planRun) keep() {
	p.dirty = false
	p.state.Nodes, p.state.Notes = p.nodes.Letters(), nil
	for _, n := range entities.SortedKeys(p.notes) {
		if text := p.notes[n]; text != "" && len(p.state.Notes) < maxNotes {
			p.state.Notes = append(p.state.Notes, protocol.PlanNote{Node: n, Text: text})
		}
	}
	p.state.Parts = p.begunParts()
	p.record.PlanState = p.state
	_ = p.briefCall(p.ctx, protocol.ActivityPlanKeep, protocol.PlanKeepRequest{PlanRecord: p.record}, nil)
}

// retryFollowing is the delay before the follow activity is started again after it failed.
const retryFollowing = 10 * time.Second

// follow starts the activity that follows the deployed services, while the plan runs.
func (p *planRun) follow(going bool) {
	if p.following || !going {
		return
	}
	p.following = true
	ctx := enduring(p.watch, "follow deployed services")
	future := workflow.ExecuteActivity(ctx, protocol.ActivityPlanFollow, p.in.PlanRef)
	workflow.Go(p.watch, func(ctx workflow.Context) {
		var found protocol.PlanFollowed
		err := future.Get(ctx, &found)
		if err != nil { // cancelled, the record is gone, or its worker was gone for over an hour: start again
			_ = workflow.Sleep(ctx, retryFollowing)
			p.dirty = true
		}
		p.following, p.woken = false, true
		for _, node := range found.Nodes {
			if n := node.Node; n < len(p.plan.Nodes) && p.underWay(n) {
				p.became(n, plan.State(node.State), node.Text)
			}
		}
		if found.Superseded {
			p.drop(protocol.PlanSuperseded)
		}
	})
}

// underWay reports whether a node has started and is not finished.
func (p *planRun) underWay(n int) bool {
	s := p.nodes.So(n).State
	return s == plan.Running || s == plan.Held
}

// drop prevents further nodes from starting.
func (p *planRun) drop(why string) {
	p.state.Ended = why
	for n := range p.plan.Nodes {
		if p.nodes.So(n).State == plan.Waiting {
			p.became(n, plan.Superseded, "")
		}
	}
}

// cancelled does not touch services that were let in: they continue on their own.
func (p *planRun) cancelled() {
	p.drop(protocol.PlanCancelled)
	for n := range p.plan.Nodes {
		if p.underWay(n) {
			p.became(n, plan.Superseded, "the plan was cancelled")
		}
	}
}

// steps runs the commands before or after all nodes one by one, and reports whether all are done. Commands that are done already are not
// run again.
func (p *planRun) steps(kind string, letters *string) bool {
	if strings.Trim(*letters, string(plan.Done.Letter())) == "" {
		return true
	}
	work := protocol.PlanWork{PlanRef: p.in.PlanRef, Hash: p.hash, Kind: kind}
	all, err := p.listSteps(work)
	if err != nil {
		p.state.Trouble = rootCause(err)
		return false
	}
	set := func(n int, s plan.State) {
		*letters = (*letters)[:n] + string(s.Letter()) + (*letters)[n+1:]
		p.keep()
		p.show()
	}
	for n := range min(len(all), len(*letters)) {
		if (*letters)[n] == plan.Done.Letter() {
			continue
		}
		set(n, plan.Running)
		failed := p.run(p.ctx, work, all[n])
		if failed != "" {
			p.state.Trouble = clip(all[n].Run.Name + ": " + failed)
			set(n, plan.Failed)
			return false
		}
		set(n, plan.Done)
	}
	return true
}

func (p *planRun) status() (protocol.PlanStatus, error) {
	out := protocol.PlanStatus{
		Schema: "converge.plan-run/v1", PlanRef: p.in.PlanRef, Before: p.state.Before, After: p.state.After, Trouble: p.state.Trouble,
		Over: p.state.Over, Ended: p.state.Ended, Nodes: []protocol.PlanNodeStatus{},
	}
	for n := range p.plan.Nodes {
		of, so := &p.plan.Nodes[n], p.nodes.So(n)
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
	if text := p.details(); text != p.shown {
		workflow.SetCurrentDetails(p.ctx, text)
		p.shown = text
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
		if s := p.nodes.So(n).State; s != plan.Done && s != plan.Waiting {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", explain.Plain(p.plan.Nodes[n].String()), s, explain.Plain(p.notes[n]))
			shown++
		}
	}
	if p.state.Trouble != "" {
		b.WriteString("\n\n" + explain.Plain(p.state.Trouble))
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
