package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file holds the verbs that send one act to one service.

// actOnce sends an act to one service and prints its answer.
func (f *Factory) actOnce(ctx context.Context, n serviceName, verb string, act protocol.Act, request any) error {
	var answer protocol.Answer
	if err := f.act(ctx, n, verb, act.RequestID, request, &answer); err != nil {
		return err
	}
	return f.answered([]serviceName{n}, []string{answer.Message}, nil)
}

// approvalOptions are those of approve and reject (A14).
type approvalOptions struct {
	f       *Factory
	verb    string
	service serviceName
	version string
	topic   string
	comment string
}

func newCmdApprove(f *Factory, runF func(context.Context, *approvalOptions) error) *cobra.Command {
	return newApprovalCmd(f, protocol.Approve, runF, cobra.Command{
		Short: "Approve a release, for one channel or one shared approval",
		Long: `Approve a release. TOPIC is what converge explain names: a release channel, a shared
approval such as go-live, or apply/CHANNEL where every apply is approved.

Where the application asks for proof of who approves, give an OIDC ID token with
--token or CONVERGE_TOKEN.`,
		Example: `  converge approve shop/web v9 go-live --comment "tested by QA"`,
	})
}

func newCmdReject(f *Factory, runF func(context.Context, *approvalOptions) error) *cobra.Command {
	return newApprovalCmd(f, protocol.Reject, runF, cobra.Command{
		Short: "Reject a release for good, in the channels of one approval",
		Long: `Reject a release: it does not enter the channels that the approval is for. That is
final; releases after it are not delayed.`,
		Example: `  converge reject shop/web v9 go-live --comment "wrong prices"`,
	})
}

func newApprovalCmd(f *Factory, verb string, runF func(context.Context, *approvalOptions) error, texts cobra.Command) *cobra.Command {
	o := &approvalOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use = verb + " SVC VERSION TOPIC"
	cmd.Args = exactArgs(3, 3)
	cmd.RunE = running(o, runF, o.run, func(args []string) error { return f.readService(args, &o.service, &o.version, &o.topic) })
	cmd.Flags().StringVar(&o.comment, "comment", "", "what others should know, kept in the history")
	return cmd
}

func (o *approvalOptions) run(ctx context.Context) error {
	request := protocol.ApprovalRequest{Act: o.f.newAct(""), Version: o.version, Topic: o.topic, Comment: o.comment}
	return o.f.actOnce(ctx, o.service, o.verb, request.Act, request)
}

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
		RunE: running(o, runF, o.run, func(args []string) error {
			if err := f.readService(args, &o.service, &o.version, &o.channel, &o.condition); err != nil {
				return err
			}
			if o.reason == "" {
				return errors.New("a bypass needs a reason that others will read; give one with --reason")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why (required)")
	return cmd
}

func (o *bypassOptions) run(ctx context.Context) error {
	request := protocol.BypassRequest{Act: o.f.newAct(o.reason), Version: o.version, Channel: o.channel, Condition: o.condition}
	return o.f.actOnce(ctx, o.service, protocol.Bypass, request.Act, request)
}

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
		Short: "Keep a channel at a version, whatever is released",
		Long: `Keep a release channel at the version that it has, or return it to one that was good
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
	cmd.RunE = running(o, runF, o.run, func(args []string) error { return f.readService(args, &o.service, &o.channel, &o.version) })
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, shown to everybody who asks")
	return cmd
}

func (o *pinOptions) run(ctx context.Context) error {
	request := protocol.PinRequest{Act: o.f.newAct(o.reason), Channel: o.channel, Version: o.version}
	return o.f.actOnce(ctx, o.service, o.verb, request.Act, request)
}

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
		RunE: running(o, runF, o.run, func(args []string) error { return f.readService(args, &o.service, &o.version) }),
	}
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "in this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the history")
	return cmd
}

func (o *rollbackOptions) run(ctx context.Context) error {
	request := protocol.RollbackRequest{Act: o.f.newAct(o.reason), Version: o.version, Channel: o.channel}
	return o.f.actOnce(ctx, o.service, protocol.Rollback, request.Act, request)
}

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
	cmd.RunE = running(o, runF, o.run, func(args []string) error { return f.readService(args, &o.service, &o.version) })
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "in this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the journal")
	return cmd
}

func (o *versionOptions) run(ctx context.Context) error {
	request := protocol.VersionRequest{Act: o.f.newAct(o.reason), Version: o.version, Channel: o.channel}
	return o.f.actOnce(ctx, o.service, o.verb, request.Act, request)
}
