package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/bench/report"
	"github.com/converge-engine/converge/tests/bench/requests"
)

const (
	pollEvery  = 5 * time.Second
	goalNotice = time.Second // docs/benchmarks.md
	// calm is how long a service is left alone before what follows, so that its reading at rest is over.
	calm = time.Second
)

// watchSide is one of the two ways to learn of a change.
type watchSide struct {
	app    application
	line   *line
	at     string                                // namespace
	sample map[string][]time.Duration            // by damage
	passed map[string]map[string][]time.Duration // by damage and mark on the way
}

// damage is something done by hand to a Deployment.
type damage struct {
	what string
	do   func(ctx context.Context, p *plane, namespace, name string) error
}

var damages = [...]damage{
	{"replicas changed by hand", func(ctx context.Context, p *plane, namespace, name string) error {
		_, err := p.admin.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`),
			metav1.PatchOptions{FieldManager: "kubectl-edit"})
		return err
	}},
	{"Deployment deleted by hand", func(ctx context.Context, p *plane, namespace, name string) error {
		behind := metav1.DeletePropagationBackground
		return p.admin.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &behind})
	}},
}

// measureWatch changes objects by hand and waits for the write that mends them: on a runtime that
// watches, and on the same one without its watch.
func measureWatch(ctx context.Context, b *bench) (err error) {
	watched := &watchSide{app: application{name: "watched", steady: steadyDefault}, line: newLine(false)}
	polled := &watchSide{app: application{name: "polled", steady: pollEvery}, line: newLine(true)}
	sides := []*watchSide{watched, polled}
	lines := map[string]*line{}
	rounds := max(b.rounds/5, 1)
	for _, s := range sides {
		s.sample, s.passed = map[string][]time.Duration{}, map[string]map[string][]time.Duration{}
		s.app.channels, s.app.version = 1, "v1"
		// Each is damaged once, since a second repair soon after the first would be put off; the last ones
		// never are.
		s.app.services = serviceNames(len(damages)*rounds + actors)
		lines[s.app.runtime()] = s.line
	}
	p, err := newPlane(ctx, b, b.dir, lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	for _, s := range sides {
		if err := s.settle(ctx, p); err != nil {
			return err
		}
	}
	if err := pause(ctx, calm); err != nil {
		return err
	}
	for done := 0; done < rounds; done += actors {
		for i, d := range damages {
			from, to := i*rounds+done, i*rounds+min(done+actors, rounds)
			if err := watched.inTurn(ctx, p, d, watched.app.services[from:to]); err != nil {
				return err
			}
			if err := polled.atOnce(ctx, p, d, polled.app.services[from:to]); err != nil {
				return err
			}
		}
	}
	reportNotice(b, watched, polled)
	for _, s := range sides {
		s.app.services = s.app.services[len(damages)*rounds:]
	}
	return reportRest(ctx, b, p, sides)
}

// settle publishes the services of a side and waits until they rest.
func (s *watchSide) settle(ctx context.Context, p *plane) error {
	at, err := p.at(ctx, s.app.name)
	if err != nil {
		return err
	}
	s.app.on, s.at = at, at.name
	if err := p.publish(ctx, s.app); err != nil {
		return err
	}
	return allConverged(ctx, p.client, s.app, s.app.version)
}

// inTurn damages one service after the other, at any time.
func (s *watchSide) inTurn(ctx context.Context, p *plane, d damage, services []string) error {
	for _, name := range services {
		if err := pause(ctx, rand.N(time.Second)); err != nil { //nolint:gosec // no secret
			return err
		}
		took, err := s.mended(ctx, p, d, name)
		if err != nil {
			return err
		}
		s.sample[d.what] = append(s.sample[d.what], took)
	}
	return nil
}

// atOnce damages services at any time between two readings, each on its own: they wait rather than work.
func (s *watchSide) atOnce(ctx context.Context, p *plane, d damage, services []string) error {
	took := make([]time.Duration, len(services))
	g, ctx := errgroup.WithContext(ctx)
	for i, name := range services {
		g.Go(func() error {
			err := pause(ctx, rand.N(s.app.steady)) //nolint:gosec // no secret
			if err == nil {
				took[i], err = s.mended(ctx, p, d, name)
			}
			return err
		})
	}
	err := g.Wait()
	s.sample[d.what] = append(s.sample[d.what], took...)
	return err
}

// mended damages a service's Deployment and returns how long it took until the worker sent what mends
// it. It returns when the service is whole again.
func (s *watchSide) mended(ctx context.Context, p *plane, d damage, name string) (time.Duration, error) {
	applies := s.line.requests.Watch(name)
	p.trace.take()
	if err := d.do(ctx, p, s.at, name); err != nil {
		return 0, err
	}
	done := time.Now()
	written, err := receive(ctx, applies.Written)
	if err != nil {
		return 0, fmt.Errorf("%s, %s: nothing was mended: %w", s.app.name, d.what, err)
	}
	s.walk(d, done, applies, p.trace.take(), written)
	return written.Sub(done), until(ctx, time.Second/10, func() (bool, error) {
		made, err := p.admin.AppsV1().Deployments(s.at).Get(ctx, name, metav1.GetOptions{})
		if err != nil || !whole(made) {
			return false, unlessNotThere(err)
		}
		return p.converged(ctx, s.app, name, s.app.version)
	})
}

func unlessNotThere(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// walk notes when the way from a change to its repair passed what, on the side that watches.
func (s *watchSide) walk(d damage, from time.Time, applies *requests.Applies, passed map[string]time.Time, written time.Time) {
	if s.line.blind {
		return // several at once
	}
	marks := map[string]time.Time{
		"the workflow sees the hint": passed[stageSignal], "it has read": passed[protocol.ActivityObserve+"/end"],
		"the apply begins": passed[protocol.ActivityApply], "the write leaves": written,
	}
	select {
	case marks["the first dry run leaves"] = <-applies.Asked:
	default:
	}
	if s.passed[d.what] == nil {
		s.passed[d.what] = map[string][]time.Duration{}
	}
	for mark, at := range marks {
		if at.After(from) {
			s.passed[d.what][mark] = append(s.passed[d.what][mark], at.Sub(from))
		}
	}
}

// way prints when what was passed, in order: medians, since the change.
func (s *watchSide) way(d damage) string {
	marks := s.passed[d.what]
	order := slices.SortedFunc(maps.Keys(marks), func(a, b string) int {
		return cmp.Or(cmp.Compare(report.Median(marks[a]), report.Median(marks[b])), strings.Compare(a, b))
	})
	for i, mark := range order {
		order[i] = fmt.Sprintf("%s %s", report.Dur(report.Median(marks[mark])), mark)
	}
	return strings.Join(order, ", ")
}

// whole reports whether a Deployment is as declared, and all its pods are there.
func whole(d *appsv1.Deployment) bool {
	s := d.Status
	return d.Spec.Replicas != nil && *d.Spec.Replicas == 1 && s.ObservedGeneration >= d.Generation &&
		s.Replicas == 1 && s.UpdatedReplicas == 1 && s.AvailableReplicas == 1
}

func reportNotice(b *bench, watched, polled *watchSide) {
	for _, d := range damages {
		for _, q := range []struct {
			name string
			part float64
		}{{"p50", 0.5}, {"p95", 0.95}} {
			against := report.Dur(report.Quantile(polled.sample[d.what], q.part))
			b.Add(report.Line{
				Row: b.row, What: d.what + ", until the write that mends it, " + q.name,
				Measured:  report.Dur(report.Quantile(watched.sample[d.what], q.part)),
				Spread:    fmt.Sprintf("%d rounds", len(watched.sample[d.what])),
				Reference: &against, Against: "polling every " + short(pollEvery), Goal: report.Ref(report.Dur(goalNotice)),
			})
		}
		b.Note(b.row, "%s, with the watch, medians since the change: %s", d.what, watched.way(d))
	}
}

// reportRest lets those rest that were never damaged, and counts what it costs.
func reportRest(ctx context.Context, b *bench, p *plane, sides []*watchSide) error {
	if err := pause(ctx, calm); err != nil {
		return err
	}
	before := map[*watchSide][]int64{}
	for _, s := range sides {
		lengths, err := p.lengths(ctx, s.app)
		if err != nil {
			return err
		}
		before[s] = lengths
		s.line.requests.Take()
	}
	if err := pause(ctx, b.rest); err != nil {
		return err
	}
	for _, s := range sides {
		asked := s.line.requests.Take()
		grown, of, err := p.growth(ctx, s.app, before[s])
		if err != nil {
			return err
		}
		way := "watched, readings every " + short(s.app.steady)
		if s.line.blind {
			way = "polled every " + short(s.app.steady)
		}
		b.Add(report.Line{
			Row: b.row, What: fmt.Sprintf("API requests of idle services in %s but renewed watches, %s", short(b.rest), way),
			Measured: report.Of(float64(asked.Asked()), "requests"), Spread: asked.Per(1), Goal: report.Ref(report.Of(0, "requests")),
		})
		b.Add(report.Line{
			Row: b.row, What: fmt.Sprintf("history events of %d of them", len(s.app.services)), Measured: report.Of(float64(grown), "events"),
			Spread: of, Goal: report.Ref(report.Of(0, "events")),
		})
	}
	return nil
}
