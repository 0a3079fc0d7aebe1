package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// rollbackOptions are those of rollback (A22).
type rollbackOptions struct {
	f       *Factory
	service serviceName
	version string
	channel string
	reason  string
}

func newCmdRollback(f *Factory, runF func(context.Context, *rollbackOptions) error) *cobra.Command {
	o := &rollbackOptions{f: f}
	cmd := &cobra.Command{
		Use:   "rollback SVC [VERSION]",
		Short: "Take a release back where it is, to what was good before",
		Long: `Return every release channel that a release entered and that is still at it to the
target that was good there before. Without VERSION: the newest release that entered
any channel. No gate is asked; paused and pinned channels are left alone, and named.

The release does not come back by itself; a newer one goes on as usual.`,
		Example: `  converge rollback shop/web --reason "errors in checkout"
  converge rollback shop/web v9 --channel prod-eu`,
		Args: exactArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.service, err = f.parseService(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				o.version = args[1]
			}
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "in this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the history")
	return cmd
}

func (o *rollbackOptions) run(ctx context.Context) error {
	request := protocol.RollbackRequest{Act: o.f.newAct(o.reason), Version: o.version, Channel: o.channel}
	return o.f.actOnce(ctx, o.service, protocol.Rollback, request.Act, request)
}
