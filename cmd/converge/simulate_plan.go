package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/simulate"
)

// simulatedPlan are the options of simulate for the simulation of a plan (E8, E16).
type simulatedPlan struct {
	enabled bool
	graph   planGraph
	limit   int
	command time.Duration
}

func (p *simulatedPlan) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&p.enabled, "plan", false, "simulate the plan of an application, or of a directory")
	flags.StringVar(&p.graph.channel, "channel", "", "with --plan: the release channel, if several have plans")
	flags.StringSliceVar(&p.graph.changed, "changed", nil, "with --plan: only what a change of these services requires")
	flags.StringVar(&p.graph.ifFails, "if-fails", "", "with --plan: the deployments of this service fail")
	flags.IntVar(&p.limit, "max-parallelism", 0, "with --plan: maximum number of concurrent nodes (default: as declared)")
	flags.DurationVar(&p.command, "command", 0, "with --plan: duration of a node that runs a command (default 10s)")
}

// checkUnused refuses flags that are valid only with --plan.
func (p *simulatedPlan) checkUnused() error {
	if g := &p.graph; g.channel != "" || len(g.changed) > 0 || g.ifFails != "" || p.limit != 0 || p.command != 0 {
		return errors.New("--channel, --changed, --if-fails, --max-parallelism and --command require --plan")
	}
	return nil
}

func (p *simulatedPlan) parse(o *simulateOptions, args []string) error {
	if len(args) != 1 || o.aspect != "" || o.approved {
		return errors.New("usage: converge simulate APP --plan, without a version, --aspect or --approved")
	}
	if p.limit < 0 || p.command < 0 || o.apply < 0 {
		return errors.New("--max-parallelism, --command and --apply must not be negative")
	}
	if p.command == 0 {
		p.command = 10 * time.Second
	}
	p.graph.parse(args[0])
	p.graph.store = o.store
	return o.checkExport()
}

// runPlan simulates a plan that begins at a given time.
func (o *simulateOptions) runPlan(ctx context.Context, at time.Time) error {
	inc, err := o.plan.graph.incarnation(ctx, o.f)
	if err != nil {
		return o.f.problems(err, "; nothing simulated")
	}
	work, p, err := o.plan.graph.plan(inc)
	if err != nil {
		return err
	}
	in := simulate.PlanInput{
		Plan: p, Title: fmt.Sprintf("the plan of %s in %s", work.Application, work.Channel), Limit: work.Limit,
		Deploy: o.apply, Command: o.plan.command, Fails: o.plan.graph.ifFails,
	}
	if o.plan.limit > 0 {
		in.Limit = o.plan.limit
	}
	if in.Fails != "" && !slices.ContainsFunc(p.Nodes, func(n plan.Node) bool { return n.Kind == plan.Deploy && n.Service == in.Fails }) {
		return notInPlanError(work, in.Fails)
	}
	timeline := simulate.RunPlan(in)
	if err := o.write(timeline.SVG(at)); err != nil {
		return err
	}
	if o.f.structured() {
		return o.f.screen().Document(struct {
			Schema string `json:"schema"`
			*simulate.PlanTimeline
		}{"converge.plan-simulation/v1", timeline})
	}
	return o.f.screen().Lines(append(timeline.Table(),
		fmt.Sprintf("assuming that each deployment takes %s, each command takes %s, and every gate passes", o.apply, o.plan.command))...)
}
