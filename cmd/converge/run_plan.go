package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/incarnation"
)

// planGraph selects the plan of an application: of a directory, or of the newest incarnation.
type planGraph struct {
	dir           string
	application   string // instead of a directory
	store         string
	allowCommands bool
	channel       string
	changed       []string
	ifFails       string
}

// parse distinguishes a directory from an application.
func (g *planGraph) parse(name string) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		g.application = name
		return
	}
	g.dir = name
}

// incarnation compiles the directory, or reads the newest incarnation of the application.
func (g *planGraph) incarnation(ctx context.Context, f *Factory) (*incarnation.Incarnation, error) {
	if g.application == "" {
		compiled, err := f.compileTree(ctx, origin.Tree{Dir: g.dir}, g.store, g.allowCommands)
		if err != nil {
			return nil, err
		}
		return compiled.Incarnation, nil
	}
	h, err := f.incarnations(ctx, g.application, g.store)
	if err != nil {
		return nil, err
	}
	defer h.Store.Close() // only read
	newest, err := h.Number(ctx, h.Status.Newest)
	if err != nil {
		return nil, err
	}
	return h.Store.Incarnation(ctx, newest.Hash)
}

// graphFormats lists the formats of run plan and run show.
var graphFormats = append(slices.Clone(outputFormats), "dot", "mermaid", "svg")

// graphFormat returns the format of a graph: the one of its flag, or that of --output.
func (f *Factory) graphFormat(flag string) (string, error) {
	format := cmp.Or(flag, f.format, "text")
	if !slices.Contains(graphFormats, format) {
		return "", fmt.Errorf("--format %q: expected one of %s", format, strings.Join(graphFormats, ", "))
	}
	return format, nil
}

// runPlanOptions are those of run plan (E16).
type runPlanOptions struct {
	f      *Factory
	graph  planGraph
	format string
}

func newCmdRunPlan(f *Factory, runF func(context.Context, *runPlanOptions) error) *cobra.Command {
	o := &runPlanOptions{f: f}
	cmd := &cobra.Command{
		Use:   "plan [DIR|APP]",
		Short: "Show the order in which services are deployed",
		Long: `Show the order in which the services of a configuration, or of the newest incarnation of an
application, are deployed and integrated. No runtime is queried, and nothing is changed.`,
		Example: `  converge run plan examples/media --if-fails sonarr
  converge run plan home --changed sonarr --format svg > plan.svg`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			o.graph.parse(first(append(args, ".")...))
			o.format, err = f.graphFormat(o.format)
			return err
		}),
	}
	flags, g := cmd.Flags(), &o.graph
	flags.StringVarP(&g.channel, "channel", "c", "", "the release channel, if several have plans")
	flags.StringSliceVar(&g.changed, "changed", nil, "only what a change of these services requires")
	flags.StringVar(&g.ifFails, "if-fails", "", "what is blocked if this service fails to deploy")
	flags.StringVar(&o.format, "format", "", strings.Join(graphFormats, ", "))
	flags.StringVar(&g.store, "store", "", storeUsage)
	flags.BoolVar(&g.allowCommands, "allow-commands", false, allowCommandsUsage)
	return cmd
}

// run prints the plan of a channel.
func (o *runPlanOptions) run(ctx context.Context) error {
	inc, err := o.graph.incarnation(ctx, o.f)
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
	return o.f.drawGraph(o.format, graph{
		plan: p, progress: progress, document: graphOf(work, p, progress), text: func() string { return graphText(work, p, progress) },
	})
}

// graph is a plan in the forms in which it is printed.
type graph struct {
	plan     *plan.Plan
	progress []plan.Progress
	document any
	text     func() string
}

func (f *Factory) drawGraph(format string, g graph) (err error) {
	switch format {
	case "dot":
		_, err = fmt.Fprint(f.Out, g.plan.DOT(g.progress))
	case "mermaid":
		_, err = fmt.Fprint(f.Out, g.plan.Mermaid(g.progress))
	case "svg":
		_, err = fmt.Fprint(f.Out, g.plan.SVG(g.progress))
	case "json", "yaml":
		screen := f.screen()
		screen.YAML = format == "yaml"
		err = screen.Document(g.document)
	default:
		err = f.screen().WriteText(g.text())
	}
	return err
}

func notInPlanError(work *plan.Work, service string) error {
	var names []string
	for _, s := range work.Services {
		names = append(names, s.Name)
	}
	return fmt.Errorf("the plan deploys no service %q%s", service, read.Suggestion(service, names))
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
		return nil, fmt.Errorf("%s has no plan in a release channel %q%s", inc.Application(), g.channel, read.Suggestion(g.channel, planned))
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
	lines := fmt.Sprintf("%s in %s: %s, the longest path has %d\n", work.Application, work.Channel, entities.Count(len(p.Nodes), "piece")+" of work", len(longest))
	if len(work.Before) > 0 {
		lines += "before: " + strings.Join(stepNames(work.Before), ", ") + "\n"
	}
	lines += p.Text(progress)
	if len(work.After) > 0 {
		lines += "after: " + strings.Join(stepNames(work.After), ", ") + "\n"
	}
	return lines
}
