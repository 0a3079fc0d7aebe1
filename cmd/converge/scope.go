package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

// scopeOptions are the options of pause, resume and refresh, which accept a service, one of its channels, or every service of an
// application.
type scopeOptions struct {
	f       *Factory
	verb    string
	target  target
	all     bool // instead of a target
	except  []string
	channel string
	reason  string
	yes     bool
}

func newCmdPause(f *Factory, runF func(context.Context, *scopeOptions) error) *cobra.Command {
	return newScopeCmd(f, protocol.Pause, runF, cobra.Command{
		Short: "Pause a service, a channel, an application or everything",
		Long: `Pause a service, one of its channels, every service of an application, or everything: it
is still observed, but never applied. An apply in progress finishes. Services that are
added later are paused too. To pause what runs on one runtime: converge runtime pause.`,
		Example: `  converge pause shop/web prod-eu --reason "incident 12"
  converge pause shop --yes
  converge pause --all --except status-page --yes --reason "incident 12"`,
	})
}

func newCmdResume(f *Factory, runF func(context.Context, *scopeOptions) error) *cobra.Command {
	return newScopeCmd(f, protocol.Resume, runF, cobra.Command{
		Short: "End a pause",
		Long: `End the pause of a service, of one of its channels, of an application, or of everything.
Each pause ends only where it began: a service that was paused individually stays paused.`,
		Example: `  converge resume shop/web prod-eu`,
	})
}

func newCmdRefresh(f *Factory, runF func(context.Context, *scopeOptions) error) *cobra.Command {
	return newScopeCmd(f, protocol.Refresh, runF, cobra.Command{
		Short:   "Observe the runtime now instead of at the next poll",
		Long:    `Observe what runs now, before the next reading is due.`,
		Example: `  converge channel refresh shop/web`,
	})
}

func newScopeCmd(f *Factory, verb string, runF func(context.Context, *scopeOptions) error, texts cobra.Command) *cobra.Command {
	o := &scopeOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use = verb + " SVC|APP [CHANNEL]"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if (o.all || len(o.except) > 0) && len(args) == 0 {
			return nil
		}
		return argsFromUse(cmd, args)
	}
	cmd.RunE = newRunE(o, runF, o.run, func(args []string) (err error) {
		if o.all || len(o.except) > 0 {
			return o.checkAll(args)
		}
		if len(args) > 1 {
			if o.channel != "" {
				return fmt.Errorf("expected one release channel, not both %s and --channel %s", args[1], o.channel)
			}
			o.channel = args[1]
		}
		o.target, err = f.parseTarget(args[0])
		return err
	})
	if verb != protocol.Refresh {
		cmd.Flags().BoolVar(&o.all, "all", false, "everything: all services of all applications")
	}
	if verb == protocol.Pause {
		cmd.Flags().StringSliceVar(&o.except, "except", nil, "with --all: applications to exclude")
	}
	cmd.Flags().StringVarP(&o.channel, "channel", "c", "", "this release channel only")
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation if more than one service is affected")
	return cmd
}

func (o *scopeOptions) run(ctx context.Context) (err error) {
	if o.target, err = o.f.resolveTarget(ctx, o.target); err != nil {
		return err
	}
	switch {
	case o.all:
		return o.runOnEverything(ctx)
	case o.target.all && o.channel == "" && o.verb != protocol.Refresh:
		return o.runOnApplication(ctx)
	}
	names, err := o.f.services(ctx, o.target)
	if err != nil {
		return err
	}
	if err := o.f.confirmAll(ctx, o.yes, o.verb, names); err != nil {
		return err
	}
	request := protocol.ScopeRequest{RequestMeta: o.f.actOn(o.reason, names), Channel: o.channel}
	answers, err := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (protocol.Answer, error) {
		var answer protocol.Answer
		err := o.f.act(ctx, n, o.verb, request.RequestID, request, &answer)
		return answer, err
	})
	return o.f.printAnswers(names, answers, err)
}

// printAnswers prints what each service answered, and what happens next in its channels.
func (f *Factory) printAnswers(names []connection.ServiceName, answers []protocol.Answer, err error) error {
	type answered struct {
		Service string `json:"service"`
		protocol.Answer
	}
	all := []answered{}
	for i, a := range answers {
		if a.Message != "" {
			all = append(all, answered{names[i].String(), a})
		}
	}
	if f.structured() {
		if e := f.screen().Document(all); e != nil {
			return e
		}
		return err
	}
	for _, a := range all {
		lines := append([]string{a.Message}, a.Next...)
		if len(names) > 1 {
			lines[0] = a.Service + ": " + lines[0]
			for n := range lines[1:] {
				lines[n+1] = "  " + lines[n+1]
			}
		}
		if e := f.screen().Lines(lines...); e != nil {
			return e
		}
	}
	return err
}
