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

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/timeline"
	"github.com/converge-engine/converge/intent/store"
)

type reportOptions struct {
	f        *Factory
	target   target
	since    period
	channels []string
	svg      string
	store    string
}

func newCmdDelivery(f *Factory, runF func(context.Context, *reportOptions) error) *cobra.Command {
	o := &reportOptions{f: f, since: period(30 * day)}
	cmd := &cobra.Command{
		Use:   "delivery SVC|APP",
		Short: "Report releases, lead time, failures and recoveries",
		Long: `Report the four DORA metrics of a period from the history, for the last channels of each
service, those that no other channel waits for, or for the named ones.

A deployment is a release that succeeded or failed in the channel, in the period; a return
to an earlier version, a pin and a restart are none. The lead time for changes is from the
acceptance of the release to its success, including waits for people: what came before,
from the commit on, is unknown to Converge. The change failure rate is the share of
deployments that failed, or were rolled back even after they had succeeded. The failed
deployment recovery time is from the failure to the next success in the channel. Times are
medians.`,
		Example: `  converge report delivery shop
  converge report delivery shop --since 90d --svg shop.svg
  converge report delivery shop/web --channel staging --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			o.target, err = f.parseTarget(args[0])
			return err
		}),
	}
	cmd.Flags().Var(&o.since, "since", "length of the period until now: days (30d), or a duration (12h)")
	cmd.Flags().StringSliceVarP(&o.channels, "channel", "c", nil, "these release channels instead of the last ones")
	cmd.Flags().StringVar(&o.svg, "svg", "", "write a chart to this SVG file")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

const day = 24 * time.Hour

// period is a duration flag that also accepts days.
type period time.Duration

// String returns the period in the form that Set accepts.
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

// Type returns the name of the type in the usage.
func (*period) Type() string { return "period" }

// reportSchema is the schema name of reports as JSON.
const reportSchema = "converge.report/v1"

// report is the JSON output.
type report struct {
	Schema   string              `json:"schema"`
	From     time.Time           `json:"from"`
	To       time.Time           `json:"to"`
	Releases int                 `json:"releases"`
	Channels []timeline.Delivery `json:"channels"`
	Total    timeline.Numbers    `json:"total"`
	Problems []problem           `json:"problems"`
}

// problem is the reason why a service's report is incomplete. Its configuration and state are unknown, so its last channels are
// unknown, too.
type problem struct {
	Service string `json:"service"`
	Text    string `json:"problem"`
}

// serviceReport is the report of one service.
type serviceReport struct {
	deliveries []timeline.Delivery
	channels   []string // current and past ones
	problem    string
}

func (o *reportOptions) run(ctx context.Context) error {
	names, err := []connection.ServiceName{o.target.ServiceName}, error(nil)
	if o.target.all {
		names, err = o.f.servicesOf(ctx, o.target.Application)
	}
	if err != nil {
		return err
	}
	now, since := o.f.Now(), time.Duration(o.since)
	from := now.Add(-since)
	parts, readErr := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (serviceReport, error) {
		return o.serviceReport(ctx, n, from, now)
	})
	if o.target.all {
		removed, err := o.removed(ctx, names, from, now)
		names, parts, readErr = append(names, removed.names...), append(parts, removed.parts...), errors.Join(readErr, err)
	}
	r := report{Schema: reportSchema, From: from.UTC(), To: now.UTC(), Channels: []timeline.Delivery{}, Problems: []problem{}}
	var known []string
	for n, p := range parts {
		r.Channels, known = append(r.Channels, p.deliveries...), append(known, p.channels...)
		if p.problem != "" {
			r.Problems = append(r.Problems, problem{names[n].Service, p.problem})
		}
	}
	if err := o.checkChannels(known); err != nil {
		return errors.Join(err, readErr)
	}
	total := timeline.Total(r.Channels, since)
	r.Total, r.Releases = total.Numbers, total.Releases
	if o.svg != "" {
		if err := o.write(r.Channels, from, now); err != nil {
			return errors.Join(err, readErr)
		}
	}
	if o.f.structured() {
		return errors.Join(o.f.screen().Document(r), readErr)
	}
	return errors.Join(o.print(r, total), readErr)
}

// print writes a report as text.
func (o *reportOptions) print(r report, total timeline.Delivery) error {
	screen, table := o.f.screen(), show.Table{Header: timeline.ReportHeader}
	if !screen.TTY {
		table.Rows = append(table.Rows, timeline.ReportHeader) // the numbers need a header
	}
	for _, d := range r.Channels {
		table.Rows = append(table.Rows, d.Cells())
	}
	if len(r.Channels) > 1 {
		total.Service = "all"
		table.Rows = append(table.Rows, total.Cells())
	}
	for _, p := range r.Problems {
		o.f.note("%s: %s", p.Service, p.Text)
	}
	return screen.Table(table)
}

func (o *reportOptions) serviceReport(ctx context.Context, n connection.ServiceName, from, now time.Time) (serviceReport, error) {
	in, statusProblem, err := o.f.timelineInput(ctx, n, o.store, now)
	if err != nil {
		return serviceReport{}, err
	}
	if statusProblem != "" {
		statusProblem += "; channels that others wait for may be counted too"
	}
	deliveries, channels := timeline.Report(in, from, o.channels...)
	for i := range deliveries {
		deliveries[i].Service = n.Service
	}
	return serviceReport{deliveries, channels, statusProblem}, nil
}

// checkChannels refuses channels that none of the services has or had.
func (o *reportOptions) checkChannels(known []string) error {
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range o.channels {
		if len(known) > 0 && !slices.Contains(known, name) {
			return fmt.Errorf("--channel %s: %s has no such release channel%s", name, o.name(), read.Suggestion(name, known))
		}
	}
	return nil
}

// removedServices are the services of an application that no longer run.
type removedServices struct {
	names []connection.ServiceName
	parts []serviceReport
}

// removed returns the services that have a history in the period and no longer run.
func (o *reportOptions) removed(ctx context.Context, running []connection.ServiceName, from, now time.Time) (out removedServices, err error) {
	application := o.target.Application
	status, known, err := o.auditedServices(ctx, application)
	if err != nil {
		return out, fmt.Errorf("services that were removed are not counted: %w", err)
	}
	var names []connection.ServiceName
	for _, key := range known {
		if n := (connection.ServiceName{Application: application, Service: status.Names.Title(key)}); !slices.Contains(running, n) {
			names = append(names, n)
		}
	}
	parts, err := read.Each(ctx, names, func(ctx context.Context, n connection.ServiceName) (serviceReport, error) {
		return o.serviceReport(ctx, n, from, now)
	})
	for n, p := range parts {
		if slices.ContainsFunc(p.deliveries, func(d timeline.Delivery) bool { return d.Releases > 0 || len(d.Deployments) > 0 }) {
			out.names, out.parts = append(out.names, names[n]), append(out.parts, p)
		}
	}
	return out, err
}

// auditedServices returns the services of an application that have a trail, and the status of the application.
func (o *reportOptions) auditedServices(ctx context.Context, application string) (status protocol.ApplicationStatus, services []string, err error) {
	if status, err = o.f.applicationStatus(ctx, application); err != nil {
		return status, nil, err
	}
	location, err := o.f.stores(o.store).Readable(status.Store)
	if err != nil {
		return status, nil, err
	}
	at, err := store.Open(ctx, location)
	if err != nil {
		return status, nil, err
	}
	defer at.Close() // only read
	o.store = at.URL()
	services, err = at.Audited(ctx, application)
	return status, services, err
}

// name returns the subject of the report.
func (o *reportOptions) name() string {
	if o.target.all {
		return o.target.Application
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
