package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/protocol"
)

// deployOptions are those of deploy (E7, E8, E12).
type deployOptions struct {
	f                    *Factory
	application, channel string
	changed, recapture   []string
	parallelism          int
	eager                bool
	name                 string
	show, wait, watch    bool
	format               string
	timeout              time.Duration
}

func newCmdDeploy(f *Factory, runF func(context.Context, *deployOptions) error) *cobra.Command {
	o := &deployOptions{f: f}
	cmd := &cobra.Command{
		Use:   "deploy APP CHANNEL",
		Short: "Run the plan of a release channel",
		Long: `Run the plan of the newest incarnation in a release channel: services are deployed in the
order of their requirements, and then integrated. What is already deployed is done at
once; commands run again. If the plan is already running, the flags are ignored.

Publishing and releasing start plans automatically. Use this command for a plan that
failed or was cancelled, and for changes that no service carries, such as another DNS
command.`,
		Example: `  converge deploy home production --wait
  converge deploy home production --changed sonarr,traefik
  converge deploy home production --max-parallelism 1 --wait
  converge deploy home production --recapture prowlarr
  converge deploy home production --show --watch
  converge deploy home production --show --format svg > plan.svg`,
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
	flags.StringVar(&o.name, "plan", "", "with --show: name of the plan (default: that of the newest incarnation)")
	flags.BoolVar(&o.show, "show", false, "show the progress of the plan; start nothing")
	flags.BoolVarP(&o.wait, "wait", "w", false, "wait until the plan ends")
	flags.BoolVar(&o.watch, "watch", false, "show the progress until the plan ends")
	flags.StringVar(&o.format, "format", "", "with --show: "+strings.Join(graphFormats, ", "))
	flags.DurationVar(&o.timeout, "timeout", 0, "give up after this duration, with exit status 3 (default: never)")
	return cmd
}

// checkFlags sets options from the environment if flags did not set them.
func (o *deployOptions) checkFlags() error {
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
	if (o.name != "" || o.format != "") && !o.show {
		return errors.New("--plan and --format require --show")
	}
	o.format = cmp.Or(o.format, o.f.format, "text")
	if !slices.Contains(graphFormats, o.format) {
		return fmt.Errorf("--format %q: expected one of %s", o.format, strings.Join(graphFormats, ", "))
	}
	return nil
}

func (o *deployOptions) run(ctx context.Context) error {
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	application, err := o.f.applicationStatus(ctx, o.application)
	if err != nil {
		return err
	}
	incarnation := currentIncarnation(application)
	ref := protocol.PlanOfIncarnation(o.application, o.channel, incarnation)
	if o.name != "" {
		ref.Name = o.name
	}
	if !o.show {
		err := api.Start(ctx, ref.ID(), protocol.PlanWorkflow, protocol.PlanInput{PlanRef: ref, PlanTask: protocol.PlanTask{
			Incarnation: incarnation, Whole: len(o.changed) == 0, Changed: o.changed, Limit: o.parallelism, Eager: o.eager, Recapture: o.recapture, By: o.f.by(),
		}})
		if err != nil {
			return err
		}
	}
	if !o.wait && !o.watch {
		status, err := o.planStatus(ctx, ref)
		if err != nil && !o.show {
			return o.f.screen().Lines("plan " + ref.Name + " of " + o.application + " in " + o.channel + " started")
		}
		if err != nil {
			return err
		}
		return o.print(status)
	}
	return o.follow(ctx, ref)
}

// currentIncarnation returns the incarnation that services use: the newest one, or a pinned one.
func currentIncarnation(s protocol.ApplicationStatus) int64 {
	for _, i := range s.Incarnations {
		if i.Manifest == s.Manifest && s.Manifest != "" {
			return i.Number
		}
	}
	return s.Newest
}

func (o *deployOptions) planStatus(ctx context.Context, ref protocol.PlanRef) (s protocol.PlanStatus, err error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return s, err
	}
	err = api.Query(ctx, ref.ID(), protocol.QueryStatus, &s)
	if errors.Is(err, errNotFound) {
		err = fmt.Errorf("no plan %s of %s in %s", ref.Name, ref.Application, ref.Channel)
	}
	return s, err
}

// deployPollInterval is the interval at which a plan is polled.
const deployPollInterval = 500 * time.Millisecond

// follow waits until a plan ends, and reports its result. It retries if the plan is temporarily unavailable.
func (o *deployOptions) follow(ctx context.Context, ref protocol.PlanRef) error {
	live, deadline := show.NewLive(o.f.screen()), time.Time{}
	if o.timeout > 0 {
		deadline = time.Now().Add(o.timeout)
	}
	for {
		s, err := o.planStatus(ctx, ref)
		if err == nil && o.watch {
			err = o.watchPlan(live, s)
		}
		timedOut := !deadline.IsZero() && time.Now().After(deadline)
		switch {
		case err != nil && !transient(err):
			return err
		case err == nil && s.Over:
			return errors.Join(o.printLast(s), exit(exitCodeOf(s)))
		case timedOut && err == nil:
			return errors.Join(o.printLast(s), exit(exitTimeout))
		case timedOut:
			return errors.Join(err, exit(exitTimeout))
		}
		if err := o.f.Sleep(ctx, deployPollInterval); err != nil {
			return err
		}
	}
}

// printLast shows the final status of a plan, unless it is already on the screen.
func (o *deployOptions) printLast(s protocol.PlanStatus) error {
	if o.watch {
		return nil
	}
	return o.print(s)
}

func exitCodeOf(s protocol.PlanStatus) int {
	if s.StepError != "" || s.Ended != "" {
		return exitFailed
	}
	for _, n := range s.Nodes {
		if n.State != "done" {
			return exitFailed
		}
	}
	return exitDone
}
