package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file contains the verbs that send one act to one service.

// serviceOptions are the options of a verb that sends one act to one service. The usage line of the verb names its arguments; its flags
// set the other options.
type serviceOptions struct {
	f       *Factory
	verb    string
	service serviceName
	joint   *jointName // instead: all services of a joint release

	version, channel, topic, condition string
	olderThan, except                  string
	reason, comment                    string
	stay, terminate, whilePaused, full bool
}

// newServiceCmd makes the command of a verb. It reads the arguments that follow SVC in the usage line into the options. The function
// request builds the request.
func newServiceCmd[R any](f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command, request func(o *serviceOptions, act protocol.Act) R) (*cobra.Command, *serviceOptions) {
	o := &serviceOptions{f: f, verb: verb}
	places := map[string]*string{"VERSION": &o.version, "CHANNEL": &o.channel, "TOPIC": &o.topic, "CONDITION": &o.condition}
	var words []*string
	for _, word := range strings.Fields(texts.Use)[1:] {
		words = append(words, places[strings.Trim(word, "[]")])
	}
	cmd := &texts
	cmd.Use = verb + " " + cmd.Use
	ofRelease := len(words) > 0 && words[0] == &o.version // the release may be a joint one
	if ofRelease {
		cmd.Long += "\n\nOf a release of several services give APP@ID in the place of SVC VERSION."
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if ofRelease {
			args = spelledOut(args)
		}
		return asUsed(cmd, args)
	}
	cmd.RunE = running(o, runF, func(ctx context.Context) error {
		act := f.newAct(o.reason) // one act: its token is valid for all services
		send := func(ctx context.Context, n serviceName) (string, error) {
			var answer protocol.Answer
			err := f.act(ctx, n, verb, act.RequestID, request(o, act), &answer)
			return answer.Message, err
		}
		if o.joint != nil {
			return o.actOnParts(ctx, send)
		}
		message, err := send(ctx, o.service)
		if err != nil {
			return err
		}
		return f.answered([]serviceName{o.service}, []string{message}, nil)
	}, func(args []string) error {
		if err := o.read(args, words, ofRelease); err != nil {
			return err
		}
		switch {
		case verb == protocol.Bypass && o.reason == "":
			return errors.New("a bypass needs a reason that others will read; give one with --reason")
		case verb == protocol.Cancel && given(o.version, o.olderThan, o.except) != 1:
			return errors.New("give one of VERSION, --older-than and --except")
		}
		return nil
	})
	return cmd, o
}

// read reads SVC and the arguments after it. If the next argument is a version, it also accepts APP@ID in place of both.
func (o *serviceOptions) read(args []string, words []*string, ofRelease bool) error {
	joint, named, err := parseJoint(args[0])
	if !named || !ofRelease {
		return o.f.readService(args, &o.service, words...)
	}
	o.joint = &joint
	for i, word := range spelledOut(args)[1:] {
		*words[i] = word
	}
	return err
}

func newCmdApprove(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newApprovalCmd(f, protocol.Approve, runF, cobra.Command{
		Short: "Approve a release, for one channel or one shared approval",
		Long: `Approve a release. TOPIC is what converge explain names: a release channel, a shared
approval such as go-live, or apply/CHANNEL where every apply is approved.

Where the application asks for proof of who approves, give an OIDC ID token with
--token or CONVERGE_TOKEN.`,
		Example: `  converge approve shop/web v9 go-live --comment "tested by QA"
  converge approve shop@autumn go-live`,
	})
}

func newCmdReject(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newApprovalCmd(f, protocol.Reject, runF, cobra.Command{
		Short: "Reject a release for good, in the channels of one approval",
		Long: `Reject a release: it does not enter the channels that the approval is for. That is
final; releases after it are not delayed.`,
		Example: `  converge reject shop/web v9 go-live --comment "wrong prices"`,
	})
}

// newApprovalCmd makes approve and reject (A14).
func newApprovalCmd(f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command) *cobra.Command {
	texts.Use = "SVC VERSION TOPIC"
	cmd, o := newServiceCmd(f, verb, runF, texts, func(o *serviceOptions, act protocol.Act) protocol.ApprovalRequest {
		return protocol.ApprovalRequest{Act: act, Version: o.version, Topic: o.topic, Comment: o.comment}
	})
	cmd.Flags().StringVar(&o.comment, "comment", "", "what others should know, kept in the history")
	return cmd
}

// given counts the texts that are not empty.
func given(texts ...string) (n int) {
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
		Short: "Let one release pass one condition of one channel",
		Long: `Let one release pass one condition of one release channel, whatever the condition
says. CONDITION is what converge explain names. Who did it and why stays visible with
the release and in converge history.`,
		Example: `  converge bypass shop/web v9 prod-eu office-hours --reason "incident 12"`,
	}, func(o *serviceOptions, act protocol.Act) protocol.BypassRequest {
		return protocol.BypassRequest{Act: act, Version: o.version, Channel: o.channel, Condition: o.condition}
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "why (required)")
	return cmd
}

func newCmdPin(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newPinCmd(f, protocol.Pin, runF, cobra.Command{
		Use:   "SVC CHANNEL [VERSION]",
		Short: "Keep a channel at a version, whatever is released",
		Long: `Keep a release channel at the version that it has, or return it to one that was good
there before, and keep it there until it is unpinned. Releases wait meanwhile. Without
VERSION: the one that is there.`,
		Example: `  converge pin shop/web prod-eu v7 --reason "v8 breaks printing"
  converge pin shop/web prod-eu --reason "weekend"`,
	})
}

