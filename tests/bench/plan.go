package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/bench/report"
)

// overhead bounds the time that a plan takes by that of its critical path.
const overhead = 1.05

// planned is an application whose services need each other.
type planned struct {
	name     string
	services int
	each     func(n int) string // what service n says of others, as fields
	least    time.Duration      // that a piece of work takes; 0: it is done at once
}

// measurePlan runs plans of which everything is to be deployed: the time that each takes beside that of its critical path, and of the same
// work in strict phases.
func measurePlan(ctx context.Context, b *bench) error {
	for _, p := range []planned{
		{"chain", 10, chained, 2 * time.Second},
		{"home", 30, fitted, 2 * time.Second},
		{"many", b.services, layered, 0},
	} {
		if err := p.measure(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	b.Note(b.row, "each piece of work takes 2 to 5 s by itself, an apply of DEPLOY as a command of the others; the critical path is the longest sum of those.")
	b.Note(b.row, "  Strict phases do all of a kind before any of the next, as much at once as is ready, and cost nothing between: worked out of the same times.")
	return nil
}

// chained: each service requires the one before.
func chained(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", requires: [s%04d]", n-1)
}

// fitted: three databases, two aggregators, and what is between: some set up, some reconciled, some in rows of three.
func fitted(n int) (text string) {
	switch {
	case n < 3:
		return ""
	case n < 5:
		return ", aggregator: {sync: {strategy: dir, command: [sleep, SECONDS]}}"
	case n%3 == 2:
		text = fmt.Sprintf(", requires: [s%04d]", n/3%3)
	default:
		text = fmt.Sprintf(", requires: [s%04d]", n-1)
	}
	if n%8 == 0 {
		text += ", setupCallback: {command: [sleep, SECONDS]}"
	}
	if n%3 == 0 {
		text += ", reconcilers: [{name: register, command: [sleep, SECONDS]}]"
	}
	return text + fmt.Sprintf(", dns: [{name: s%04d.example.org}]", n)
}

// layered: ten layers, each service needs two of the one before; one in ten is reconciled.
func layered(n int) (text string) {
	const layer = 100
	if n >= layer {
		text = fmt.Sprintf(", requires: [s%04d, s%04d]", n-layer, n-layer/2-1)
	}
	if n%10 == 0 {
		text += ", reconcilers: [{name: register, command: [\"true\"]}]"
	}
	return text
}

// takes is how long the work of a service takes, whatever it is.
func (p planned) takes(n int) time.Duration {
	if p.least == 0 {
		return 0
	}
	return p.least + time.Duration(n*7%4)*time.Second
}

// yaml declares it; round is in the payload of every service.
func (p planned) yaml(round int) string {
	text := fmt.Sprintf("apiVersion: converge/v1\nkind: Application\nname: %[1]s\n"+
		"releaseChannels: [{name: live, runtimes: [{name: %[1]s-rt}], constants: {round: \"%[2]d\"}}]\n", p.name, round)
	if strings.Contains(p.each(5), "dns:") {
		text += "plan: {dns: {command: [sleep, \"3\"]}}\n"
	}
	text += fmt.Sprintf("---\napiVersion: converge/v1\nkind: Runtime\nname: %s-rt\nfake: {pollInterval: 5s, steadyPollInterval: 1h}\n", p.name)
	for n := range p.services {
		text += fmt.Sprintf("---\n{apiVersion: converge/v1, kind: Service, name: s%04d, initialVersion: v1, custom: {env: {ROUND: \"${{ constants.round }}\"}}%s}\n",
			n, strings.ReplaceAll(p.each(n), "SECONDS", fmt.Sprintf("%q", fmt.Sprint(p.takes(n).Seconds()))))
	}
	return text
}

// measure has everything deployed at once, and then once more in the times that it takes.
func (p planned) measure(ctx context.Context, b *bench) (err error) {
	fmt.Fprintf(b.log, "%s ... ", p.name)
	w, err := newWorld(ctx, filepath.Join(b.dir, p.name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var last ran
	for round := 1; round <= 2; round++ {
		if last, err = p.run(ctx, w, round); err != nil {
			return err
		}
		if p.least == 0 {
			break
		}
		takes := map[string]time.Duration{}
		for n := range p.services {
			takes[fmt.Sprintf("s%04d", n)] = p.takes(n)
		}
		w.stage.slow(takes)
	}
	return p.report(ctx, b, w, last)
}

// ran is a plan that was run.
type ran struct {
	ref         protocol.PlanRef
	took, since time.Duration // of the plan, and since it was published
}

// run publishes a round and waits until its plan is over.
func (p planned) run(ctx context.Context, w *world, round int) (r ran, err error) {
	r.ref = protocol.PlanOfIncarnation(p.name, "live", int64(round))
	began := time.Now()
	if err := w.publishFiles(ctx, p.name, map[string]string{"converge.yaml": p.yaml(round)}); err != nil {
		return r, err
	}
	err = until(ctx, 50*time.Millisecond, func() (bool, error) {
		d, err := w.client.DescribeWorkflowExecution(ctx, r.ref.ID(), "")
		if absent := new(serviceerror.NotFound); errors.As(err, &absent) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		info := d.GetWorkflowExecutionInfo()
		if info.GetCloseTime() == nil {
			return false, nil
		}
		r.since = info.GetCloseTime().AsTime().Sub(began)
		return true, nil
	})
	if err != nil {
		return r, err
	}
	var s protocol.PlanStatus
	if err := w.client.GetWorkflow(ctx, r.ref.ID(), "").Get(ctx, &s); err != nil {
		return r, err
	}
	if i := slices.IndexFunc(s.Nodes, func(n protocol.PlanNodeStatus) bool { return n.State != string(plan.Done) }); i >= 0 {
		return r, fmt.Errorf("%s is %s: %s", s.Nodes[i].Node, s.Nodes[i].State, s.Nodes[i].Text)
	}
	first, err := w.firstRun(ctx, r.ref.ID())
	if err == nil {
		r.took = began.Add(r.since).Sub(first)
	}
	return r, err
}

// firstRun is when the first of the runs of a workflow began.
func (w *world) firstRun(ctx context.Context, id string) (time.Time, error) {
	d, err := w.client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return time.Time{}, err
	}
	d, err = w.client.DescribeWorkflowExecution(ctx, id, d.GetWorkflowExecutionInfo().GetFirstRunId())
	return d.GetWorkflowExecutionInfo().GetStartTime().AsTime(), err
}

// built builds the plan that ran, of everything.
func (p planned) built(ctx context.Context, w *world) (built *plan.Plan, took time.Duration, err error) {
	s, err := store.Open(ctx, w.store())
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	number, err := s.Number(ctx, p.name, 1)
	if err != nil {
		return nil, 0, err
	}
	inc, err := s.Incarnation(ctx, number.Hash)
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	built, err = inc.Work("live").Plan(plan.Scope{All: true})
	return built, time.Since(began), err
}

func (p planned) report(ctx context.Context, b *bench, w *world, r ran) error {
	built, took, err := p.built(ctx, w)
	if err != nil {
		return err
	}
	events, bytes, largest, err := w.runs(ctx, r.ref.ID())
	if err != nil {
		return err
	}
	packed, err := json.Marshal(built)
	if err != nil {
		return err
	}
	nodes := len(built.Nodes)
	line := report.Line{
		Row: b.row, What: fmt.Sprintf("plan of %d services (%s)", p.services, p.name), Measured: report.Value{Number: r.took.Seconds(), Unit: report.Seconds},
		Spread: fmt.Sprintf("%d nodes; %.1f events each, %d KiB; largest payload %d KiB", nodes, float64(events)/float64(nodes), bytes>>10, largest>>10),
	}
	if p.least > 0 {
		path, phases := p.critical(built, allAtOnce), p.critical(built, inPhases)
		line.Reference, line.Against = &report.Value{Number: path.Seconds(), Unit: report.Seconds}, "critical path"
		line.Goal = &report.Value{Number: overhead, Unit: report.Times}
		b.Add(line)
		b.Add(report.Line{
			Row: b.row, What: "the same, against strict phases", Measured: line.Measured,
			Reference: &report.Value{Number: phases.Seconds(), Unit: report.Seconds}, Against: "strict phases",
			Spread: fmt.Sprintf("%s since it was published", r.since.Round(100*time.Millisecond)),
		})
		return nil
	}
	line.Spread += fmt.Sprintf("; built in %s, %d KiB", took.Round(100*time.Microsecond), len(packed)>>10)
	b.Add(line)
	return nil
}

// allAtOnce: a node waits for what it needs. In phases it waits for all of the kinds before its own, too.
const (
	allAtOnce = false
	inPhases  = true
)

// kinds in the order of strict phases.
var phaseOrder = []plan.Kind{plan.Deploy, plan.Callback, plan.Sync, plan.Redeploy, plan.Reconcile, plan.DNS}

// critical is when the last node ends that begins as soon as it may.
func (p planned) critical(built *plan.Plan, phased bool) (last time.Duration) {
	ends := make([]time.Duration, len(built.Nodes))
	phase := time.Duration(0)
	for _, kind := range phaseOrder {
		for _, n := range inOrder(built, kind) {
			node := &built.Nodes[n]
			begin := time.Duration(0)
			if phased {
				begin = phase
			}
			for _, m := range slices.Concat(node.Needs, node.After) {
				begin = max(begin, ends[m])
			}
			ends[n] = begin + p.nodeTakes(node)
			last = max(last, ends[n])
		}
		phase = last
	}
	return last
}

// inOrder lists the nodes of a kind, each after those of the same kind that it waits for.
func inOrder(built *plan.Plan, kind plan.Kind) (order []int) {
	seen := map[int]bool{}
	var visit func(n int)
	visit = func(n int) {
		if seen[n] || built.Nodes[n].Kind != kind {
			return
		}
		seen[n] = true
		for _, m := range slices.Concat(built.Nodes[n].Needs, built.Nodes[n].After) {
			visit(m)
		}
		order = append(order, n)
	}
	for n := range built.Nodes {
		visit(n)
	}
	return order
}

// nodeTakes is how long a node takes: CALLBACK runs the commands of its services one after another.
func (p planned) nodeTakes(node *plan.Node) (takes time.Duration) {
	switch node.Kind {
	case plan.DNS:
		return 3 * time.Second
	case plan.Callback:
		for n := range p.services {
			if strings.Contains(p.each(n), "setupCallback") {
				takes += p.takes(n)
			}
		}
		return takes
	}
	n := 0
	_, _ = fmt.Sscanf(node.Service, "s%d", &n)
	return p.takes(n)
}
