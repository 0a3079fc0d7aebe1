package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/forecast"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/simulate"
	"github.com/converge-engine/converge/entities/state"
)

// simulateOptions are those of simulate.
type simulateOptions struct {
	f        *Factory
	service  connection.ServiceName
	version  string
	aspect   string
	at       string
	zone     string
	export   string
	store    string
	apply    time.Duration
	until    time.Duration
	approved bool
	plan     simulatedPlan
}

func newCmdSimulate(f *Factory, runF func(context.Context, *simulateOptions) error) *cobra.Command {
	o := &simulateOptions{f: f}
	cmd := &cobra.Command{
		Use:   "simulate SVC VERSION | simulate SVC --aspect NAME | simulate APP --plan",
		Short: "Simulate when a release would reach each channel, and what it would wait for",
		Long: `Simulate a release in virtual time, from the current state of the service, with its rules
and the decisions that the service itself would make. Nothing is released. Allowed times
and denied versions are evaluated. Checks that query other systems (metrics, alerts, other
services) are assumed to pass, and listed as such. An approval ends the simulation, unless
--approved grants each as soon as it is requested.

--aspect simulates a release of values of an aspect, regardless of the values. --plan
simulates the plan of an application's newest incarnation, or of a directory: its order
and duration, if each deployment and command takes the given time.`,
		Example: `  converge simulate shop/web v9 --at 2026-12-23T16:00 --zone Europe/Paris --approved
  converge simulate web v9 --export plan.svg
  converge simulate web --aspect flags
  converge simulate home --plan --channel production --if-fails postgres`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if o.plan.enabled {
				return o.plan.parse(o, args)
			}
			if err := o.plan.checkUnused(); err != nil {
				return err
			}
			if err := f.parseServiceArgs(args, &o.service, &o.version); err != nil {
				return err
			}
			if (o.version == "") == (o.aspect == "") {
				return fmt.Errorf("expected a version, or --aspect NAME")
			}
			return o.checkExport()
		}),
	}
	cmd.Flags().StringVar(&o.aspect, "aspect", "", "simulate values of this aspect instead of a version")
	cmd.Flags().StringVar(&o.at, "at", "", "time of the release: RFC 3339 or 2026-12-23T16:00 (default: now)")
	cmd.Flags().StringVar(&o.zone, "zone", "", "time zone of --at and of the output (default: this machine's)")
	cmd.Flags().StringVar(&o.export, "export", "", "write a Gantt chart to this SVG file")
	cmd.Flags().DurationVar(&o.apply, "apply", time.Minute, "how long an apply takes until its objects are stable")
	cmd.Flags().DurationVar(&o.until, "until", 90*24*time.Hour, "how much time to simulate, from the release on")
	cmd.Flags().BoolVar(&o.approved, "approved", false, "grant every approval as soon as it is requested")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	o.plan.flags(cmd.Flags())
	return cmd
}

func (o *simulateOptions) run(ctx context.Context) error {
	zone, at, err := o.parseAt()
	if err != nil {
		return err
	}
	if o.plan.enabled {
		return o.runPlan(ctx, at.In(zone))
	}
	state := &state.State{}
	if err := o.f.query(ctx, o.service, protocol.QueryState, state); err != nil {
		return err
	}
	checks, err := forecast.Read(ctx, o.f.stores(o.store), state)
	if err != nil {
		return err
	}
	timeline, err := simulate.Run(simulate.Input{
		State: state, Version: o.version, Aspect: o.aspect, At: at, Judge: checks.Judge, Apply: o.apply, Until: o.until, Approve: o.approved,
		Stop: func() bool { return ctx.Err() != nil },
	})
	if err == nil {
		err = context.Cause(ctx) // it was not finished
	}
	if err != nil {
		return err
	}
	if err := o.write(timeline.SVG(zone)); err != nil {
		return err
	}
	if o.f.structured() {
		return o.f.screen().Document(struct {
			Schema string `json:"schema"`
			*simulate.Timeline
			Assumed []string `json:"assumed,omitempty"`
		}{"converge.simulation/v1", timeline, checks.Assumed})
	}
	lines := timeline.Table(zone)
	if len(checks.Assumed) > 0 {
		lines = append(lines, "assumed to pass: "+strings.Join(checks.Assumed, ", "))
	}
	return o.f.screen().Lines(lines...)
}

func (o *simulateOptions) checkExport() error {
	if o.export != "" && !strings.HasSuffix(o.export, ".svg") {
		return fmt.Errorf("--export %s: expected a file name that ends in .svg", o.export)
	}
	return nil
}

// write writes a chart to the file of --export.
func (o *simulateOptions) write(svg string) error {
	if o.export == "" {
		return nil
	}
	if err := os.WriteFile(o.export, []byte(svg), 0o644); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	o.f.note("wrote the chart to %s", o.export)
	return nil
}

// parseAt returns the time of the release, and the time zone for the output.
func (o *simulateOptions) parseAt() (*time.Location, time.Time, error) {
	zone := time.Local
	if o.zone != "" {
		var err error
		if zone, err = time.LoadLocation(o.zone); err != nil {
			return nil, time.Time{}, fmt.Errorf("--zone %q: expected an IANA time zone such as Europe/Paris", o.zone)
		}
	}
	if o.at == "" {
		return zone, o.f.Now().In(zone), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, o.at, zone); err == nil {
			return zone, at, nil
		}
	}
	return nil, time.Time{}, fmt.Errorf("--at %q: expected a time such as 2026-12-23T16:00, or RFC 3339", o.at)
}
