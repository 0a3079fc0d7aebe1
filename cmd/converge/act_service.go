package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file contains the verbs that send one act to one service.

// serviceOptions are the options of a verb that sends one act to one service. The usage line of the verb names its arguments; its flags
// set the other options.
type serviceOptions struct {
	f       *Factory
	verb    string
	service connection.ServiceName
	joint   *jointName // instead: all services of a joint release

	version, channel, topic, condition string
	olderThan, except                  string
	reason, comment                    string
	stay, terminate, whilePaused, full bool
}

// newServiceCmd makes the command of a verb. It reads the arguments that follow SVC in the usage line into the options. The function
// request builds the request.
func newServiceCmd[R any](f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command, request func(o *serviceOptions, act protocol.RequestMeta) R) (*cobra.Command, *serviceOptions) {
	o := &serviceOptions{f: f, verb: verb}
	fields := map[string]*string{"VERSION": &o.version, "CHANNEL": &o.channel, "TOPIC": &o.topic, "CONDITION": &o.condition}
	var positional []*string
	for _, word := range strings.Fields(texts.Use)[1:] {
		positional = append(positional, fields[strings.Trim(word, "[]")])
	}
	cmd := &texts
	cmd.Use = verb + " " + cmd.Use
	takesRelease := len(positional) > 0 && positional[0] == &o.version // the release may be a joint one
	if takesRelease {
		cmd.Long += "\n\nFor a joint release, give APP@ID in place of SVC VERSION."
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if takesRelease {
			args = expandJoint(args)
		}
		return argsFromUse(cmd, args)
	}
	cmd.RunE = newRunE(o, runF, func(ctx context.Context) error {
		if o.joint != nil {
			return o.actOnParts(ctx, func(act protocol.RequestMeta) any { return request(o, act) })
		}
		act := f.newAct(o.reason)
		var answer protocol.Answer
		if err := f.act(ctx, o.service, verb, act.RequestID, request(o, act), &answer); err != nil {
			return err
		}
		return f.printAnswers([]connection.ServiceName{o.service}, []protocol.Answer{answer}, nil)
	}, func(args []string) error {
		if err := o.parse(args, positional, takesRelease); err != nil {
			return err
		}
		switch {
		case verb == protocol.Bypass && o.reason == "":
			return errors.New("a bypass requires a reason that others can read: --reason")
		case verb == protocol.Cancel && countGiven(o.version, o.olderThan, o.except) != 1:
			return errors.New("expected one of VERSION, --older-than and --except")
		}
		return nil
	})
	return cmd, o
}

// actOnParts sends one act to all services of a joint release.
func (o *serviceOptions) actOnParts(ctx context.Context, request func(protocol.RequestMeta) any) error {
	names, err := o.f.partsOf(ctx, *o.joint)
	if err != nil {
		return err
	}
	act := o.f.actOn(o.reason, names)
	answers, err := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (protocol.Answer, error) {
		var answer protocol.Answer
		err := o.f.act(ctx, n, o.verb, act.RequestID, request(act), &answer)
		if err != nil {
			err = fmt.Errorf("%s: %w", n, err)
		}
		return answer, err
	})
	return o.f.printAnswers(names, answers, err)
}

// parse reads SVC and the arguments after it. If the next argument is a version, it also accepts APP@ID in place of both.
func (o *serviceOptions) parse(args []string, positional []*string, takesRelease bool) error {
	joint, isJoint, err := parseJoint(args[0])
	if !isJoint || !takesRelease {
		return o.f.parseServiceArgs(args, &o.service, positional...)
	}
	o.joint = &joint
	for i, word := range expandJoint(args)[1:] {
		*positional[i] = word
	}
	return err
}

func newCmdApprove(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newApprovalCmd(f, protocol.Approve, runF, cobra.Command{
		Short: "Approve a release for a channel or a shared approval",
		Long: `Approve a release. TOPIC is the name that converge explain shows: a release channel, a
shared approval such as go-live, or apply/CHANNEL if every apply needs approval.

If the application requires proof of identity, pass an OIDC ID token with --token or
CONVERGE_TOKEN.`,
		Example: `  converge approve shop/web v9 go-live --comment "tested by QA"
  converge approve shop@autumn go-live`,
	})
}

func newCmdReject(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newApprovalCmd(f, protocol.Reject, runF, cobra.Command{
		Short: "Reject a release permanently, in the channels of an approval",
		Long: `Reject a release: it does not enter the channels that need this approval. A rejection is
final; it does not delay later releases.`,
		Example: `  converge reject shop/web v9 go-live --comment "wrong prices"`,
	})
}

