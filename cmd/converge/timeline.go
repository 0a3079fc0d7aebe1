package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/timeline"
)

type timelineOptions struct {
	f      *Factory
	target target
	svg    string
	last   int
	store  string
}

func newCmdTimeline(f *Factory, runF func(context.Context, *timelineOptions) error) *cobra.Command {
	o := &timelineOptions{f: f}
	cmd := &cobra.Command{
		Use:   "timeline SVC|APP",
		Short: "Chart version history per channel",
		Long: `Chart when each of the newest releases waited, was deployed, ran and failed in each
channel, from its history and its status: in the terminal, or as an SVG file. A wait is
labelled with the condition that held it the longest; results of checks are not in the
history.`,
		Example: `  converge report timeline shop/web
  converge report timeline shop --last 3 --svg shop.svg
  converge report timeline shop/web --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			o.target, err = f.parseTarget(args[0])
			return err
		}),
	}
	cmd.Flags().StringVar(&o.svg, "svg", "", "write the chart to this SVG file")
	cmd.Flags().IntVar(&o.last, "last", 5, "number of releases to show per service; 0 for all")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

// serviceTimeline is the part of a timeline for one service.
type serviceTimeline struct {
	Service string           `json:"service"`
	Entries []timeline.Entry `json:"entries"`
	Problem string           `json:"problem,omitempty"` // why the current state is unknown
}

func (o *timelineOptions) run(ctx context.Context) error {
	names, err := o.f.services(ctx, o.target)
	if err != nil {
		return err
	}
	now := o.f.Now()
	all, readErr := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (serviceTimeline, error) {
		return o.entries(ctx, n, now)
	})
	if o.svg != "" {
		if err := o.write(all, now); err != nil {
			return errors.Join(err, readErr)
		}
	}
	if o.f.structured() {
		return errors.Join(o.f.screen().Document(map[string]any{"schema": "converge.timeline/v1", "now": now.UTC(), "services": all}), readErr)
	}
	for _, d := range all {
		if d.Service == "" {
			continue // it could not be read
		}
		if d.Problem != "" {
			o.f.note("%s: %s", d.Service, d.Problem)
		}
		if len(d.Entries) == 0 {
			o.f.note("no version of %s was released yet", d.Service)
			continue
		}
		if err := o.f.screen().Lines(append([]string{d.Service}, timeline.Lines(d.Entries, now, now.Location())...)...); err != nil {
			return err
		}
	}
	return readErr
}

// write writes the chart, with all services one below the other.
func (o *timelineOptions) write(all []serviceTimeline, now time.Time) error {
	title, zone := o.target.Application, now.Location()
	if !o.target.all {
		title = o.target.String()
	}
	var rows []chart.Row
	var entries []timeline.Entry
	for _, d := range all {
		for _, e := range d.Entries {
			name := e.Name()
			if o.target.all {
				name = d.Service + " " + name
			}
			entries, rows = append(entries, e), append(rows, chart.Row{Name: name, Spans: e.Spans})
		}
	}
	c := timeline.Chart(title+" at "+now.Format("Mon 2 Jan 2006 15:04 MST"), entries, now)
	c.Rows = rows
	return writeChart(o.svg, c.SVG(zone))
}

func (o *timelineOptions) entries(ctx context.Context, n connection.ServiceName, now time.Time) (serviceTimeline, error) {
	in, statusProblem, err := o.f.timelineInput(ctx, n, o.store, now)
	if err != nil {
		return serviceTimeline{}, err
	}
	in.Last = o.last
	return serviceTimeline{Service: n.Service, Entries: timeline.Of(in), Problem: statusProblem}, nil
}

// timelineInput returns the input of a service's timeline, or the reason why its current state is unknown.
func (f *Factory) timelineInput(ctx context.Context, n connection.ServiceName, location string, now time.Time) (in timeline.Input, statusProblem string, err error) {
	t, err := f.trail(ctx, n, "")
	if err != nil {
		return in, "", err
	}
	return t.Timeline(ctx, f.stores(location), now)
}
