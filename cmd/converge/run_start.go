package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/protocol"
)

// runStartOptions are those of run start (E7, E8, E12).
type runStartOptions struct {
	f                    *Factory
	application, channel string
	changed, recapture   []string
	parallelism          int
	eager                bool
	wait, watch          bool
	timeout              time.Duration
}

func newCmdRunStart(f *Factory, runF func(context.Context, *runStartOptions) error) *cobra.Command {
	o := &runStartOptions{f: f}
	cmd := &cobra.Command{
		Use:        "start APP CHANNEL",
		SuggestFor: []string{"deploy"},
		Short:      "Run the plan of a release channel",
		Long: `Run the plan of the newest incarnation in a release channel: services are deployed in the
order of their requirements, and then integrated. What is already deployed is done at
once; commands run again. If the plan is already running, the flags are ignored.

Publishing and releasing start plans automatically. Use this command for a plan that
failed or was cancelled, and for changes that no service carries, such as another DNS
command.`,
		Example: `  converge run start home production --wait
  converge run start home production --changed sonarr,traefik
  converge run start home production --max-parallelism 1 --wait
  converge run start home production --recapture prowlarr`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			o.application, o.channel = args[0], args[1]
			return errors.Join(checkName("an application", o.application), checkName("a release channel", o.channel), o.checkFlags())
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.changed, "changed", nil, "run only what changes of these services require")
	flags.StringSliceVar(&o.recapture, "recapture", nil, "capture the secrets of these services again")
	flags.IntVar(&o.parallelism, "max-parallelism", 0, "maximum number of concurrent nodes (default: as declared)")
	flags.BoolVar(&o.eager, "eager-reconcile", false, "reconcilers do not wait for aggregators")
	flags.BoolVarP(&o.wait, "wait", "w", false, "wait until the plan ends")
	flags.BoolVar(&o.watch, "watch", false, "show the progress until the plan ends")
	flags.DurationVar(&o.timeout, "timeout", 0, "give up after this duration, with exit status 3 (default: never)")
	return cmd
}

// checkFlags sets options from the environment if flags did not set them.
func (o *runStartOptions) checkFlags() error {
	if text := o.f.Env("PSW_MAX_PARALLELISM"); text != "" && o.parallelism == 0 {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("PSW_MAX_PARALLELISM: invalid number %q", text)
		}
		o.parallelism = n
	}
	if text := o.f.Env("PSW_RECONCILE_EAGER"); text != "" && !o.eager {
		eager, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("PSW_RECONCILE_EAGER: expected true or false, not %q", text)
		}
		o.eager = eager
	}
	if o.parallelism < 0 {
		return fmt.Errorf("--max-parallelism %d: expected at least 1", o.parallelism)
	}
	return nil
}

func (o *runStartOptions) run(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	application, err := o.f.applicationStatus(ctx, o.application)
	if err != nil {
		return err
	}
	incarnation := application.Current()
	ref := protocol.PlanOfIncarnation(o.application, o.channel, incarnation)
	err = api.Start(ctx, ref.ID(), protocol.PlanWorkflow, protocol.PlanInput{PlanRef: ref, PlanTask: protocol.PlanTask{
		Incarnation: incarnation, Whole: len(o.changed) == 0, Changed: o.changed, Limit: o.parallelism, Eager: o.eager, Recapture: o.recapture, By: o.f.by(),
	}})
	if err != nil {
		return err
	}
	shown := runShowOptions{f: o.f, format: cmp.Or(o.f.format, "text"), watch: o.watch, timeout: o.timeout}
	if o.wait || o.watch {
		return shown.follow(ctx, ref)
	}
	status, err := o.f.planStatus(ctx, ref)
	if err != nil {
		return o.f.screen().Lines("plan " + ref.Name + " of " + o.application + " in " + o.channel + " started")
	}
	return shown.print(status)
}