func newCmdUnpin(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	return newPinCmd(f, protocol.Unpin, runF, cobra.Command{
		Use:   "SVC CHANNEL",
		Short: "Let releases into a pinned channel again",
		Long: `End a pin: releases that wait go on. Where none waits, what was there before the pin
comes back once all gates pass; with --stay it does not.`,
		Example: `  converge unpin shop/web prod-eu
  converge unpin shop/web prod-eu --stay`,
	})
}

// newPinCmd makes pin and unpin (A17).
func newPinCmd(f *Factory, verb string, runF func(context.Context, *serviceOptions) error, texts cobra.Command) *cobra.Command {
	cmd, o := newServiceCmd(f, verb, runF, texts, func(o *serviceOptions, act protocol.Act) protocol.PinRequest {
		return protocol.PinRequest{Act: act, Channel: o.channel, Version: o.version, Stay: o.stay}
	})
	if verb == protocol.Unpin {
		cmd.Flags().BoolVar(&o.stay, "stay", false, "keep what it was pinned to, until something newer is released")
	}
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, shown to everybody who asks")
	return cmd
}

// newCmdRestart makes restart (I1).
func newCmdRestart(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.RestartService, runF, cobra.Command{
		Use:   "SVC [CHANNEL]",
		Short: "Have a service begin anew at the version that is there",
		Long: `Apply the version that is there once more, so that what runs begins anew: on Kubernetes
pods are replaced as by kubectl rollout restart, on ECS by a new deployment, and a
command sees PVN_RESTART=1. No gate is asked. A pause holds it, a pin does not.

A channel that was taken down comes back by it, at the version that was there.`,
		Example: `  converge restart shop/web prod-eu --reason "rotated the database password"
  converge restart shop/web`,
	}, func(o *serviceOptions, act protocol.Act) protocol.ScopeRequest {
		return protocol.ScopeRequest{Act: act, Channel: o.channel}
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the history")
	return cmd
}

func newCmdRollback(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Rollback, runF, cobra.Command{
		Use:   "SVC [VERSION]",
		Short: "Take a release back where it is, to what was good before",
		Long: `Return every release channel that a release entered and that is still at it to the
target that was good there before. Without VERSION: the newest release that entered
any channel. No gate is asked; paused and pinned channels are left alone, and named. With
--while-paused a channel, or service, that is paused by itself goes back too, and stays
paused.
Below the version that the service names as noRollbackBelow nothing goes without a bypass
of no-rollback-below. Of APP@ID the parts that entered no channel yet are cancelled.

The release does not come back by itself; a newer one goes on as usual.`,
		Example: `  converge rollback shop/web --reason "errors in checkout"
  converge rollback shop/web v9 --channel prod-eu --while-paused`,
	}, func(o *serviceOptions, act protocol.Act) protocol.RollbackRequest {
		return protocol.RollbackRequest{Act: act, Version: o.version, Channel: o.channel, WhilePaused: o.whilePaused}
	})
	versionFlags(cmd, o)
	cmd.Flags().BoolVar(&o.whilePaused, "while-paused", false, "also where the channel, or the service, is paused; it stays so")
	return cmd
}

// newCmdCancel makes cancel (A18).
func newCmdCancel(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Cancel, runF, cobra.Command{
		Use:   "SVC [VERSION]",
		Short: "Stop a release, or many that wait, and end what runs for it",
		Long: `Stop a release from going any further, and ask its extensions and applies that run to
end: a command gets SIGTERM, and its time. With --terminate it gets none. Also for what was
cancelled before and does not end.

Where the release had not succeeded yet, nothing of it is applied any more, and neither a
rollback nor an unpin leads back to it. Where it had, it stays, and is still enforced.

With --older-than, end all that waits and was released before a version; with --except,
all that waits but that version. What is just going out to a channel goes on there.`,
		Example: `  converge cancel shop/web v9 --reason "wrong build"
  converge cancel shop/web v9 --terminate
  converge cancel shop/web --older-than v51
  converge cancel shop/web --except v51 --channel prod-eu
  converge cancel shop@autumn`,
	}, func(o *serviceOptions, act protocol.Act) protocol.CancelRequest {
		return protocol.CancelRequest{
			Act: act, Version: o.version, Channel: o.channel, Terminate: o.terminate, OlderThan: o.olderThan, Except: o.except,
		}
	})
	versionFlags(cmd, o)
	cmd.Flags().BoolVar(&o.terminate, "terminate", false, "end what runs for it at once, whatever it is in the middle of")
	cmd.Flags().StringVar(&o.olderThan, "older-than", "", "end all that waits and was released before this version")
	cmd.Flags().StringVar(&o.except, "except", "", "end all that waits but this version")
	return cmd
}

func newCmdRetry(f *Factory, runF func(context.Context, *serviceOptions) error) *cobra.Command {
	cmd, o := newServiceCmd(f, protocol.Retry, runF, cobra.Command{
		Use:   "SVC VERSION",
		Short: "Start a failed release again",
		Long: `Start a release again where it failed. Where it is still the target, it is applied again,
and no gate is asked. Where it was rolled back, it is to enter once more: every gate is
asked anew, approvals included, and bypass lets it pass one. Where the rollback to the
version failed, that is tried again. In the channels behind, what failed is approved anew.`,
		Example: `  converge retry shop/web v9 --channel canary`,
	}, func(o *serviceOptions, act protocol.Act) protocol.VersionRequest {
		return protocol.VersionRequest{Act: act, Version: o.version, Channel: o.channel}
	})
	versionFlags(cmd, o)
	return cmd
}

// versionFlags adds the flags of verbs that concern one release.
func versionFlags(cmd *cobra.Command, o *serviceOptions) {
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "in this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, kept in the history")
}
