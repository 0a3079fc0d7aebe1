package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// bypassOptions are those of bypass (A15).
type bypassOptions struct {
	f                           *Factory
	service                     serviceName
	version, channel, condition string
	reason                      string
}

func newCmdBypass(f *Factory, runF func(context.Context, *bypassOptions) error) *cobra.Command {
	o := &bypassOptions{f: f}
	cmd := &cobra.Command{
		Use:   "bypass SVC VERSION CHANNEL CONDITION",
		Short: "Let one release pass one condition of one channel",
		Long: `Let one release pass one condition of one release channel, whatever the condition
says. CONDITION is what converge explain names. Who did it and why stays visible with
the release and in converge history.`,
		Example: `  converge bypass shop/web v9 prod-eu office-hours --reason "incident 12"`,
		Args:    exactArgs(4, 4),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.service, err = f.parseService(args[0]); err != nil {
				return err
			}
			if o.version, o.channel, o.condition = args[1], args[2], args[3]; o.reason == "" {
				return errors.New("a bypass needs a reason that others will read; give one with --reason")
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why (required)")
	return cmd
}

func (o *bypassOptions) run(ctx context.Context) error {
	request := protocol.BypassRequest{Act: o.f.newAct(o.reason), Version: o.version, Channel: o.channel, Condition: o.condition}
	return o.f.actOnce(ctx, o.service, protocol.Bypass, request.Act, request)
}
