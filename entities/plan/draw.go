package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Text lists the nodes, those that may begin first at the top, with what each waits for and, if so has it, its state (E16).
func (p *Plan) Text(progress []Progress) string {
	width, count := 0, map[Kind]int{}
	for n := range p.Nodes {
		width = max(width, len(p.Nodes[n].String()))
		count[p.Nodes[n].Kind]++
	}
	var b strings.Builder
	for _, n := range p.InOrder() {
		line := fmt.Sprintf("%-*s", width, p.Nodes[n].String())
		if needs := p.nodeNames(p.Nodes[n].Needs, count); needs != "" {
			line += "  needs " + needs
		}
		if after := p.nodeNames(p.Nodes[n].After, count); after != "" {
			line += "  after " + after
		}
		if text := p.stateText(n, progress); text != "" {
			line += "  " + text
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// stateText describes the state of a node: "blocked by DEPLOY sonarr@media".
func (p *Plan) stateText(n int, progress []Progress) string {
	switch {
	case n >= len(progress):
		return ""
	case progress[n].State == Blocked:
		return "blocked by " + p.Nodes[progress[n].Cause].String()
	}
	return string(progress[n].State)
}

// nodeNames names nodes. If they are all nodes of a kind with several nodes, it says only that.
func (p *Plan) nodeNames(nodes []int, count map[Kind]int) string {
	var texts []string
	for _, k := range kinds {
		var names []string
		for _, n := range nodes {
			if p.Nodes[n].Kind == k {
				names = append(names, p.Nodes[n].String())
			}
		}
		if len(names) == count[k] && count[k] > 1 {
			names = []string{"every " + string(k)}
		}
		texts = append(texts, names...)
	}
	return strings.Join(texts, ", ")
}

// InOrder lists the nodes by depth: the length of the longest chain that must end before them.
func (p *Plan) InOrder() []int {
	depths, order := p.depths(), indexRange(len(p.Nodes))
	slices.SortStableFunc(order, func(a, b int) int { return depths[a] - depths[b] })
	return order
}

// depths returns for each node the length of the longest chain that ends with it.
func (p *Plan) depths() []int {
	depths := make([]int, len(p.Nodes))
	var depth func(n int) int
	depth = func(n int) int {
		if depths[n] == 0 {
			depths[n] = 1
			for _, m := range slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After) {
				depths[n] = max(depths[n], 1+depth(m))
			}
		}
		return depths[n]
	}
	for n := range p.Nodes {
		depth(n)
	}
	return depths
}

// colours are the colours of states in pictures.
var colours = map[State]string{
	Waiting: "#ffffff", Running: "#cfe2ff", Held: "#cff4fc", Done: "#d1e7dd", Failed: "#f8d7da", Blocked: "#e2e3e5", Superseded: "#fff3cd",
}

func (p *Plan) colour(n int, progress []Progress) string {
	if n >= len(progress) {
		return colours[Waiting]
	}
	return colours[progress[n].State]
}

// DOT returns the plan for Graphviz. A dashed edge waits only for the end of a node, successful or not.
func (p *Plan) DOT(progress []Progress) string {
	var b strings.Builder
	b.WriteString("digraph plan {\n  rankdir=LR\n  node [shape=box, style=filled, fontname=\"sans-serif\"]\n")
	for n := range p.Nodes {
		fmt.Fprintf(&b, "  n%d [label=%q, fillcolor=%q]\n", n, p.Nodes[n].String(), p.colour(n, progress))
	}
	for n := range p.Nodes {
		for _, m := range p.Nodes[n].Needs {
			fmt.Fprintf(&b, "  n%d -> n%d\n", m, n)
		}
		for _, m := range p.Nodes[n].After {
			fmt.Fprintf(&b, "  n%d -> n%d [style=dashed]\n", m, n)
		}
	}
	return b.String() + "}\n"
}

// Mermaid returns the plan in Mermaid syntax, which GitHub pages render.
func (p *Plan) Mermaid(progress []Progress) string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for n := range p.Nodes {
		fmt.Fprintf(&b, "  n%d[\"%s\"]\n  style n%d fill:%s\n", n, p.Nodes[n].String(), n, p.colour(n, progress))
	}
	for n := range p.Nodes {
		for _, m := range p.Nodes[n].Needs {
			fmt.Fprintf(&b, "  n%d --> n%d\n", m, n)
		}
		for _, m := range p.Nodes[n].After {
			fmt.Fprintf(&b, "  n%d -.-> n%d\n", m, n)
		}
	}
	return b.String()
}
