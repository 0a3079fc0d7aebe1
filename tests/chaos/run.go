package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// patience is how long services have to come to rest once everything is mended.
const patience = 4 * time.Minute

// run plays a plan in an empty directory, and returns what it leaves behind. An error means that the run itself went wrong,
// which says nothing about Converge.
func run(ctx context.Context, p plan, dir string, talk io.Writer) (*record.Record, error) {
	w, err := newWorld(ctx, dir, serviceNames(p.size.services))
	if err != nil {
		return nil, err
	}
	defer w.stop()
	r := &record.Record{
		Seed: p.seed, Releases: p.size.releases, History: map[string][]entities.AuditEntry{},
		Proven: true, Rest: map[string][]record.Rest{}, RestAt: map[string]int64{}, Final: map[string][]record.Rest{}, Last: map[string]string{},
	}
	people := newPeople(w)
	if err := begin(ctx, w); err != nil {
		return nil, err
	}
	fmt.Fprintf(talk, "%d services are up in %s\n", len(w.services), dir)
	probe := &probe{world: w}
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	for _, service := range w.services {
		watchers.Go(func() { probe.watch(watching, service) })
	}
	faults := newFaults(w, people)
	err = storm(ctx, p, people, faults)
	if err == nil {
		err = settle(ctx, w, people, r)
	}
	stop()
	watchers.Wait()
	if err != nil {
		return nil, err
	}
	people.mu.Lock()
	defer people.mu.Unlock()
	r.Acts, r.Faults, r.Gaps, r.Attacks = people.acts, faults.done, probe.gaps, people.attacks
	return r, collect(ctx, w, r)
}

// begin publishes until it is accepted, and waits until every service answers.
func begin(ctx context.Context, w *world) error {
	if err := w.configure(0); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := w.converge(ctx, nil, "config", "publish", w.config())
		if err != nil && strings.Contains(err.Error(), "needs proof of identity") {
			err = nil // the rules are there: it was accepted before, and the answer was lost
		}
		for _, service := range w.services {
			if err == nil {
				_, err = w.status(ctx, service)
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the world does not begin: %w", err)
		case <-time.After(inBetween):
		}
	}
}

// storm plays all lanes and faults, and returns when they are over and everything is mended.
func storm(ctx context.Context, p plan, people *people, faults *faults) error {
	var g errgroup.Group
	for _, lane := range p.names() {
		g.Go(func() error { return people.lane(ctx, p.lanes[lane]) })
	}
	g.Go(func() error { return faults.run(ctx, p.faults) })
	g.Go(func() error { return people.attack(ctx, p.attacks) })
	return g.Wait()
}

// settle waits until nothing moves, and then has everybody let a last release through.
func settle(ctx context.Context, w *world, people *people, r *record.Record) error {
	var mu sync.Mutex
	var g errgroup.Group
	if err := w.awaitAnnounced(ctx, patience); err != nil {
		r.Unrested = append(r.Unrested, err.Error())
	}
	for n, service := range w.services {
		number := (n + 1) * byNobody
		g.Go(func() error {
			e := ending{people: people, service: service, next: number}
			if err := e.clear(ctx); err != nil {
				e.unrested = err.Error()
			}
			e.release(ctx)
			mu.Lock()
			defer mu.Unlock()
			e.keep(r)
			return ctx.Err()
		})
	}
	return g.Wait()
}

// byNobody begins the numbers of acts that were not drawn.
const byNobody = 1_000_000

// lastVersion is newer than all others.
const lastVersion = "v1000000"

// ending is the end of one service.
type ending struct {
	people   *people
	service  string
	next     int // number of an act
	unrested string
	rest     snapshot // the last that was at rest
	final    []record.Rest
}

func (e *ending) do(ctx context.Context, verb, version string) {
	e.people.do(ctx, step{Act: record.Act{N: e.next, Verb: verb, Service: e.service, Version: version}})
	e.next++
}

// clear approves whatever waits, until nothing does and nothing moves.
func (e *ending) clear(ctx context.Context) error {
	for {
		s, err := e.people.world.awaitRest(ctx, e.service, patience, snapshot.unsure)
		if err != nil {
			return err
		}
		e.rest = s
		version := waiting(s.status)
		if version == "" {
			return nil
		}
		e.do(ctx, protocol.Approve, version)
	}
}

// release lets a last release through.
func (e *ending) release(ctx context.Context) {
	e.do(ctx, protocol.Release, lastVersion)
	e.do(ctx, protocol.Approve, lastVersion)
	e.final = e.people.arrived(ctx, e.service, lastVersion)
}

func (e *ending) keep(r *record.Record) {
	if e.unrested != "" {
		r.Unrested = append(r.Unrested, e.unrested)
	}
	r.Rest[e.service], r.RestAt[e.service] = e.rest.rest, e.rest.line
	r.Last[e.service], r.Final[e.service] = lastVersion, e.final
}