// newApprovalCmd makes approve and reject (A14).
func newApprovalCmd(f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command) *cobra.Command {
	texts.Use = "SVC VERSION TOPIC"
	cmd, o := newServiceCmd(f, verb, runF, texts, func(o *serviceOptions, act protocol.RequestMeta) protocol.ApprovalRequest {
		return protocol.ApprovalRequest{RequestMeta: act, Version: o.version, Topic: o.topic, Comment: o.comment}
	})
	cmd.Flags().StringVar(&o.comment, "comment", "", "comment, kept in the history")
	return cmd
}

// countGiven counts the texts that are not empty.
func countGiven(texts ...string) (n int) {
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}

// newCmdBypass makes bypass (A15).
func newCmdBypass(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Bypass, runF, cobra.Command{
		Use:   "SVC VERSION CHANNEL CONDITION",
		Short: "Bypass a condition of a channel for one release",
		Long: `Let one release pass one condition of one release channel, regardless of its result.
CONDITION is the name that converge explain shows. Who bypassed it and why stays visible
with the release and in converge history.`,
		Example: `  converge bypass shop/web v9 prod-eu office-hours --reason "incident 12"`,
	}, func(o *serviceOptions, act protocol.RequestMeta) protocol.BypassRequest {
		return protocol.BypassRequest{RequestMeta: act, Version: o.version, Channel: o.channel, Condition: o.condition}
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason (required)")
	return cmd
}

func newCmdPin(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newPinCmd(f, protocol.Pin, runF, cobra.Command{
		Use:   "SVC CHANNEL [VERSION]",
		Short: "Pin a channel to a version",
		Long: `Pin a release channel to its current version, or return it to a version that was good
there before, until converge channel unpin. Releases wait. Without VERSION: the current
version.`,
		Example: `  converge channel pin shop/web prod-eu v7 --reason "v8 breaks printing"
  converge channel pin shop/web prod-eu --reason "weekend"`,
	})
}

func newCmdUnpin(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newPinCmd(f, protocol.Unpin, runF, cobra.Command{
		Use:   "SVC CHANNEL",
		Short: "Unpin a channel",
		Long: `End a pin: waiting releases continue. If none waits, the version before the pin is
deployed again once all gates pass; --stay prevents that.`,
		Example: `  converge channel unpin shop/web prod-eu
  converge channel unpin shop/web prod-eu --stay`,
	})
}

// newPinCmd makes pin and unpin (A17).
func newPinCmd(f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command) *cobra.Command {
	cmd, o := newServiceCmd(f, verb, runF, texts, func(o *serviceOptions, act protocol.RequestMeta) protocol.PinRequest {
		return protocol.PinRequest{RequestMeta: act, Channel: o.channel, Version: o.version, Stay: o.stay}
	})
	if verb == protocol.Unpin {
		cmd.Flags().BoolVar(&o.stay, "stay", false, "stay at the pinned version until a newer release")
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	return cmd
}

// newCmdRestart makes restart (I1).
func newCmdRestart(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.RestartService, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Restart a service at its current version",
		Long: `Apply the current version again, so that its workloads restart: on Kubernetes, pods are
replaced as by kubectl rollout restart; ECS starts a new deployment; a command sees
PVN_RESTART=1. No gate is evaluated. A pause holds the restart, a pin does not.

A channel that was deleted is restored at its last version.`,
		Example: `  converge restart shop/web prod-eu --reason "rotated the database password"
  converge restart shop/web`,
	}, func(o *serviceOptions, act protocol.RequestMeta) protocol.ScopeRequest {
		return protocol.ScopeRequest{RequestMeta: act, Channel: o.channel}
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept in the history")
	return cmd
}

// newCmdAdopt makes adopt (A25).
func newCmdAdopt(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newHandoverCmd(f, protocol.Adopt, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Let Converge apply a service where it only reports",
		Long: `Take a service over from the tool that deploys it, in the release channels that are
declared report-only, or in one of them. Its gates are evaluated again; then Converge
applies. Objects of another tool are taken over if the service says adopt: true, and no pod
is replaced unless its template changes. Other services of the channel stay report-only.

End the claim of the other tool first, or it deploys, too. A runtime with access: read has
to be published without it before.`,
		Example: `  converge adopt shop/web production --reason "two weeks without a difference"
  converge adopt shop/web`,
	})
}

// newCmdReturn makes return (A25).
func newCmdReturn(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newHandoverCmd(f, protocol.Return, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Give an adopted service back",
		Long: `Undo converge adopt, in all release channels or in one: Converge only reports there
again, and gives up the objects: its labels, annotations and claims on fields are removed.
What runs stays as it is, and no pod is replaced. Then let the other tool deploy again.`,
		Example: `  converge return shop/web production --reason "after the migration"
  converge return shop/web`,
	})
}

