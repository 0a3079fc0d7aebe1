package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/watch"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// How a directory is followed. Reading is cheaper and surer than being notified: editors that replace files, and network file
// systems, are all the same.
const (
	readInterval = 400 * time.Millisecond
	readQuiet    = 100 * time.Millisecond // so that a file half written is not compiled
	readMost     = 5 * time.Second
)

// follower applies a directory whenever a file in it was saved.
type follower struct {
	client        client.Client
	dir           string
	store         string
	out           io.Writer
	report        *report
	allowCommands bool
}

// follow applies the directory once and then after every change, until ctx ends. A mistake is said and the next save is waited for:
// what runs goes on as it was.
func (f *follower) follow(ctx context.Context) error {
	source, err := origin.Parse(f.dir)
	if err != nil {
		return err
	}
	watch.Watch{
		Source: source, Interval: readInterval, Quiet: readQuiet, Most: readMost,
		Publish: f.apply, Looked: f.report.tick,
		Report: func(err error) {
			if err != nil {
				fmt.Fprintf(f.out, "%s\n", entities.VisibleLines(err.Error()))
			}
		},
	}.Run(ctx)
	return nil
}

func (f *follower) apply(ctx context.Context, tree origin.Tree) error {
	result, err := publish.Publish(ctx, publish.Options{
		Client: f.client, StoreURL: f.store, By: "dev", Token: os.Getenv("CONVERGE_TOKEN"), AllowCommands: f.allowCommands,
	}.Of(tree))
	if err == nil {
		f.report.published(result)
	}
	return err
}

// report prints on the terminal what happens to the services of a followed directory.
type report struct {
	client   client.Client
	options  options
	out      io.Writer
	screen   show.Screen
	app      string
	services []string
	names    protocol.ServiceNames
	printed  map[string]int64 // by service: last journal line printed
	shown    string           // the last table, without ages
	hinted   bool
}

func newReport(c client.Client, o options, out io.Writer) *report {
	return &report{client: c, options: o, out: out, screen: show.NewScreen(out, os.Getenv), printed: map[string]int64{}}
}

// published takes in what is declared now.
func (r *report) published(p publish.Result) {
	r.app, r.services, r.names = p.Application, p.Services, p.Names
	if !p.Unchanged {
		fmt.Fprintln(r.out, p)
	}
}

// tick prints what was written into the journals since the last one, and the table whenever
// everything has come to rest.
func (r *report) tick(ctx context.Context) {
	var all []protocol.Status
	for _, service := range r.services {
		s, err := r.status(ctx, service)
		if err != nil {
			return // not started yet, or stopping: the next tick shows it
		}
		all = append(all, s)
		r.journal(s)
	}
	if len(all) == 0 || !atRest(all) {
		return
	}
	r.table(all)
}

func (r *report) status(ctx context.Context, service string) (protocol.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var s protocol.Status
	value, err := r.client.QueryWorkflow(ctx, protocol.ServiceID(r.app, r.names.Key(service)), "", protocol.QueryStatus)
	if err != nil {
		return s, err
	}
	return s, value.Get(&s)
}

// journal prints the lines that are new. On the first reading after a start, what is over is not
// repeated.
func (r *report) journal(s protocol.Status) {
	last, known := r.printed[s.Service]
	var lines []entities.JournalLine
	for _, l := range s.Journal {
		if l.N > last && (known || time.Since(l.At) < time.Minute) {
			lines = append(lines, l)
		}
		r.printed[s.Service] = max(r.printed[s.Service], l.N)
	}
	width := 0
	for _, name := range r.services {
		width = max(width, len(name))
	}
	for _, text := range explain.Journal(lines, s, time.Now()) {
		fmt.Fprintf(r.out, "%-*s  %s\n", width, s.Service, entities.Visible(text))
	}
	if _, ok := r.printed[s.Service]; !ok {
		r.printed[s.Service] = 0
	}
}

// atRest: nothing goes on by itself any more.
func atRest(all []protocol.Status) bool {
	for _, s := range all {
		if len(s.Channels) == 0 {
			return false
		}
		for _, c := range s.Channels {
			if entities.Status(c.Status).Row().Exit == entities.ExitGoesOn {
				return false
			}
		}
	}
	return true
}

// table prints how everything stands, once each time it differs from the last table.
func (r *report) table(all []protocol.Status) {
	overview := explain.Table(all, time.Now())
	key := ""
	for _, s := range all {
		for _, c := range s.Channels {
			key += fmt.Sprintln(s.Service, c.Name, c.Status, c.Current, c.Target)
		}
	}
	if key == r.shown {
		return
	}
	r.shown = key
	fmt.Fprintln(r.out)
	t := show.Table{Header: explain.Header[:], Status: 3, Right: 6}
	for _, row := range overview.Rows {
		t.Rows = append(t.Rows, row[:])
	}
	_ = r.screen.Table(t) // a terminal that is gone is no reason to stop
	fmt.Fprintln(r.out)
	r.hint(all)
}

// hint says once what to try next, to whoever has released nothing yet.
func (r *report) hint(all []protocol.Status) {
	if r.hinted || len(all[0].Releases) > 1 || entities.Status(all[0].Status) != entities.StatusConverged {
		return
	}
	r.hinted = true
	address := ""
	if r.options.port != 7233 {
		address = fmt.Sprintf(" --address 127.0.0.1:%d", r.options.port)
	}
	name := all[0].Application + "/" + all[0].Service
	fmt.Fprintf(r.out, "in another terminal:\n  converge release %s v2 --wait%s\n  converge status %s --watch%s\n\n", name, address, r.app, address)
}