// arrived waits until a version is everywhere, and returns what is where when it is or patience is over.
func (p *people) arrived(ctx context.Context, service, version string) []record.Rest {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last []record.Rest
	for {
		if s, err := p.world.snapshot(ctx, service); err == nil {
			last = s.rest
			if !slices.ContainsFunc(last, func(c record.Rest) bool { return c != arrivedIn(c.Channel, version) }) {
				return last
			}
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(inBetween):
		}
	}
}

func arrivedIn(channel, version string) record.Rest {
	return record.Rest{Channel: channel, Status: string(entities.StatusConverged), Target: version, Current: version, Site: version}
}

// history asks for the history of a service, without the lines of what is wider, or of the application.
func (w *world) history(ctx context.Context, of string) (lines []entities.AuditEntry, err error) {
	var history struct {
		Lines []struct {
			entities.AuditEntry
			Of string // what is wider, whose line it is
		}
	}
	if err := w.converge(ctx, &history, "history", of, "--output", "json"); err != nil {
		return nil, err
	}
	for _, l := range history.Lines {
		if l.Of == "" {
			lines = append(lines, l.AuditEntry)
		}
	}
	return lines, nil
}

// collect asks for what Converge says happened, and reads what did.
func collect(ctx context.Context, w *world, r *record.Record) (err error) {
	for _, service := range w.services {
		if r.History[service], err = w.history(ctx, application+"/"+service); err != nil {
			return err
		}
	}
	if r.Application, err = w.history(ctx, application); err != nil {
		return err
	}
	var published []protocol.Incarnation
	if err := w.converge(ctx, &published, "config", "list", application, "--last", "0", "--output", "json"); err != nil {
		return err
	}
	r.Incarnations = map[int64]string{}
	for _, i := range published {
		r.Incarnations[i.Number] = i.By
	}
	log, err := os.Open(filepath.Join(w.site(), record.LogFile))
	if err != nil {
		return err
	}
	defer log.Close()
	if r.Applies, err = record.Read(log); err != nil {
		return err
	}
	var alone []string
	for _, name := range []string{worker1, worker2, serverName, storeName} {
		if n := w.processes[name].alone; n > 0 {
			alone = append(alone, fmt.Sprintf("%s ended by itself %d times", name, n))
		}
	}
	r.Notes = append(r.Notes, alone...)
	return nil
}

// summary is what a run did, for people.
func summary(r *record.Record) string {
	var b strings.Builder
	count := map[string]map[string]int{}
	add := func(what, kind string) {
		if count[what] == nil {
			count[what] = map[string]int{}
		}
		count[what][kind]++
	}
	var slowest record.Act
	for _, a := range r.Acts {
		add("verbs", a.Verb)
		add("outcomes", a.Outcome)
		if a.Done.Sub(a.Sent) > slowest.Done.Sub(slowest.Sent) {
			slowest = a
		}
	}
	for _, a := range r.Attacks {
		add("attacks", map[bool]string{true: "arrived", false: "did not arrive"}[a.Sent])
	}
	for _, f := range r.Faults {
		add(f.Kind+"s", f.Target)
	}
	for _, a := range r.Applies {
		add("applies", a.Event)
	}
	fmt.Fprintf(&b, "seed %d, %d releases asked for, took %s\n", r.Seed, r.Releases, r.Took.Round(time.Second))
	for _, what := range entities.SortedKeys(count) {
		var parts []string
		sum := 0
		for _, kind := range entities.SortedKeys(count[what]) {
			parts = append(parts, fmt.Sprintf("%s %d", kind, count[what][kind]))
			sum += count[what][kind]
		}
		fmt.Fprintf(&b, "%-9s %d: %s\n", what, sum, strings.Join(parts, ", "))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s\n", n)
	}
	fmt.Fprintf(&b, "slowest answer: %s to %s, in %d tries\n", slowest.Done.Sub(slowest.Sent).Round(time.Millisecond), slowest, slowest.Tries)
	return b.String() + longest(r)
}

// longest names the longest time in which a service did not answer, with and without faults.
func longest(r *record.Record) string {
	var worst, quiet record.Gap
	for _, g := range r.Gaps {
		if g.To.Sub(g.From) > worst.To.Sub(worst.From) {
			worst = g
		}
		if r.Quiet(g) > r.Quiet(quiet) {
			quiet = g
		}
	}
	return fmt.Sprintf("longest without an answer: %s of %s, and without any fault meanwhile: %s of %s\n",
		worst.To.Sub(worst.From).Round(100*time.Millisecond), worst.Service,
		r.Quiet(quiet).Round(100*time.Millisecond), quiet.Service)
}

// errViolated says that the run ended, and something is not as it must be.
var errViolated = errors.New("there are violations")

// report writes what was found, and returns errViolated if anything must not be.
func report(w io.Writer, r *record.Record) error {
	fmt.Fprint(w, summary(r))
	violations := 0
	for _, f := range record.Judge(r) {
		fmt.Fprintln(w, f)
		violations += len(f.Violations)
	}
	if violations > 0 {
		return fmt.Errorf("%w: %d; the same plan again: make chaos SEED=%d", errViolated, violations, r.Seed)
	}
	return nil
}
