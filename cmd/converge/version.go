package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// versionOptions are those of cancel and retry, which take one release of a service.
type versionOptions struct {
	f       *Factory
	verb    string
	service serviceName
	version string
	channel string
	reason  string
}

func newCmdCancel(f *Factory, runF func(context.Context, *versionOptions) error) *cobra.Command {
	return newVersionCmd(f, protocol.Cancel, runF, cobra.Command{
		Short: "Stop a release from going any further",
		Long: `Stop a release from entering further channels. Where it is already the target it
stays so, and is still enforced.`,
		Example: `  converge cancel shop/web v9 --reason "wrong build"`,
	})
}

func newCmdRetry(f *Factory, runF func(context.Context, *versionOptions) error) *cobra.Command {
	return newVersionCmd(f, protocol.Retry, runF, cobra.Command{
		Short:   "Start a failed release again",
		Long:    `Start a release again where it failed.`,
		Example: `  converge retry shop/web v9 --channel canary`,
	})
}

func newVersionCmd(f *Factory, verb string, runF func(context.Context, *versionOptions) error, texts cobra.Command) *cobra.Command {
	o := &versionOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use = verb + " SVC VERSION"
	cmd.Args = exactArgs(2, 2)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.service, err = f.parseService(args[0]); err != nil {
			return err
		}
		o.version = args[1]
		if runF != nil {
			return runF(cmd.Context(), o)
		}
		return o.run(cmd.Context())
	}
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "in this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the journal")
	return cmd
}

func (o *versionOptions) run(ctx context.Context) error {
	request := protocol.VersionRequest{Act: o.f.newAct(o.reason), Version: o.version, Channel: o.channel}
	return o.f.actOnce(ctx, o.service, o.verb, request.Act, request)
}
