package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/incarnation"
)

// planGraph are the options of plan that show the order in which services are deployed. They change nothing and query nothing.
type planGraph struct {
	enabled     bool
	application string // shows its newest incarnation; empty: a directory
	channel     string
	changed     []string
	ifFails     string
	format      string
}

// graphFormats lists the output formats of the graph.
var graphFormats = []string{"text", "json", "dot", "mermaid", "svg"}

func (g *planGraph) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&g.enabled, "graph", false, "show the order in which services are deployed and integrated")
	flags.StringVar(&g.channel, "channel", "", "with --graph: the release channel, if several have plans")
	flags.StringSliceVar(&g.changed, "changed", nil, "with --graph: only what a change of these services requires")
	flags.StringVar(&g.ifFails, "if-fails", "", "with --graph: what is blocked if this service fails to deploy")
	flags.StringVar(&g.format, "format", "", "with --graph: "+strings.Join(graphFormats, ", "))
}

// parseGraph distinguishes a directory from an application.
func (o *planOptions) parseGraph(args []string) error {
	g := &o.graph
	if !g.enabled {
		if g.channel != "" || len(g.changed) > 0 || g.ifFails != "" || g.format != "" {
			return errors.New("--channel, --changed, --if-fails and --format require --graph")
		}
		return nil
	}
	if len(args) > 1 || len(o.params) > 0 || o.full || o.exitCode {
		return errors.New("usage: converge plan [DIR | APP] --graph with --channel, --changed, --if-fails and --format")
	}
	g.format = cmp.Or(g.format, o.f.format, "text")
	if !slices.Contains(graphFormats, g.format) {
		return fmt.Errorf("--format %q: expected one of %s", g.format, strings.Join(graphFormats, ", "))
	}
	o.dir = first(append(args, ".")...)
	if info, e := os.Stat(o.dir); e != nil || !info.IsDir() {
		o.dir, g.application = "", o.dir
	}
	return nil
}

// showGraph prints the plan of a channel.
func (o *planOptions) showGraph(ctx context.Context) error {
	inc, err := o.graphOf(ctx)
	if err != nil {
		return o.f.problems(err, "; nothing planned")
	}
	work, p, err := o.graph.plan(inc)
	if err != nil {
		return err
	}
	var progress []plan.Progress
	if service := o.graph.ifFails; service != "" {
		var ok bool
		if progress, ok = p.IfFails(service); !ok {
			return notInPlanError(work, service)
		}
	}
	return o.drawGraph(work, p, progress)
}

func (o *planOptions) drawGraph(work *plan.Work, p *plan.Plan, progress []plan.Progress) (err error) {
	switch o.graph.format {
	case "dot":
		_, err = fmt.Fprint(o.f.Out, p.DOT(progress))
	case "mermaid":
		_, err = fmt.Fprint(o.f.Out, p.Mermaid(progress))
	case "svg":
		_, err = fmt.Fprint(o.f.Out, p.SVG(progress))
	case "json":
		err = o.f.screen().JSON(graphOf(work, p, progress))
	default:
		err = o.f.screen().WriteText(graphText(work, p, progress))
	}
	return err
}

// graphOf compiles the directory, or reads the newest incarnation of the application.
func (o *planOptions) graphOf(ctx context.Context) (*incarnation.Incarnation, error) {
	if o.graph.application == "" {
		compiled, err := o.f.compileTree(ctx, origin.Tree{Dir: o.dir}, o.store, o.allowCommands)
		if err != nil {
			return nil, err
		}
		return compiled.Incarnation, nil
	}
	h, err := o.f.history(ctx, o.graph.application, o.store)
	if err != nil {
		return nil, err
	}
	defer h.store.Close() // only read
	newest, err := h.number(ctx, h.status.Newest)
	if err != nil {
		return nil, err
	}
	return h.store.Incarnation(ctx, newest.Hash)
}

func notInPlanError(work *plan.Work, service string) error {
	var names []string
	for _, s := range work.Services {
		names = append(names, s.Name)
	}
	return fmt.Errorf("the plan deploys no service %q%s", service, suggestion(service, names))
}

// plan returns the work of the selected channel, and the plan of the changes.
func (g *planGraph) plan(inc *incarnation.Incarnation) (*plan.Work, *plan.Plan, error) {
	work, err := g.work(inc)
	if err != nil {
		return nil, nil, err
	}
	p, err := work.Plan(plan.Scope{All: g.changed == nil, Changed: g.changed})
	return work, p, err
}

// work returns the work of the selected channel.
func (g *planGraph) work(inc *incarnation.Incarnation) (*plan.Work, error) {
	var planned []string
	for _, channel := range inc.Channels() {
		if inc.Work(channel) != nil {
			planned = append(planned, channel)
		}
	}
	switch {
	case len(planned) == 0:
		return nil, fmt.Errorf("%s has no plan: no service declares requirements or integrations", inc.Application())
	case g.channel == "" && len(planned) == 1:
		return inc.Work(planned[0]), nil
	case g.channel == "":
		return nil, fmt.Errorf("%s has plans in several release channels: --channel %s", inc.Application(), strings.Join(planned, " or "))
	case !slices.Contains(planned, g.channel):
		return nil, fmt.Errorf("%s has no plan in a release channel %q%s", inc.Application(), g.channel, suggestion(g.channel, planned))
	}
	return inc.Work(g.channel), nil
}

// graphDocument is a plan as JSON.
type graphDocument struct {
	Schema      string          `json:"schema"` // converge.graph/v1
	Application string          `json:"application"`
	Channel     string          `json:"channel"`
	Before      []string        `json:"before"`
	Nodes       []plan.Node     `json:"nodes"`
	After       []string        `json:"after"`
	Serial      []string        `json:"serial"` // targets that run one node at a time
	Longest     []int           `json:"longest"`
	Progress    []plan.Progress `json:"progress,omitempty"` // of each node, with --if-fails
}

func graphOf(work *plan.Work, p *plan.Plan, progress []plan.Progress) graphDocument {
	return graphDocument{
		Schema: "converge.graph/v1", Application: work.Application, Channel: work.Channel, Before: stepNames(work.Before), After: stepNames(work.After),
		Nodes: p.Nodes, Serial: append([]string{}, p.Serial...), Longest: append([]int{}, p.LongestPath()...), Progress: progress,
	}
}

func stepNames(steps []entities.Extension) []string {
	names := []string{}
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

func graphText(work *plan.Work, p *plan.Plan, progress []plan.Progress) string {
	longest := p.LongestPath()
	lines := fmt.Sprintf("%s in %s: %s, the longest path has %d\n", work.Application, work.Channel, count(len(p.Nodes), "piece")+" of work", len(longest))
	if len(work.Before) > 0 {
		lines += "before: " + strings.Join(stepNames(work.Before), ", ") + "\n"
	}
	lines += p.Text(progress)
	if len(work.After) > 0 {
		lines += "after: " + strings.Join(stepNames(work.After), ", ") + "\n"
	}
	return lines
}
