package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// pinOptions are those of pin and unpin (A17).
type pinOptions struct {
	f       *Factory
	verb    string
	service serviceName
	channel string
	version string
	reason  string
}

func newCmdPin(f *Factory, runF func(context.Context, *pinOptions) error) *cobra.Command {
	return newPinCmd(f, protocol.Pin, runF, cobra.Command{
		Use:   "pin SVC CHANNEL VERSION",
		Short: "Hold a channel at a version, whatever is released",
		Long: `Hold a release channel at the version that it has, or return it to one that was good
there before, and keep it there until it is unpinned. Releases wait meanwhile.`,
		Example: `  converge pin shop/web prod-eu v7 --reason "v8 breaks printing"`,
		Args:    exactArgs(3, 3),
	})
}

func newCmdUnpin(f *Factory, runF func(context.Context, *pinOptions) error) *cobra.Command {
	return newPinCmd(f, protocol.Unpin, runF, cobra.Command{
		Use:     "unpin SVC CHANNEL",
		Short:   "Let releases into a pinned channel again",
		Example: `  converge unpin shop/web prod-eu`,
		Args:    exactArgs(2, 2),
	})
}

func newPinCmd(f *Factory, verb string, runF func(context.Context, *pinOptions) error, texts cobra.Command) *cobra.Command {
	o := &pinOptions{f: f, verb: verb}
	cmd := &texts
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.service, err = f.parseService(args[0]); err != nil {
			return err
		}
		o.channel = args[1]
		if len(args) > 2 {
			o.version = args[2]
		}
		if runF != nil {
			return runF(cmd.Context(), o)
		}
		return o.run(cmd.Context())
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, shown to everybody who asks")
	return cmd
}

func (o *pinOptions) run(ctx context.Context) error {
	request := protocol.PinRequest{Act: o.f.newAct(o.reason), Channel: o.channel, Version: o.version}
	return o.f.actOnce(ctx, o.service, o.verb, request.Act, request)
}
