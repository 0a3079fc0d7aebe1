package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file holds the verbs for rollouts whose steps another controller runs: those of Argo Rollouts (H3). While one is paused at a
// step for a person, its channel is SUSPENDED, and no deadline passes.

func newCmdPromote(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Promote, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Promote a paused rollout",
		Long: `Promote a rollout past the step at which it is paused, like kubectl argo rollouts promote;
with --full, past all remaining steps. Without CHANNEL: every paused rollout. A worker
carries out the request, and converge history shows the result. A pause holds it.

A Canary of Flagger is promoted at its gate; the answer says where.`,
		Example: `  converge promote shop/web prod-eu --reason "looks good"
  converge promote shop/web prod-eu --full`,
	}, rolloutRequest)
	cmd.Flags().BoolVar(&o.full, "full", false, "skip all remaining steps, including analysis")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept in the history")
	return cmd
}

func newCmdAbort(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Abort, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Abort a rollout",
		Long: `Abort a rollout in progress, like kubectl argo rollouts abort: traffic returns to the
previous version. Its release has then failed, with the same consequences as any failure.
Without CHANNEL: every rollout in progress. A pause does not hold it.`,
		Example: `  converge abort shop/web prod-eu --reason "errors in checkout"`,
	}, rolloutRequest)
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept in the history")
	return cmd
}

func rolloutRequest(o *serviceOptions, act protocol.RequestMeta) protocol.RolloutRequest {
	return protocol.RolloutRequest{RequestMeta: act, Channel: o.channel, Full: o.full}
}
