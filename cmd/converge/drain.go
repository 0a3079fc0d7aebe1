package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/drain"
	"github.com/converge-engine/converge/entities/protocol"
)

// drainOptions are those of drain and restore (A16).
type drainOptions struct {
	f       *Factory
	verb    string
	runtime string
	dryRun  bool
	force   bool
	reason  string
	yes     bool
}

func newCmdDrain(f *Factory, runF func(context.Context, *drainOptions) error) *cobra.Command {
	return newDrainCmd(f, protocol.Drain, runF, cobra.Command{
		Use:   "drain",
		Short: "Drain a runtime for maintenance",
		Long: `Drain a runtime in preparation for maintenance: what runs there is removed, service by
service, those that others depend on last, each once the rest of its channel is stable and
sufficient. Releases continue elsewhere. The runtime stays drained until converge
runtime restore.`,
		Example: `  converge runtime drain eks-eu --dry-run
  converge runtime drain eks-eu --yes --reason "new nodes"`,
	})
}

func newCmdRestore(f *Factory, runF func(context.Context, *drainOptions) error) *cobra.Command {
	return newDrainCmd(f, protocol.Restore, runF, cobra.Command{
		Use:   "restore",
		Short: "Return a drained runtime to service",
		Long: `Return a drained runtime to service: what was removed is deployed again, at the current
version of its channel, service by service, each once its dependencies are stable there.`,
		Example: `  converge runtime restore eks-eu`,
	})
}

func newDrainCmd(f *Factory, verb string, runF func(context.Context, *drainOptions) error, texts cobra.Command) *cobra.Command {
	o := &drainOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use, cmd.Args = texts.Use+" RUNTIME", argsFromUse
	cmd.RunE = newRunE(o, runF, o.run, func(args []string) error {
		o.runtime = args[0]
		return checkName("a runtime", o.runtime)
	})
	force := "deploy all services at once, regardless of their dependencies"
	if verb == protocol.Drain {
		force = "also remove what runs nowhere else, or more than the rest can do without"
		cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be removed in which order, or how far that is; change nothing")
	}
	cmd.Flags().BoolVar(&o.force, "force", false, force)
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation if more than one service is affected")
	return cmd
}

func (o *drainOptions) run(ctx context.Context) error {
	if o.verb == protocol.Restore {
		return o.act(ctx)
	}
	placements, err := o.placements(ctx)
	if err != nil {
		return err
	}
	steps := drain.Order(o.runtime, placements)
	if o.dryRun {
		return o.show(placements, steps)
	}
	services := 0
	for _, step := range steps {
		services += len(step)
	}
	if err := o.f.confirm(ctx, o.yes, fmt.Sprintf("drain runtime %s, which removes %d services from it", o.runtime, services)); err != nil {
		return err
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	start := protocol.RuntimeInput{Runtime: o.runtime, StartMode: protocol.StartMode{Adopt: true}}
	if err := api.Start(ctx, protocol.RuntimeID(o.runtime), protocol.RuntimeWorkflow, start); err != nil {
		return err
	}
	return o.act(ctx)
}

func (o *drainOptions) act(ctx context.Context) error {
	request := protocol.DrainRequest{RequestMeta: o.f.newAct(o.reason), Force: o.force}
	return o.f.actOnScope(ctx, runtimeScope(o.runtime), o.verb, request.RequestMeta, request)
}

// placements queries the placement of all services. It refuses a runtime that no service uses.
func (o *drainOptions) placements(ctx context.Context) ([]protocol.Placement, error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return nil, err
	}
	names, err := api.Services(ctx, "")
	if err != nil {
		return nil, err
	}
	all, err := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (p protocol.Placement, err error) {
		err = o.f.query(ctx, n, protocol.QueryPlaced, &p)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	var used []string
	for _, p := range all {
		for _, i := range p.Instances {
			used = append(used, i.Runtime)
		}
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Contains(used, o.runtime) {
		return nil, fmt.Errorf("no service uses runtime %s%s", o.runtime, read.Suggestion(o.runtime, used))
	}
	return all, nil
}

// drainStep is one instance that would leave a runtime, with the number of its step; 0: no step.
type drainStep struct {
	Step     int    `json:"step"`
	Service  string `json:"service"`
	Instance string `json:"instance"`
	Note     string `json:"note,omitempty"`
}

// show lists what would leave the runtime, in order.
func (o *drainOptions) show(placements []protocol.Placement, steps [][]string) error {
	lines := []drainStep{}
	for _, p := range placements {
		step := slices.IndexFunc(steps, func(s []string) bool { return slices.Contains(s, p.Service) })
		for _, i := range p.Instances {
			if i.Runtime != o.runtime {
				continue
			}
			l := drainStep{Step: step + 1, Service: protocol.ShortID(p.Service), Instance: i.Name, Note: i.Progress}
			if l.Note == "" && i.KeepReason != "" {
				l.Note = "stays: " + i.KeepReason
			}
			lines = append(lines, l)
		}
	}
	slices.SortStableFunc(lines, func(a, b drainStep) int { return a.Step - b.Step })
	if o.f.structured() {
		return o.f.screen().Document(lines)
	}
	var text []string
	for _, l := range lines {
		line := fmt.Sprintf("%d. %s %s", l.Step, l.Service, l.Instance)
		if l.Step == 0 {
			line = fmt.Sprintf("-  %s %s", l.Service, l.Instance)
		}
		if l.Note != "" {
			line += ": " + l.Note
		}
		text = append(text, line)
	}
	if alone := drain.OnlyOn(o.runtime, placements); alone != "" {
		text = append(text, "no instance would remain of "+alone+": refused without --force")
	}
	return o.f.screen().Lines(text...)
}
