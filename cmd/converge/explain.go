package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

type explainOptions struct {
	f       *Factory
	service serviceName
	channel string
}

func newCmdExplain(f *Factory, runF func(context.Context, *explainOptions) error) *cobra.Command {
	o := &explainOptions{f: f}
	return &cobra.Command{
		Use:   "explain SVC [CHANNEL]",
		Short: "Say why a service is as it is, and what would change that",
		Long: `Say for each channel what runs, which conditions are unmet and since when, what
failed and with which message, what moves next and when, and the command that helps.`,
		Example: `  converge explain shop/web
  converge explain web prod-eu`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func(args []string) error { return f.readService(args, &o.service, &o.channel) }),
	}
}

func (o *explainOptions) run(ctx context.Context) error {
	s, err := o.f.status(ctx, o.service)
	if err != nil {
		return err
	}
	o.f.noteName(o.service, s)
	if o.channel != "" {
		if err := checkChannel(s, o.channel); err != nil {
			return err
		}
	}
	lines := explain.Lines(s, o.channel, o.f.Now())
	if o.f.json() {
		return o.f.screen().JSON(protocol.Explanation{Lines: lines, Status: s})
	}
	return o.f.screen().Lines(lines...)
}
