package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

type planOptions struct {
	f             *Factory
	dir           string // of a configuration; empty: a version of a service
	service       connection.ServiceName
	version       string
	params        []string
	store         string
	full          bool
	allowCommands bool
	exitCode      bool
}

func newCmdPlan(f *Factory, runF func(context.Context, *planOptions) error) *cobra.Command {
	o := &planOptions{f: f}
	cmd := &cobra.Command{
		Use:   "plan [DIR] | SVC VERSION",
		Short: "Preview what a release or a configuration would change",
		Long: `Preview, for each channel and object, what a release of a version would change, or what
publishing the configuration in a directory would. The workers query the runtimes; nothing
is published, released or applied.

+ is created, ~ changed, -/+ recreated, - removed, o left in place, ! refused.
What is no longer declared, with onDelete: remove, is shown with what stays of it. If a
channel cannot be planned, the reason is shown, and the exit status is 1.`,
		Example: `  converge plan shop/web v9
  converge plan web v9 -p replicas=3 -p canary:replicas=1
  converge plan examples/hello --exit-code`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, o.parse),
	}
	cmd.Flags().StringArrayVarP(&o.params, "param", "p", nil, "parameter of the release: name=value or CHANNEL:name=value (repeatable)")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().BoolVar(&o.allowCommands, "allow-commands", false, allowCommandsUsage)
	cmd.Flags().BoolVar(&o.full, "full", false, "show every field with its full path and value")
	cmd.Flags().BoolVar(&o.exitCode, "exit-code", false, "exit with status 2 if something would change")
	return cmd
}

// parse distinguishes a directory from a service: a service is followed by a version.
func (o *planOptions) parse(args []string) error {
	if len(args) == 2 {
		return o.f.parseServiceArgs(args, &o.service, &o.version)
	}
	o.dir = first(append(args, ".")...)
	if len(o.params) > 0 {
		return fmt.Errorf("-p applies to a release only: converge plan SVC VERSION -p name=value")
	}
	if info, e := os.Stat(o.dir); e == nil && info.IsDir() {
		return nil
	}
	if _, e := o.f.parseService(o.dir); e == nil {
		return fmt.Errorf("%s is not a directory; to plan a release of a service, name a version: converge plan %s VERSION", o.dir, o.dir)
	}
	return fmt.Errorf("%s is not a directory; usage: converge plan [DIR] or converge plan SVC VERSION", o.dir)
}

func (o *planOptions) run(ctx context.Context) error {
	plan, err := o.plan(ctx)
	var refused *preview.Refused
	switch {
	case errors.As(err, new(config.Problems)):
		return o.f.problems(err, "; nothing planned")
	case errors.As(err, &refused):
		return &connection.RefusedError{Reason: refused.Reason}
	case err != nil:
		return err
	}
	return o.print(plan)
}

func (o *planOptions) plan(ctx context.Context) (*preview.Plan, error) {
	if o.dir != "" {
		return o.planDirectory(ctx)
	}
	return o.planRelease(ctx)
}

// planner opens the store and connects.
func (o *planOptions) planner(ctx context.Context, api connection.API, application, location string) (*preview.Planner, error) {
	opened, err := store.Open(ctx, location)
	if err != nil {
		return nil, err
	}
	planner := preview.New(api, application, opened, o.f.by())
	planner.Run = publish.Commands(ctx, o.allowCommands)
	return planner, nil
}

func (o *planOptions) planRelease(ctx context.Context) (*preview.Plan, error) {
	all, channels, err := parseParams(o.params)
	if err != nil {
		return nil, err
	}
	if _, err := o.f.status(ctx, o.service); err != nil { // an unknown service gets an error with similar names
		return nil, err
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return nil, err
	}
	c, _ := api.Temporal()
	application, err := publish.Status(ctx, c, o.service.Application)
	if err != nil {
		return nil, err
	}
	at, err := o.f.stores(o.store).Readable(application.Store)
	if err != nil {
		return nil, err
	}
	planner, err := o.planner(ctx, api, o.service.Application, at)
	if err != nil {
		return nil, err
	}
	defer planner.Store.Close() // the written objects are content-addressed and independent
	return planner.Release(ctx, preview.Release{
		Application: application, Service: o.service.Service, Version: o.version, Parameters: all, ChannelParameters: channels,
	})
}

func (o *planOptions) planDirectory(ctx context.Context) (*preview.Plan, error) {
	api, err := o.f.client(ctx)
	if err != nil {
		if _, compileErr := o.f.compileTree(ctx, origin.Tree{Dir: o.dir}, o.store, o.allowCommands); errors.As(compileErr, new(config.Problems)) {
			return nil, compileErr // mistakes are reported even without a server
		}
		return nil, err
	}
	name := publish.ApplicationIn(o.dir)
	store, err := o.f.storeOf(ctx, name, o.dir, o.store)
	if err != nil {
		return nil, err
	}
	planner, err := o.planner(ctx, api, name, store)
	if err != nil {
		return nil, err
	}
	defer planner.Store.Close() // the written objects are content-addressed and independent
	c, _ := api.Temporal()
	return planner.Directory(ctx, o.dir, func(application string) (protocol.ApplicationStatus, error) {
		return publish.Status(ctx, c, application)
	})
}

// print shows the plan and returns its exit code.
func (o *planOptions) print(plan *preview.Plan) error {
	var err error
	if o.f.structured() {
		err = o.f.screen().Document(plan)
	} else {
		text := planText{screen: o.f.screen(), full: o.full, plan: plan}
		err = text.screen.WriteText(text.String())
	}
	switch {
	case err != nil:
		return err
	case plan.Failed > 0:
		return exit(outcome.Error)
	case o.exitCode && !plan.Empty():
		return exit(outcome.Failed)
	}
	return nil
}
