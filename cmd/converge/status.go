package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// delayPerService lengthens the poll interval of --watch: each poll queries every service, which costs a worker about a millisecond.
const delayPerService = 10 * time.Millisecond

type statusOptions struct {
	f         *Factory
	target    target
	joint     *jointName // instead: the services of a joint release
	watch     bool
	wide      bool // show whole reasons
	needsMe   bool // only services with approvals that can be given now
	objects   bool
	instances bool                // list the instances
	commits   bool                // list the commits of releases
	store     string              // the store of the commits
	running   []protocol.Progress // work in progress, if one service was queried
	plans     []string            // progress of the running plans
}

func newCmdStatus(f *Factory, runF func(context.Context, *statusOptions) error) *cobra.Command {
	o := &statusOptions{f: f}
	cmd := &cobra.Command{
		Use:   "status [APP|SVC|APP@ID]",
		Short: "Show what runs in each channel and what it waits for",
		Long: `Show each channel of a service, of an application's services, or of all services: what
runs, what is being deployed, and what it waits for.

--commits lists the commits that the newest release of each channel brings to it: those
since the current version, if the configuration comes from a git repository.

What a channel waits for is cut to the width of a terminal; --wide shows all of it.

--watch keeps the output up to date: a live table on a terminal, new lines when piped, one
JSON document per change with --output json.`,
		Example: `  converge status
  converge status shop --watch
  converge status --needs-me
  converge status shop/web --objects
  converge status shop/web --instances
  converge status shop/web --commits
  converge status shop@autumn
  converge status shop/web --output json`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			if o.target = (target{all: true}); len(args) == 0 {
				return nil
			}
			if j, joint, err := parseJoint(args[0]); joint {
				o.joint = &j
				return err
			}
			o.target, err = f.parseTarget(args[0])
			return err
		}),
	}
	cmd.Flags().BoolVar(&o.wide, "wide", false, "show the whole text of what each channel waits for")
	cmd.Flags().BoolVar(&o.needsMe, "needs-me", false, "only services with an approval that can be given now (converge approvals lists them)")
	cmd.Flags().BoolVar(&o.objects, "objects", false, "also list the objects of each channel, with versions, replicas, links and events")
	cmd.Flags().BoolVar(&o.instances, "instances", false, "also list the instances of each fleet, those that are not as desired first")
	cmd.Flags().BoolVar(&o.commits, "commits", false, "also list the commits that the newest release of each channel brings to it")
	cmd.Flags().StringVar(&o.store, "store", "", "with --commits: "+storeUsage)
	cmd.Flags().BoolVar(&o.watch, "watch", false, "update the output until Ctrl-C")
	return cmd
}

func (o *statusOptions) run(ctx context.Context) error {
	if o.watch && o.commits {
		return errors.New("--commits cannot be combined with --watch")
	}
	if o.watch {
		return o.follow(ctx)
	}
	all, err := o.query(ctx)
	err = o.withAltered(ctx, err)
	if err != nil && len(all) == 0 {
		return err
	}
	switch {
	case len(all) > 0:
	case o.needsMe:
		o.f.note("no approval can be given now")
	default:
		o.f.note("no services yet; declare some with: converge config publish DIR")
		o.f.note("(after converge admin import, a worker on its store starts them within a minute)")
	}
	var commits []statusWithCommits
	if o.commits {
		var commitsErr error
		commits, commitsErr = o.commitsOf(ctx, all)
		err = errors.Join(err, commitsErr)
	}
	if o.f.structured() {
		return errors.Join(o.f.screen().Document(o.document(all, commits)), err)
	}
	screen := o.f.screen()
	text := o.text(screen, all, o.f.Now())
	for _, w := range commits {
		text += linesText(w.lines())
	}
	if e := screen.WriteText(text); e != nil {
		return e
	}
	return err
}

// withAltered adds to the error of a query what operators did to the services in Temporal.
func (o *statusOptions) withAltered(ctx context.Context, err error) error {
	if o.joint != nil || errors.Is(err, connection.ErrPaused) {
		return err
	}
	if altered := connection.JoinAltered(o.f.alteredIn(ctx, o.target)); altered != nil {
		return errors.Join(err, altered)
	}
	return err
}

