package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

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
final; releases after it are not held up.`,
		Example: `  converge reject shop/web v9 go-live --comment "wrong prices"`,
	})
}

func newApprovalCmd(f *Factory, verb string, runF func(context.Context, *approvalOptions) error, texts cobra.Command) *cobra.Command {
	o := &approvalOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use = verb + " SVC VERSION TOPIC"
	cmd.Args = exactArgs(3, 3)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.service, err = f.parseService(args[0]); err != nil {
			return err
		}
		o.version, o.topic = args[1], args[2]
		if runF != nil {
			return runF(cmd.Context(), o)
		}
		return o.run(cmd.Context())
	}
	cmd.Flags().StringVar(&o.comment, "comment", "", "what others should know, kept in the history")
	return cmd
}

func (o *approvalOptions) run(ctx context.Context) error {
	request := protocol.ApprovalRequest{Act: o.f.newAct(""), Version: o.version, Topic: o.topic, Comment: o.comment}
	return o.f.actOnce(ctx, o.service, o.verb, request.Act, request)
}

// actOnce sends an act to one service and prints its answer.
func (f *Factory) actOnce(ctx context.Context, n serviceName, verb string, act protocol.Act, request any) error {
	var answer protocol.Answer
	if err := f.act(ctx, n, verb, act.RequestID, request, &answer); err != nil {
		return err
	}
	return f.answered([]serviceName{n}, []string{answer.Message}, nil)
}
