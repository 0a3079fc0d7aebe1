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
		Short: "Stop managing a service or an application",
		Long: `Stop managing a service, or all services of an application, until converge config manage.
The workflow ends. What is deployed keeps running, but is no longer observed, repaired or
updated; an apply in progress is ended. The state is kept, and what is published in the
meantime reaches the service once it is managed again. To only stop updates, use converge
pause, which continues to observe.`,
		Example: `  converge config unmanage shop/web --reason "moves to another team"
  converge config unmanage shop --reason "drill" --yes`,
	})
}

func newCmdManage(f *Factory, runF func(context.Context, *manageOptions) error) *cobra.Command {
	return newManageCmd(f, protocol.Manage, runF, cobra.Command{
		Short: "Resume managing a service",
		Long: `Resume managing a service, or all services of an application, from the state that was
kept. A service that was unmanaged individually stays unmanaged when its application is
managed again.`,
		Example: `  converge config manage shop/web`,
	})
}

func newManageCmd(f *Factory, verb string, runF func(context.Context, *manageOptions) error, texts cobra.Command) *cobra.Command {
	o := &manageOptions{f: f, verb: verb}
	cmd := &texts
	cmd.Use = verb + " SVC|APP"
	cmd.Args = argsFromUse
	cmd.RunE = newRunE(o, runF, o.run, func(args []string) (err error) {
		o.target, err = f.parseTarget(args[0])
		return err
	})
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, shown to other users")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation if more than one service is affected")
	return cmd
}

func (o *manageOptions) run(ctx context.Context) (err error) {
	if o.verb == protocol.Unmanage && o.reason == "" {
		return errors.New("--reason is required: it tells others why the service is unmanaged")
	}
	if o.target, err = o.f.resolveTarget(ctx, o.target); err != nil {
		return err
	}
	service := ""
	if !o.target.all {
		service = o.target.Service
		if err := o.checkExists(ctx); err != nil {
			return err
		}
	} else if err := o.f.confirm(ctx, o.yes, fmt.Sprintf("%s all services of %s", o.verb, o.target.Application)); err != nil {
		return err
	}
	request := protocol.ManageRequest{RequestMeta: o.f.newAct(o.reason), Service: service}
	return o.f.actOnScope(ctx, applicationScope(o.target.Application), o.verb, request.RequestMeta, request)
}

// checkExists refuses an unknown service. The application keeps no list of its services, so it would detect the mistake only later.
func (o *manageOptions) checkExists(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	running, err := api.Services(ctx, o.target.Application)
	if err != nil {
		return err
	}
	for _, n := range running {
		if n == o.target.ServiceName {
			return nil
		}
	}
	unmanaged, err := o.f.unmanagedStatuses(ctx, o.target)
	if err == nil && len(unmanaged) == 0 {
		return o.f.notFoundError(ctx, o.target.ServiceName)
	}
	return err
}
