package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

type approvalsOptions struct {
	f      *Factory
	target target
}

func newCmdApprovals(f *Factory, runF func(context.Context, *approvalsOptions) error) *cobra.Command {
	o := &approvalsOptions{f: f}
	return &cobra.Command{
		Use:   "approvals [APP|SVC]",
		Short: "List the approvals that can be given now",
		Long: `List the approvals that can be given now, those that wait longest first: which release, who
may approve it and who has, what it changes in which release channel, what else it waits for
there, and the command that approves it. For the objects that would change: converge plan.

A release that has yet to succeed in an earlier channel is not listed. It can be approved
already; converge explain has the command.`,
		Example: `  converge approvals
  converge approvals shop
  converge approvals --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			if o.target = (target{all: true}); len(args) == 0 {
				return nil
			}
			o.target, err = f.parseTarget(args[0])
			return err
		}),
	}
}

func (o *approvalsOptions) run(ctx context.Context) (err error) {
	if o.target, err = o.f.resolveTarget(ctx, o.target); err != nil {
		return err
	}
	names, err := o.f.services(ctx, o.target)
	if err != nil {
		return err
	}
	all, err := read.Each(ctx, names, o.f.status)
	var answered []protocol.Status
	for _, s := range all {
		if s.Service != "" { // it did not answer: err says so
			answered = append(answered, s)
		}
	}
	open := explain.OpenApprovals(answered)
	if o.f.structured() {
		return errors.Join(o.f.screen().Document(open), err)
	}
	if len(open) == 0 && err == nil {
		o.f.note("no approval can be given now")
	}
	var lines []string
	for _, a := range open {
		lines = append(lines, a.Lines(o.f.Now())...)
	}
	return errors.Join(o.f.screen().WriteText(linesText(lines)), err)
}
