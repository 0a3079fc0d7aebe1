package main

import (
	"context"
	"fmt"
	"strings"

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
		Args: exactArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.service, err = f.parseService(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				o.channel = args[1]
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
}

func (o *explainOptions) run(ctx context.Context) error {
	s, err := o.f.status(ctx, o.service)
	if err != nil {
		return err
	}
	if o.channel != "" && !hasChannel(s, o.channel) {
		return fmt.Errorf("%s has no release channel %q; expected one of %s", o.service, o.channel, strings.Join(channelNames(s), ", "))
	}
	lines := explain.Lines(s, o.channel, o.f.Now())
	if o.f.json() {
		return o.f.screen().JSON(protocol.Explanation{Lines: lines, Status: s})
	}
	return o.f.screen().Lines(lines...)
}
