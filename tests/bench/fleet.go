package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
	"github.com/converge-engine/converge/tests/bench/requests"
)

const (
	// smallFleet is measured as well, where the fleet is larger.
	smallFleet = 100
	// tail is what a release is still charged for after all have converged: the readings that follow.
	tail = 5 * time.Second
	// callers release at the same time.
	callers = 16
)

// fleet is what was measured of one number of Deployments.
type fleet struct {
	app       application
	line      *line
	made      time.Duration // until all had converged at their first version
	began     time.Time     // the release
	released  time.Duration // until all had converged at the second
	bare      planeSpent    // before there were services
	before    planeSpent    // before the release
	after     planeSpent
	rested    planeSpent
	asked     requests.Tally // by the release
	events    int64          // written by the release
	kinds     string         // of them
	rest      time.Duration
	restAsked requests.Tally
	restWrote int64
	restKinds string
}

// measureFleet releases many Deployments at once, each a service of its own, and lets them rest. A
// small fleet comes first, on a control plane of its own.
func measureFleet(ctx context.Context, b *bench) error {
	sizes := []int{b.deployments}
	if b.deployments > smallFleet {
		sizes = []int{smallFleet, b.deployments}
	}
	for _, n := range sizes {
		runtime.GC()
		f := newFleet(n, b.rest)
		if err := f.measure(ctx, b); err != nil {
			return fmt.Errorf("%d Deployments: %w", n, err)
		}
		f.report(b)
	}
	return nil
}

func newFleet(n int, rest time.Duration) *fleet {
	return &fleet{app: application{
		name: "fleet", channels: 1, services: serviceNames(n), version: "v1", steady: steadyDefault,
	}, line: newLine(false), rest: rest}
}

