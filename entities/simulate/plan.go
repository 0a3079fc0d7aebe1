package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/plan"
)

// PlanInput is a plan to simulate (E8, E16).
type PlanInput struct {
	Plan  *plan.Plan
	Title string // of the chart
	// Limit is how many nodes run at once; 0: no limit.
	Limit int
	// Deploy is the duration of a DEPLOY, including its gates. Command is the duration of any other node.
	Deploy, Command time.Duration
	// Fails is a service whose DEPLOYs fail; "": none.
	Fails string
}

// PlanTimeline is when each node of a plan would run. Times are durations since the start of the plan.
type PlanTimeline struct {
	Title string     `json:"title"`
	Nodes []PlanNode `json:"nodes"` // in order of their start; those that never start are last
	Took  Seconds    `json:"took"`
	// Longest is the duration of the critical path. No plan of these nodes ends sooner.
	Longest Seconds `json:"longest"`
}

// Seconds is a duration in seconds in JSON.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%g", time.Duration(s).Seconds()), nil
}

// PlanNode is when a node would run. It could have started at Ready; it starts at From, when the limit allows it.
type PlanNode struct {
	Node  string     `json:"node"`
	State plan.State `json:"state"` // done, failed or blocked
	Ready Seconds    `json:"ready"`
	From  Seconds    `json:"from"`
	To    Seconds    `json:"to"`
	By    string     `json:"by,omitempty"` // the node that blocks it
}

// RunPlan simulates a plan with the same walker that runs real plans.
func RunPlan(in PlanInput) *PlanTimeline {
	t := &PlanTimeline{Title: in.Title, Nodes: in.run(in.Plan, in.Limit)}
	slices.SortStableFunc(t.Nodes, func(a, b PlanNode) int {
		return cmp.Or(cmp.Compare(boolToInt(a.State == plan.Blocked), boolToInt(b.State == plan.Blocked)), cmp.Compare(a.From, b.From))
	})
	for _, n := range t.Nodes {
		t.Took = max(t.Took, n.To)
	}
	for _, n := range in.run(&plan.Plan{Nodes: in.Plan.Nodes}, 0) {
		t.Longest = max(t.Longest, n.To)
	}
	return t
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (in *PlanInput) run(p *plan.Plan, limit int) []PlanNode {
	out, walker := make([]PlanNode, len(p.Nodes)), p.Walker(nil)
	var running []int
	for now := Seconds(0); ; {
		for _, n := range walker.Step(plan.Capacity{Limit: limit, Commands: -1}).Begin {
			out[n].From, out[n].To = now, now+in.durationOf(&p.Nodes[n])
			running = append(running, n)
		}
		if len(running) == 0 {
			break
		}
		next := slices.MinFunc(running, func(a, b int) int { return cmp.Compare(out[a].To, out[b].To) })
		now = out[next].To
		running = slices.DeleteFunc(running, func(n int) bool {
			if out[n].To > now {
				return false
			}
			outcome := plan.Done
			if p.Nodes[n].Kind == plan.Deploy && p.Nodes[n].Service == in.Fails && in.Fails != "" {
				outcome = plan.Failed
			}
			walker.Set(n, outcome)
			return true
		})
	}
	for n := range out {
		progress := walker.Progress(n)
		out[n].Node, out[n].State = p.Nodes[n].String(), progress.State
		for _, m := range slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After) {
			out[n].Ready = max(out[n].Ready, out[m].To)
		}
		if progress.State == plan.Blocked {
			out[n].Ready, out[n].By = 0, p.Nodes[progress.Cause].String()
		}
	}
	return out
}

func (in *PlanInput) durationOf(n *plan.Node) Seconds {
	if n.Kind == plan.Deploy {
		return Seconds(in.Deploy)
	}
	return Seconds(in.Command)
}

// Table formats the timeline for a terminal: the start and end of each node, and how long it waits for a free slot.
func (t *PlanTimeline) Table() []string {
	width := len("NODE")
	for _, n := range t.Nodes {
		width = max(width, len(n.Node))
	}
	lines := []string{fmt.Sprintf("%-*s  %-8s  %s", width, "NODE", "BEGINS", "ENDS")}
	for _, n := range t.Nodes {
		from, to, note := durationText(time.Duration(n.From)), durationText(time.Duration(n.To)), ""
		switch {
		case n.State == plan.Blocked:
			from, to, note = "-", "-", "blocked by "+n.By
		case n.State == plan.Failed:
			note = "fails"
		case n.From > n.Ready:
			note = "waits " + durationText(time.Duration(n.From-n.Ready)) + " for capacity"
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%-*s  %-8s  %-8s  %s", width, n.Node, from, to, note), " "))
	}
	return append(lines, fmt.Sprintf("finished after %s; the longest path takes %s", durationText(time.Duration(t.Took)), durationText(time.Duration(t.Longest))))
}

// SVG draws the timeline as a Gantt chart, in the time zone of the start time: a row for each node.
func (t *PlanTimeline) SVG(from time.Time) string {
	at := func(s Seconds) time.Time { return from.Add(time.Duration(s)) }
	c := chart.Chart{Title: t.Title, From: from, To: at(t.Took), End: at(t.Took)}
	for _, n := range t.Nodes {
		row := chart.Row{Name: n.Node}
		switch {
		case n.State == plan.Blocked:
			row.Note = "blocked by " + n.By
		case n.From > n.Ready:
			row.Spans = append(row.Spans, chart.Span{Kind: chart.Waits, From: at(n.Ready), To: at(n.From), Reasons: []string{"for capacity"}})
		}
		kind := chart.Deploys
		if n.State == plan.Failed {
			kind = chart.Fails
		}
		if n.State != plan.Blocked {
			row.Spans = append(row.Spans, chart.Span{Kind: kind, From: at(n.From), To: at(n.To), Reasons: []string{n.Node}})
		}
		c.Rows = append(c.Rows, row)
	}
	return c.SVG(from.Location())
}