// query returns the services that answered and are requested, and the errors of the others.
func (o *statusOptions) query(ctx context.Context) ([]protocol.Status, error) {
	all, err := o.queryTarget(ctx)
	if o.needsMe {
		all = slices.DeleteFunc(all, func(s protocol.Status) bool { return len(explain.OpenApprovals([]protocol.Status{s})) == 0 })
	}
	return all, err
}

func (o *statusOptions) queryTarget(ctx context.Context) (_ []protocol.Status, err error) {
	if o.joint != nil {
		return o.f.statusOfParts(ctx, *o.joint)
	}
	if o.target, err = o.f.resolveTarget(ctx, o.target); err != nil {
		return nil, err
	}
	if !o.target.all {
		return o.queryOne(ctx)
	}
	names, err := o.f.services(ctx, o.target)
	if err != nil && (connection.Transient(err) || o.target.Application == "") {
		return nil, err
	}
	statuses, e := o.f.unmanagedStatuses(ctx, o.target)
	if e != nil || err != nil && len(statuses) == 0 {
		return nil, cmp.Or(err, e)
	}
	names = slices.DeleteFunc(names, func(n connection.ServiceName) bool { // it is ending
		return slices.ContainsFunc(statuses, func(s protocol.Status) bool { return read.NameOf(s) == n })
	})
	all, err := read.Each(ctx, names, o.f.status)
	for _, s := range all {
		if s.Service != "" {
			statuses = append(statuses, s)
		}
	}
	read.SortStatuses(statuses)
	if !o.f.structured() {
		o.plans = append(o.f.problemOf(ctx, o.target.Application), o.f.plansOf(ctx, o.target.Application)...)
	}
	return statuses, err
}

// queryOne queries one service, or returns the reason why that is impossible.
func (o *statusOptions) queryOne(ctx context.Context) ([]protocol.Status, error) {
	api, err := o.f.client(ctx)
	if err != nil {
		return nil, err
	}
	var s protocol.Status
	if err = api.Query(ctx, o.target.ID(), protocol.QueryStatus, &s); err == nil {
		o.f.noteRename(o.target.ServiceName, s)
		o.running = o.f.progress(ctx, o.target.ServiceName)
		return []protocol.Status{s}, nil
	}
	if !errors.Is(err, connection.ErrNotFound) {
		return nil, err
	}
	unmanaged, e := o.f.unmanagedStatuses(ctx, o.target)
	if e == nil && len(unmanaged) == 0 {
		e = o.f.notFoundError(ctx, o.target.ServiceName)
	}
	return unmanaged, e
}

// document returns one status for one service, and a list for several.
func (o *statusOptions) document(all []protocol.Status, commits []statusWithCommits) any {
	one := !o.target.all && o.joint == nil && len(all) == 1
	switch {
	case one && len(commits) == 1:
		return commits[0]
	case len(commits) > 0:
		return commits
	case one:
		return all[0]
	}
	if all == nil {
		return []protocol.Status{}
	}
	return all
}

// follow polls until Ctrl-C.
func (o *statusOptions) follow(ctx context.Context) error {
	screen := o.f.screen()
	live := show.NewLive(screen)
	last, lost := "", false
	pacer := pollPacer{}
	for {
		all, err := o.query(ctx)
		if ctx.Err() != nil {
			return exit(exitInterrupted)
		}
		if err != nil && !connection.Transient(err) {
			return err
		}
		if err != nil && !lost {
			o.f.note("%v; retrying", err)
			live.Below()
		}
		if lost = err != nil; !lost {
			if err := o.frame(screen, live, all, &last); err != nil {
				return err
			}
		}
		if o.f.Sleep(ctx, pacer.next(all)) != nil {
			return exit(exitInterrupted)
		}
	}
}

// pollPacer slows polling while nothing changes, to at most a tenth of the initial rate.
type pollPacer struct {
	seen      string
	unchanged int
}