func (f *fleet) measure(ctx context.Context, b *bench) (err error) {
	dir := filepath.Join(b.dir, fmt.Sprint(len(f.app.services)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p, err := newPlane(ctx, b, dir, map[string]*line{f.app.runtime(): f.line})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := f.create(ctx, p); err != nil {
		return err
	}
	profiled, err := b.profileCPU()
	if err != nil {
		return err
	}
	err = errors.Join(f.release(ctx, p, "v2"), profiled())
	if err != nil {
		return err
	}
	if err := f.check(ctx, p, "v2"); err != nil {
		return err
	}
	return f.idle(ctx, p)
}

// create publishes all services, and waits until they have converged and rest.
func (f *fleet) create(ctx context.Context, p *plane) (err error) {
	if f.app.on, err = p.at(ctx, f.app.name); err != nil {
		return err
	}
	if err := pause(ctx, time.Second); err != nil { // servers that have just started are busy with themselves
		return err
	}
	if f.bare, err = p.spent(); err != nil {
		return err
	}
	began := time.Now()
	if err := p.publish(ctx, f.app); err != nil {
		return err
	}
	if err := allConverged(ctx, p.client, f.app, f.app.version); err != nil {
		return err
	}
	f.made = time.Since(began)
	return pause(ctx, 2*tail)
}

// release moves every service, and charges everything to it until all rest.
func (f *fleet) release(ctx context.Context, p *plane, version string) error {
	had, err := p.lengths(ctx, f.app)
	if err != nil {
		return err
	}
	f.line.requests.Take()
	if f.before, err = p.spent(); err != nil {
		return err
	}
	f.began = time.Now()
	calls, within := errgroup.WithContext(ctx)
	calls.SetLimit(callers)
	for _, s := range f.app.services {
		calls.Go(func() error {
			_, err := signalRelease(within, p.client, protocol.ServiceID(f.app.name, s), version)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	if err := allConverged(ctx, p.client, f.app, version); err != nil {
		return err
	}
	f.released = time.Since(f.began)
	if err := pause(ctx, tail); err != nil {
		return err
	}
	f.asked = f.line.requests.Take()
	if f.after, err = p.spent(); err != nil {
		return err
	}
	f.events, f.kinds, err = p.growth(ctx, f.app, had)
	return err
}

// check makes sure that CONVERGED was true.
func (f *fleet) check(ctx context.Context, p *plane, version string) error {
	list, err := p.admin.AppsV1().Deployments(f.app.on.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) != len(f.app.services) {
		return fmt.Errorf("there are %d Deployments; expected %d", len(list.Items), len(f.app.services))
	}
	for i := range list.Items {
		d := &list.Items[i]
		if got := d.Spec.Template.Spec.Containers[0].Image; !whole(d) || got != image(version) {
			return fmt.Errorf("deployment %s is CONVERGED at %s, and has image %s, status %+v", d.Name, version, got, d.Status)
		}
	}
	return nil
}

// idle counts over a window in which nothing happens.
func (f *fleet) idle(ctx context.Context, p *plane) error {
	if err := pause(ctx, tail); err != nil {
		return err
	}
	had, err := p.lengths(ctx, f.app)
	if err != nil {
		return err
	}
	begin, err := p.spent()
	if err != nil {
		return err
	}
	f.line.requests.Take()
	if err := pause(ctx, f.rest); err != nil {
		return err
	}
	if f.rested, err = p.spent(); err != nil {
		return err
	}
	f.restAsked = f.line.requests.Take()
	f.rested.subtract(begin)
	f.restWrote, f.restKinds, err = p.growth(ctx, f.app, had)
	return err
}

// subtract leaves the CPU since then; memory stays what it is now.
func (s *planeSpent) subtract(begin planeSpent) {
	s.server.CPU -= begin.server.CPU
	s.worker.CPU -= begin.worker.CPU
	for name, u := range s.parts {
		u.CPU -= begin.parts[name].CPU
		s.parts[name] = u
	}
}

// profileCPU begins a profile of this process, if one was asked for. A later one replaces it.
func (b *bench) profileCPU() (end func() error, err error) {
	if b.profile == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(b.profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

func (f *fleet) report(b *bench) {
	n := len(f.app.services)
	each := func(d time.Duration) report.Value { return report.Dur(d / time.Duration(n)) }
	add := func(what string, v report.Value, spread string, goal *report.Value) {
		b.Add(report.Line{Row: b.row, What: fmt.Sprintf("%d Deployments: %s", n, what), Measured: v, Spread: spread, Goal: goal})
	}
	add("release to all CONVERGED", report.Dur(f.released), fmt.Sprintf("%.1f/s", float64(n)/f.released.Seconds()), nil)
	server, worker := f.after.since(f.before.spent)
	add("CPU of a release", each(server+worker), fmt.Sprintf("worker %s, Temporal server %s", each(worker), each(server)),
		report.Ref(report.Of(goalCPU, report.Seconds)))
	parts, all := f.after.planeSince(f.before)
	add("CPU of the control plane for it", each(all), printParts(parts, each), nil)
	add("API requests of a release", report.Of(float64(f.asked.Total())/float64(n), "requests"), f.asked.Per(n), nil)
	add("history events of a release", report.Of(float64(f.events)/float64(n), "events"), "", nil)
	b.Note(b.row, "%d Deployments, history events of a release: %s", n, f.kinds)
	for _, m := range []struct {
		what      string
		now, bare usage
	}{{"worker", f.rested.worker, f.bare.worker}, {"Temporal server", f.rested.server, f.bare.server}} {
		add("memory of the "+m.what, report.Of(float64(m.now.Memory), report.Bytes),
			fmt.Sprintf("%s a service", report.Of(float64(m.now.Memory-m.bare.Memory)/float64(n), report.Bytes)), nil)
	}
	add("at rest, CPU", report.Of(part(f.rested.worker.CPU+f.rested.server.CPU, f.rest), report.Cores),
		fmt.Sprintf("worker %s, Temporal server %s", report.Of(part(f.rested.worker.CPU, f.rest), report.Cores), report.Of(part(f.rested.server.CPU, f.rest), report.Cores)), nil)
	add("at rest, API requests in "+short(f.rest)+" but renewed watches", report.Of(float64(f.restAsked.Asked()), "requests"), f.restAsked.Per(1), report.Ref(report.Of(0, "requests")))
	add("at rest, history events in "+short(f.rest), report.Of(float64(f.restWrote), "events"), f.restKinds, report.Ref(report.Of(0, "events")))
	f.explain(b)
}

func (f *fleet) explain(b *bench) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n := len(f.app.services)
	b.Note(b.row, "%d Deployments: published and converged at v1 in %s; of the worker's memory %s is heap in use, %s stacks of %d goroutines, and it includes this program's own",
		n, report.Dur(f.made), report.Of(float64(m.HeapInuse), report.Bytes), report.Of(float64(m.StackInuse), report.Bytes), runtime.NumGoroutine())
	resting := map[string]time.Duration{}
	memory := map[string]int64{}
	for name, u := range f.rested.parts {
		resting[name] = u.CPU
		memory[name] = u.Memory
	}
	b.Note(b.row, "  the control plane at rest: %s; its memory: %s",
		printParts(resting, func(d time.Duration) report.Value { return report.Of(part(d, f.rest), report.Cores) }),
		printParts(memory, func(n int64) report.Value { return report.Of(float64(n), report.Bytes) }))
}

// printParts prints something of each component, by name.
func printParts[V any](parts map[string]V, value func(V) report.Value) string {
	text := ""
	for i, name := range slices.Sorted(maps.Keys(parts)) {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %s", name, value(parts[name]))
	}
	return text
}
