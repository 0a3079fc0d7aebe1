package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/tests/bench/report"
)

const (
	goalCPU = 0.10 // seconds: docs/benchmarks.md
	// blockSize releases are measured together: CPU is counted by the process, and what follows a
	// release (a look, the next poll) belongs to it.
	blockSize = 20
)

// side is one thing whose CPU is measured, in blocks.
type side struct {
	what           string
	once           func(ctx context.Context, n int) error
	server, worker []time.Duration // per cycle, one for each block
	total          []time.Duration
	cycles         int
}

// measureCPU counts the CPU of releases, and of the bare workflow, in turns.
func measureCPU(ctx context.Context, b *bench) (err error) {
	w, err := newWorld(ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	p, err := newPair(ctx, w, application{name: "one", channels: 1, services: serviceNames(actors), steady: time.Hour})
	if err != nil {
		return err
	}
	defer p.bare.worker.Stop()
	two := application{name: "two", channels: 2, services: serviceNames(2 * actors)[actors:], steady: time.Hour}
	if err := w.publish(ctx, two); err != nil {
		return err
	}
	sides := p.sides(two)
	for range max(b.rounds/blockSize, 1) + 1 {
		for _, s := range sides {
			if err := s.block(ctx, w); err != nil {
				return fmt.Errorf("%s: %w", s.what, err)
			}
		}
	}
	if err := p.checkRest(ctx, two, sides); err != nil {
		return err
	}
	reportCPU(b, sides)
	return nil
}

func (p *pair) sides(two application) []*side {
	release := func(a application, how send) func(context.Context, int) error {
		return func(ctx context.Context, n int) error {
			_, err := p.release(ctx, a, a.services[n%actors], fmt.Sprintf("v%d", n), how)
			return err
		}
	}
	turn := 0 // the update's versions are its own
	return []*side{
		{what: "bare workflow: signal, activity", once: func(ctx context.Context, n int) error {
			_, _, err := p.bare.cycle(ctx, bareID(n%actors), fmt.Sprintf("v%d", n))
			return err
		}},
		{what: "CPU of a release, one channel", once: release(p.app, signalRelease)},
		{what: "the same by update, as the CLI does", once: func(ctx context.Context, _ int) error {
			turn++
			_, err := p.release(ctx, p.app, p.app.services[turn%actors], fmt.Sprintf("u%d", turn), updateRelease)
			return err
		}},
		{what: "CPU of a release, two channels", once: release(two, signalRelease)},
	}
}

// block measures one block; the first one of each side only warms up.
func (s *side) block(ctx context.Context, w *world) error {
	if err := pause(ctx, 10*breath); err != nil {
		return err
	}
	before, err := w.spent()
	if err != nil {
		return err
	}
	for range blockSize {
		if err := s.once(ctx, s.cycles); err != nil {
			return err
		}
		s.cycles++
	}
	if err := pause(ctx, 5*breath); err != nil {
		return err
	}
	after, err := w.spent()
	if err != nil {
		return err
	}
	if s.cycles > blockSize {
		server, worker := after.since(before)
		s.server, s.worker = append(s.server, server/blockSize), append(s.worker, worker/blockSize)
		s.total = append(s.total, (server+worker)/blockSize)
	}
	return nil
}

// checkRest makes sure that what was measured was whole releases.
func (p *pair) checkRest(ctx context.Context, two application, sides []*side) error {
	last := fmt.Sprintf("v%d", sides[len(sides)-1].cycles-1)
	service := two.services[(sides[len(sides)-1].cycles-1)%actors]
	rests, err := p.converged(ctx, two, service, last)
	if err == nil && !rests {
		err = fmt.Errorf("%s/%s is not CONVERGED at %s, so what was measured were not whole releases", two.name, service, last)
	}
	return err
}

func reportCPU(b *bench, sides []*side) {
	bare := report.Dur(report.Median(sides[0].total))
	for _, s := range sides[1:] {
		line := report.Line{
			Row: b.row, What: s.what, Measured: report.Dur(report.Median(s.total)),
			Spread:    fmt.Sprintf("%s–%s", report.Dur(report.Quantile(s.total, 0)), report.Dur(report.Quantile(s.total, 1))),
			Reference: &bare, Against: "bare workflow",
		}
		if s != sides[len(sides)-1] {
			line.Goal = report.Ref(report.Of(goalCPU, report.Seconds))
		}
		b.Add(line)
	}
	b.Note(b.row, "%d blocks of %d, in turns; medians, server and worker apart:", len(sides[0].total), blockSize)
	for _, s := range sides {
		b.Note(b.row, "  %-38s server %s, worker %s", s.what, report.Dur(report.Median(s.server)), report.Dur(report.Median(s.worker)))
	}
}
