package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file shows running and finished plans (E16).

// print shows the current state of a plan.
func (o *deployOptions) print(s protocol.PlanStatus) (err error) {
	p, progress := graphOfRun(s)
	switch o.format {
	case "dot":
		_, err = fmt.Fprint(o.f.Out, p.DOT(progress))
	case "mermaid":
		_, err = fmt.Fprint(o.f.Out, p.Mermaid(progress))
	case "svg":
		_, err = fmt.Fprint(o.f.Out, p.SVG(progress))
	case "json":
		err = o.f.screen().JSON(s)
	default:
		err = o.f.screen().WriteText(runText(o.f.screen(), s))
	}
	return err
}

// graphOfRun returns the plan of a status, and the progress of its nodes.
func graphOfRun(s protocol.PlanStatus) (*plan.Plan, []plan.Progress) {
	p, states := &plan.Plan{}, make([]byte, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		node := plan.ParseNode(n.Node)
		node.Needs, node.After = n.Needs, n.After
		p.Nodes = append(p.Nodes, node)
		states = append(states, plan.State(n.State).Letter())
	}
	return p, p.ReadLetters(string(states))
}

// runText lists the nodes, beginning with those that may start first. On a terminal it marks the nodes of the longest path.
func runText(screen show.Screen, s protocol.PlanStatus) string {
	p, _ := graphOfRun(s)
	longest := p.LongestPath()
	t := show.Table{Header: []string{"NODE", "STATE", ""}, Phases: true}
	for _, n := range p.InOrder() {
		node := s.Nodes[n]
		if screen.TTY {
			mark := "  "
			if slices.Contains(longest, n) {
				mark = "* "
			}
			node.Node = mark + node.Node
		}
		t.Rows = append(t.Rows, []string{node.Node, node.State, node.Text})
	}
	text := screen.String(t)
	if screen.TTY {
		text += "* is on the longest path\n"
	}
	return text + linesText([]string{explain.Plan(s)})
}

// watchPlan redraws a plan.
func (o *deployOptions) watchPlan(live *show.Live, s protocol.PlanStatus) error {
	if o.f.json() {
		return o.f.screen().JSONLine(s)
	}
	return live.Frame(runText(o.f.screen(), s))
}

// problemOf returns the current problem of an application, for example that it could not notify its services of a new incarnation. It
// is additional output, like plansOf.
func (f *Factory) problemOf(ctx context.Context, application string) []string {
	if application == "" {
		return nil
	}
	s, err := f.applicationStatus(ctx, application)
	if err != nil || s.Problem == "" {
		return nil
	}
	return []string{"PROBLEM " + application + ": " + s.Problem}
}

// plansOf returns the progress of the running plans of an application, or of all. It is additional output, so it leaves out plans that
// do not answer.
func (f *Factory) plansOf(ctx context.Context, application string) (lines []string) {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	ids, err := api.Plans(ctx, application)
	if err != nil {
		return nil
	}
	for _, id := range ids {
		var s protocol.PlanStatus
		if api.Query(ctx, id, protocol.QueryStatus, &s) == nil {
			lines = append(append(lines, explain.Plan(s)), explain.PlanProblems(s)...)
		}
	}
	return lines
}