const maxSlowdown = 10

func (r *pollPacer) next(all []protocol.Status) time.Duration {
	now := ""
	for _, s := range all {
		now += fmt.Sprintln(s.Service, s.Status, s.Version)
		if n := len(s.Journal); n > 0 {
			now += fmt.Sprintln(s.Journal[n-1].N)
		}
		for _, c := range s.Channels {
			now += fmt.Sprintln(c.Name, c.Status, c.Current, c.Target)
		}
	}
	if r.unchanged = min(r.unchanged+1, maxSlowdown*4); now != r.seen {
		r.seen, r.unchanged = now, 0
	}
	wait := statusPollInterval + time.Duration(len(all))*delayPerService
	return wait * time.Duration(max(4, r.unchanged)) / 4
}

// frame shows one status. Without a terminal it omits ages, because they would make every line new.
func (o *statusOptions) frame(screen show.Screen, live *show.Live, all []protocol.Status, last *string) error {
	if o.f.structured() {
		if now := fmt.Sprint(all); now == *last {
			return nil
		} else {
			*last = now
		}
		return screen.StreamDocument(o.document(all, nil))
	}
	now := o.f.Now()
	if !screen.TTY {
		now = time.Time{}
	}
	return live.Frame(o.text(screen, all, now))
}

func (o *statusOptions) text(screen show.Screen, all []protocol.Status, now time.Time) string {
	text := ""
	if o.joint != nil {
		text = entities.VisibleLines(strings.Join(partsText(*o.joint, all), "\n")) + "\n"
	}
	text += statusText(screen, all, now, o.wide) + linesText(o.plans)
	if screen.TTY || !o.watch { // otherwise each poll would print new lines
		text += linesText(explain.Running(o.running, "", o.f.Now()))
	}
	for _, s := range all {
		for _, c := range s.Channels {
			if lines := explain.Instances(c); o.instances && len(lines) > 0 {
				text += fmt.Sprintf("\n%s/%s %s\n%s", s.Application, s.Service, c.Name, linesText(lines))
			}
		}
	}
	if !o.objects {
		return text
	}
	for _, s := range all {
		for _, c := range s.Channels {
			text += fmt.Sprintf("\n%s/%s %s", s.Application, s.Service, c.Name)
			lines := explain.Objects(c, o.f.Now())
			if len(lines) == 0 {
				text += ": no objects"
			}
			text += "\n" + linesText(lines)
		}
	}
	return text
}

// linesText joins lines that may contain external text.
func linesText(lines []string) (text string) {
	for _, line := range lines {
		text += entities.Visible(line) + "\n"
	}
	return text
}

// statusText formats the overview. With a zero time it omits ages. With wide, it wraps what does not fit; otherwise it cuts it.
func statusText(screen show.Screen, all []protocol.Status, now time.Time, wide bool) string {
	if len(all) == 0 {
		return ""
	}
	overview := explain.Table(all, now)
	t := show.Table{Header: explain.Header[:], Right: 6, Status: 3, Below: true, Wide: wide}
	if !screen.TTY {
		t.Rows = append(t.Rows, explain.Header[:])
	}
	service := ""
	for _, row := range overview.Rows {
		cells := append([]string(nil), row[:]...)
		if service = first(cells[0], service); !screen.TTY {
			cells[0] = service // repeat the service in each line, for grep and cut
		}
		t.Rows = append(t.Rows, cells)
	}
	text := screen.String(t)
	for _, m := range overview.Releases {
		text += "\n" + releasesText(screen, m)
	}
	if len(overview.Releases) > 0 && len(overview.Lines) > 0 {
		text += "\n"
	}
	return text + linesText(overview.Lines)
}

// releasesText formats releases in flight.
func releasesText(screen show.Screen, m explain.Matrix) string {
	t := show.Table{Header: m.Header, Phases: true}
	if !screen.TTY {
		t.Rows = append(t.Rows, m.Header)
	}
	t.Rows = append(t.Rows, m.Rows...)
	return screen.String(t)
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