func newHandoverCmd(f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command) *cobra.Command {
	cmd, o := newServiceCmd(f, verb, runF, texts, func(o *serviceOptions, act protocol.RequestMeta) protocol.ScopeRequest {
		return protocol.ScopeRequest{RequestMeta: act, Channel: o.channel}
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept in the history")
	return cmd
}

func newCmdRollback(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Rollback, runF, cobra.Command{
		Use:     "SVC [VERSION]",
		Aliases: []string{"undo"},
		Short:   "Roll back a release to the last good target",
		Long: `Return every release channel that the release entered, and that is still at it, to its
last good target. Without VERSION: the newest release that entered any channel. No gate is
evaluated; paused and pinned channels are skipped and listed. With --while-paused, a
channel or a service that is paused itself is rolled back too, and stays paused.

Nothing is rolled back below the version in noRollbackBelow without a bypass of
no-rollback-below. With APP@ID, parts that entered no channel yet are cancelled.

The release is not deployed again automatically; newer releases continue as usual.`,
		Example: `  converge rollback shop/web --reason "errors in checkout"
  converge rollback shop/web v9 --channel prod-eu --while-paused`,
	}, func(o *serviceOptions, act protocol.RequestMeta) protocol.RollbackRequest {
		return protocol.RollbackRequest{RequestMeta: act, Version: o.version, Channel: o.channel, WhilePaused: o.whilePaused}
	})
	versionFlags(cmd, o)
	cmd.Flags().BoolVar(&o.whilePaused, "while-paused", false, "also roll back paused channels and services; they stay paused")
	return cmd
}

// newCmdCancel makes cancel (A18).
func newCmdCancel(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Cancel, runF, cobra.Command{
		Use:   "SVC [VERSION]",
		Short: "Cancel a release, or several that wait",
		Long: `Cancel a release, and ask its running extensions and applies to end: a command gets
SIGTERM and its grace period. With --terminate it gets none. This also works for a release
that was cancelled before and does not end.

Where the release had not succeeded yet, nothing of it is applied any more, and neither a
rollback nor an unpin returns to it. Where it had succeeded, it stays, and is still
enforced.

--older-than cancels all waiting releases that are older than a version; --except cancels
all waiting releases except that version. A release in progress in a channel continues
there.`,
		Example: `  converge cancel shop/web v9 --reason "wrong build"
  converge cancel shop/web v9 --terminate
  converge cancel shop/web --older-than v51
  converge cancel shop/web --except v51 --channel prod-eu
  converge cancel shop@autumn`,
	}, func(o *serviceOptions, act protocol.RequestMeta) protocol.CancelRequest {
		return protocol.CancelRequest{
			RequestMeta: act, Version: o.version, Channel: o.channel, Terminate: o.terminate, OlderThan: o.olderThan, Except: o.except,
		}
	})
	versionFlags(cmd, o)
	cmd.Flags().BoolVar(&o.terminate, "terminate", false, "terminate its running commands at once")
	cmd.Flags().StringVar(&o.olderThan, "older-than", "", "cancel all waiting releases that are older than this version")
	cmd.Flags().StringVar(&o.except, "except", "", "cancel all waiting releases except this version")
	return cmd
}

func newCmdRetry(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Retry, runF, cobra.Command{
		Use:   "SVC VERSION",
		Short: "Retry a failed release",
		Long: `Retry a release where it failed. Where it is still the target, it is applied again, and no
gate is evaluated. Where it was rolled back, it is queued again: every gate is evaluated
again, approvals included, and bypass lets it pass one. Where the rollback to the version
failed, the rollback is retried. In the channels behind, what failed needs a new approval.`,
		Example: `  converge retry shop/web v9 --channel canary`,
	}, func(o *serviceOptions, act protocol.RequestMeta) protocol.VersionRequest {
		return protocol.VersionRequest{RequestMeta: act, Version: o.version, Channel: o.channel}
	})
	versionFlags(cmd, o)
	return cmd
}

// versionFlags adds the flags of verbs that concern one release.
func versionFlags(cmd *cobra.Command, o *serviceOptions) {
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "in this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept in the history")
}
