package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// runShowOptions are those of run show (E16).
type runShowOptions struct {
	f                    *Factory
	application, channel string
	name                 string
	watch                bool
	format               string
	timeout              time.Duration
}

func newCmdRunShow(f *Factory, runF func(context.Context, *runShowOptions) error) *cobra.Command {
	o := &runShowOptions{f: f}
	cmd := &cobra.Command{
		Use:   "show APP CHANNEL",
		Short: "Show the progress of a plan",
		Long: `Show the progress of the plan of the newest incarnation in a release channel, running or
ended.`,
		Example: `  converge run show home production --watch
  converge run show home production --format svg > plan.svg`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			o.application, o.channel = args[0], args[1]
			o.format, err = f.graphFormat(o.format)
			return errors.Join(checkName("an application", o.application), checkName("a release channel", o.channel), err)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.name, "plan", "", "name of the plan (default: that of the newest incarnation)")
	flags.BoolVar(&o.watch, "watch", false, "show the progress until the plan ends")
	flags.StringVar(&o.format, "format", "", strings.Join(graphFormats, ", "))
	flags.DurationVar(&o.timeout, "timeout", 0, "with --watch: give up after this duration, with exit status 3 (default: never)")
	return cmd
}

func (o *runShowOptions) run(ctx context.Context) error {
	application, err := o.f.applicationStatus(ctx, o.application)
	if err != nil {
		return err
	}
	ref := protocol.PlanOfIncarnation(o.application, o.channel, application.Current())
	if o.name != "" {
		ref.Name = o.name
	}
	if o.watch {
		return o.follow(ctx, ref)
	}
	status, err := o.f.planStatus(ctx, ref)
	if err != nil {
		return err
	}
	return o.print(status)
}

func (f *Factory) planStatus(ctx context.Context, ref protocol.PlanRef) (protocol.PlanStatus, error) {
	api, err := f.client(ctx)
	if err != nil {
		return protocol.PlanStatus{}, err
	}
	return read.Plan(ctx, api, ref)
}

// planPollInterval is the interval at which a plan is polled.
const planPollInterval = 500 * time.Millisecond

// follow waits until a plan ends, and reports its result. It retries if the plan is temporarily unavailable.
func (o *runShowOptions) follow(ctx context.Context, ref protocol.PlanRef) error {
	live, deadline := show.NewLive(o.f.screen()), time.Time{}
	if o.timeout > 0 {
		deadline = time.Now().Add(o.timeout)
	}
	for {
		s, err := o.f.planStatus(ctx, ref)
		if err == nil && o.watch {
			err = o.watchPlan(live, s)
		}
		timedOut := !deadline.IsZero() && time.Now().After(deadline)
		switch {
		case err != nil && !connection.Transient(err):
			return err
		case err == nil && s.Over:
			return errors.Join(o.printLast(s), exit(exitCodeOf(s)))
		case timedOut && err == nil:
			return errors.Join(o.printLast(s), exit(outcome.TimedOut))
		case timedOut:
			return errors.Join(err, exit(outcome.TimedOut))
		}
		if err := o.f.Sleep(ctx, planPollInterval); err != nil {
			return err
		}
	}
}

// printLast shows the final status of a plan, unless it is already on the screen.
func (o *runShowOptions) printLast(s protocol.PlanStatus) error {
	if o.watch {
		return nil
	}
	return o.print(s)
}

func exitCodeOf(s protocol.PlanStatus) int {
	if s.StepError != "" || s.Ended != "" {
		return outcome.Failed
	}
	for _, n := range s.Nodes {
		if n.State != "done" {
			return outcome.Failed
		}
	}
	return outcome.Done
}

// print shows the current state of a plan.
func (o *runShowOptions) print(s protocol.PlanStatus) error {
	p, progress := read.Graph(s)
	return o.f.drawGraph(o.format, graph{plan: p, progress: progress, document: s, text: func() string { return runText(o.f.screen(), s) }})
}

// runText lists the nodes, beginning with those that may start first. On a terminal it marks the nodes of the longest path.
func runText(screen show.Screen, s protocol.PlanStatus) string {
	p, _ := read.Graph(s)
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
func (o *runShowOptions) watchPlan(live *show.Live, s protocol.PlanStatus) error {
	if o.f.structured() {
		return o.f.screen().StreamDocument(s)
	}
	return live.Frame(runText(o.f.screen(), s))
}
