package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/timeline"
)

type reportOptions struct {
	f        *Factory
	target   target
	since    period
	channels []string
	svg      string
	store    string
}

func newCmdReport(f *Factory, runF func(context.Context, *reportOptions) error) *cobra.Command {
	o := &reportOptions{f: f, since: period(30 * day)}
	cmd := &cobra.Command{
		Use:   "report SVC|APP",
		Short: "Sum up releases, lead time, failures and recoveries",
		Long: `Sum up what the history says of a period in the four numbers of DORA, for the last
channels of each service, those that no other channel waits for, or for those named.

A deployment is a release that succeeded or failed in the channel, in the period; what
returns to an earlier version, a pin and a restart are none. The lead time for changes
is from the acceptance of the release to its success, waits for people included: what
came before, from the commit on, Converge does not know. The change failure rate is the
share of deployments that failed, or were rolled back even after they had succeeded. The
failed deployment recovery time is from the failure to the next success in the channel.
Times are medians.`,
		Example: `  converge report shop
  converge report shop --since 90d --svg shop.svg
  converge report shop/web --channel staging --output json`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func(args []string) (err error) {
			o.target, err = f.parseTarget(args[0])
			return err
		}),
	}
	cmd.Flags().Var(&o.since, "since", "the period until now: days (30d), or a duration (12h)")
	cmd.Flags().StringSliceVarP(&o.channels, "channel", "c", nil, "of these release channels instead of the last ones")
	cmd.Flags().StringVar(&o.svg, "svg", "", "write a chart to this SVG file")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

const day = 24 * time.Hour

// period is a flag that also takes days.
type period time.Duration

// String is the period as it may be given.
func (p *period) String() string {
	if d := time.Duration(*p); d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return time.Duration(*p).String()
}

// Set reads a period.
func (p *period) Set(text string) error {
	d, err := time.ParseDuration(text)
	if number, ok := strings.CutSuffix(text, "d"); ok {
		var days uint64
		days, err = strconv.ParseUint(number, 10, 16)
		d = time.Duration(days) * day
	}
	if err != nil || d <= 0 {
		return errors.New("expected days such as 30d, or a duration such as 12h")
	}
	*p = period(d)
	return nil
}

// Type is what the usage calls it.
func (*period) Type() string { return "period" }

func (o *reportOptions) run(ctx context.Context) error {
	names, err := o.f.services(ctx, o.target)
	if err != nil {
		return err
	}
	now, since := o.f.Now(), time.Duration(o.since)
	from := now.Add(-since)
	read, wrong := each(ctx, names, func(ctx context.Context, n serviceName) ([]timeline.Delivery, error) {
		in, err := o.f.trail(ctx, n, o.store, now)
		if err != nil {
			return nil, err
		}
		all := timeline.Report(in, from, o.channels...)
		for i := range all {
			all[i].Service = n.service
		}
		return all, nil
	})
	all := slices.Concat(read...)
	total := timeline.Total(all, since)
	if o.svg != "" {
		if err := o.write(all, from, now); err != nil {
			return errors.Join(err, wrong)
		}
	}
	if o.f.json() {
		return errors.Join(o.f.screen().JSON(map[string]any{
			"schema": "converge.report/v1", "from": from.UTC(), "to": now.UTC(), "channels": all, "total": total.Numbers, "releases": total.Releases,
		}), wrong)
	}
	if len(all) == 0 {
		o.f.note("no such channel of %s", o.name())
		return wrong
	}
	table := show.Table{Header: timeline.ReportHeader}
	for _, d := range all {
		table.Rows = append(table.Rows, d.Cells())
	}
	if len(all) > 1 {
		total.Service = "all"
		table.Rows = append(table.Rows, total.Cells())
	}
	return errors.Join(o.f.screen().Table(table), wrong)
}

// name is what is reported of.
func (o *reportOptions) name() string {
	if o.target.all {
		return o.target.application
	}
	return o.target.String()
}

func (o *reportOptions) write(all []timeline.Delivery, from, now time.Time) error {
	title := fmt.Sprintf("%s, the %s until %s", o.name(), explain.Duration(now.Sub(from)), now.Format("Mon 2 Jan 2006 15:04 MST"))
	c := timeline.ReportChart(title, all, from, now)
	return writeChart(o.svg, c.SVG(now.Location()))
}

// writeChart writes an SVG file.
func writeChart(file, svg string) error {
	if err := os.WriteFile(file, []byte(svg), 0o644); err != nil {
		return fmt.Errorf("write the chart: %w", err)
	}
	return nil
}
