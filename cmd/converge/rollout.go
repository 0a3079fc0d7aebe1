package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// newCmdRollout groups the verbs for rollouts with their own steps (H3).
func newCmdRollout(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Let a rollout go on that waits at a step of its own, or take it back",
		Long: `Act on rollouts that another controller does in steps of its own: those of Argo Rollouts.
While one waits at a step for a person its channel is SUSPENDED, and no deadline passes.`,
		Example: `  converge rollout promote shop/web prod-eu
  converge rollout abort shop/web prod-eu --reason "errors in checkout"`,
	}
	cmd.AddCommand(newCmdPromote(f, nil), newCmdAbort(f, nil))
	return cmd
}

func newCmdPromote(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Promote, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Let a rollout go on that waits at a step of its own",
		Long: `Let a rollout go on past the step at which it waits, as kubectl argo rollouts promote does;
with --full, past all that are left. Without CHANNEL: wherever one waits. What was asked is
carried out by a worker, and what came of it is in converge history. A pause holds it.

A Canary of Flagger is let go on at its gate; this says where.`,
		Example: `  converge rollout promote shop/web prod-eu --reason "looks good"
  converge rollout promote shop/web prod-eu --full`,
	}, rolloutRequest)
	cmd.Flags().BoolVar(&o.full, "full", false, "skip all steps that are left, analysis included")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the history")
	return cmd
}

func newCmdAbort(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Abort, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Take back a rollout that goes on in steps of its own",
		Long: `Take a rollout back that is under way, as kubectl argo rollouts abort does: traffic returns
to the version before. Its release has failed then, and what follows is what follows any
failure. Without CHANNEL: wherever one is under way. No pause holds it.`,
		Example: `  converge rollout abort shop/web prod-eu --reason "errors in checkout"`,
	}, rolloutRequest)
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the history")
	return cmd
}

func rolloutRequest(o *serviceOptions, act protocol.Act) protocol.RolloutRequest {
	return protocol.RolloutRequest{Act: act, Channel: o.channel, Full: o.full}
}
