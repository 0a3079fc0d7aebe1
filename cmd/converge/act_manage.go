package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// manageOptions are those of unmanage and manage (F1).
type manageOptions struct {
	f      *Factory
	verb   string
	target target
	reason string
	yes    bool
}

func newCmdUnmanage(f *Factory, runF func(context.Context, *manageOptions) error) *cobra.Command {
	return newManageCmd(f, protocol.Unmanage, runF, cobra.Command{
		Short: "Keep a service, or all of an application, down",
		Long: `Keep a service, or all of an application, down until: converge manage. Its workflow
is ended, what runs is left as it is: nobody observes it, repairs it or applies to
it, and an apply under way is ended. What is known of it is kept, and what is
published meanwhile reaches it once it is managed again. Most often a pause is what
you want, which goes on observing: converge pause.`,
		Example: `  converge unmanage shop/web --reason "moves to another team"
  converge unmanage shop --reason "drill" --yes`,
	})
}

func newCmdManage(f *Factory, runF func(context.Context, *manageOptions) error) *cobra.Command {
	return newManageCmd(f, protocol.Manage, runF, cobra.Command{
		Short: "Look after a service again that was unmanaged",
		Long: `Look after a service, or all of an application, again: it goes on from what was known
of it. A service that was unmanaged by itself stays so when its application is managed
again.`,
		Example: `  converge manage shop/web`,
	})
}

func newManageCmd(f *Factory, verb string, runF func(context.Context, *manageOptions) error, texts cobra.Command) *cobra.Command {
	o := &manageOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use = verb + " SVC|APP"
	cmd.Args = asUsed
	cmd.RunE = running(o, runF, o.run, func(args []string) (err error) {
		o.target, err = f.parseTarget(args[0])
		return err
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, shown to everybody who asks")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask before touching more than one service")
	return cmd
}

func (o *manageOptions) run(ctx context.Context) (err error) {
	if o.verb == protocol.Unmanage && o.reason == "" {
		return errors.New("--reason is missing: whoever finds a service down wants to know why")
	}
	if o.target, err = o.f.meant(ctx, o.target); err != nil {
		return err
	}
	service := ""
	if !o.target.all {
		service = o.target.service
		if err := o.there(ctx); err != nil {
			return err
		}
	} else if err := o.f.confirm(ctx, o.yes, fmt.Sprintf("%s all services of %s", o.verb, o.target.application)); err != nil {
		return err
	}
	request := protocol.ManageRequest{Act: o.f.newAct(o.reason), Service: service}
	return o.f.actOnWhole(ctx, wholeApplication(o.target.application), o.verb, request.Act, request)
}

// there refuses an unknown service. The application keeps no list of its services, so it would detect the mistake only later.
func (o *manageOptions) there(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	running, err := api.Services(ctx, o.target.application)
	if err != nil {
		return err
	}
	for _, n := range running {
		if n == o.target.serviceName {
			return nil
		}
	}
	gone, err := o.f.unmanaged(ctx, o.target)
	if err == nil && len(gone) == 0 {
		return o.f.missing(ctx, o.target.serviceName)
	}
	return err
}
