package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/watch"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// The intervals at which a directory is polled. Polling is cheaper and more reliable than file notifications: it works the same for
// editors that replace files and for network file systems.
const (
	readInterval    = 400 * time.Millisecond
	readQuietPeriod = 100 * time.Millisecond // so that a partly written file is not compiled
	maxReadDelay    = 5 * time.Second
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

// follow applies the directory once and then after every change, until ctx ends. After an error it reports it and waits for the next
// change: running services are not affected.
func (f *follower) follow(ctx context.Context) error {
	source, err := origin.Parse(f.dir)
	if err != nil {
		return err
	}
	watch.Publisher{
		Source: source, Interval: readInterval, Quiet: readQuietPeriod, MaxDelay: maxReadDelay,
		Publish: f.apply, AfterPoll: f.report.tick,
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

// report prints on the terminal the events of the services of a followed directory.
type report struct {
	known            *overview.Overview
	revision         overview.Revision // up to which its changes are printed
	ids              map[string]int    // workflow ids of the services, with their places in the display
	options          options
	out              io.Writer
	screen           show.Screen
	app              string
	services         []string
	printed          map[string]int64 // by service: last journal line printed
	failures         map[string]*explain.Failures
	lastTable        string // the last printed table, without ages
	nextStepsPrinted bool
}

func newReport(known *overview.Overview, o options, out io.Writer) *report {
	return &report{known: known, options: o, out: out, screen: show.NewScreen(out, os.Getenv), printed: map[string]int64{}, failures: map[string]*explain.Failures{}}
}

// published records the services that are declared now.
func (r *report) published(p publish.Result) {
	r.app, r.services, r.ids = p.Application, p.Services, map[string]int{}
	for n, name := range p.Services {
		r.ids[protocol.ServiceID(p.Application, p.Names.Key(name))] = n
	}
	if !p.Unchanged {
		fmt.Fprintln(r.out, p)
	}
}

// tick prints the new journal lines, and the table when all services have settled. It is called at each poll of the directory.
func (r *report) tick(context.Context) {
	r.known.Want(func(l connection.ListedService) bool { return r.isOurs(l.WorkflowID) })
	changed, revision := r.known.Since(r.revision)
	r.revision = revision
	for _, s := range changed {
		if s.Status != nil && r.isOurs(s.WorkflowID) {
			r.journal(*s.Status)
		}
	}
	if len(changed) == 0 {
		return
	}
	if all := r.settled(); len(all) > 0 {
		r.table(all)
	}
}

func (r *report) isOurs(workflowID string) bool {
	_, ours := r.ids[workflowID]
	return ours
}

// settled returns the statuses of all services in display order, or nothing while one is not known or moves.
func (r *report) settled() []protocol.Status {
	found, _ := r.known.Select(func(s *overview.Service) bool {
		return r.isOurs(s.WorkflowID) && s.Current() && !overview.IsMoving(*s.Status)
	}, connection.ServiceName{}, len(r.ids))
	if len(found) < len(r.ids) {
		return nil
	}
	all := make([]protocol.Status, len(found))
	for _, s := range found {
		all[r.ids[s.WorkflowID]] = *s.Status
	}
	return all
}

// journal prints the new lines, and what fails and is tried again. The first reading after a start skips events of the past.
func (r *report) journal(s protocol.Status) {
	last, known := r.printed[s.Service]
	var lines []entities.JournalEntry
	for _, l := range s.Journal {
		if l.N > last && (known || time.Since(l.At) < time.Minute) {
			lines = append(lines, l)
		}
		r.printed[s.Service] = max(r.printed[s.Service], l.N)
	}
	if r.failures[s.Service] == nil {
		r.failures[s.Service] = &explain.Failures{}
	}
	lines = append(lines, r.failures[s.Service].New(s, time.Now())...)
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

// table prints the status of all services, if it differs from the last printed table.
func (r *report) table(all []protocol.Status) {
	overview := explain.Table(all, time.Now())
	key := ""
	for _, s := range all {
		for _, c := range s.Channels {
			key += fmt.Sprintln(s.Service, c.Name, c.Status, c.Current, c.Target)
		}
	}
	if key == r.lastTable {
		return
	}
	r.lastTable = key
	fmt.Fprintln(r.out)
	t := show.Table{Header: explain.Header[:], Status: 3, Right: 6}
	for _, row := range overview.Rows {
		t.Rows = append(t.Rows, row[:])
	}
	_ = r.screen.Table(t) // an error means that the terminal is gone
	fmt.Fprintln(r.out)
	r.printNextSteps(all)
}

// printNextSteps suggests once what to try next, to a user who has released nothing yet.
func (r *report) printNextSteps(all []protocol.Status) {
	if r.nextStepsPrinted || len(all[0].Releases) > 1 || entities.Status(all[0].Status) != entities.StatusConverged {
		return
	}
	r.nextStepsPrinted = true
	address := ""
	if r.options.port != 7233 {
		address = fmt.Sprintf(" --address 127.0.0.1:%d", r.options.port)
	}
	name := all[0].Application + "/" + all[0].Service
	fmt.Fprintf(r.out, "in another terminal:\n  converge release %s VERSION --wait%s\n  converge status %s --watch%s\n\n", name, address, r.app, address)
}
