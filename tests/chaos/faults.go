package main

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/tests/chaos/record"
)

// faults does what was drawn, each when so many releases were made. Several may be going on at a time, but one alone for
// each target and kind of way: what was killed cannot be frozen.
type faults struct {
	world  *world
	people *people

	mu     sync.Mutex
	done   []record.Fault
	active sync.WaitGroup
	busy   map[string]*sync.Mutex
}

func newFaults(w *world, p *people) *faults {
	f := &faults{world: w, people: p, busy: map[string]*sync.Mutex{}}
	for _, name := range []string{worker1, worker2, serverName, storeName} {
		f.busy[name] = &sync.Mutex{}
	}
	return f
}

// run returns when all are over and everything is mended.
func (f *faults) run(ctx context.Context, planned []fault) error {
	defer f.active.Wait()
	for _, next := range planned {
		if err := f.people.awaitReleases(ctx, next.after); err != nil {
			return err
		}
		f.active.Go(func() { f.do(ctx, next) })
	}
	return nil
}

func (f *faults) do(ctx context.Context, planned fault) {
	busy := f.busy[planned.target]
	busy.Lock()
	defer busy.Unlock()
	if ctx.Err() != nil {
		return
	}
	begin, end := f.ways(planned)
	done := record.Fault{Kind: planned.kind, Target: planned.target, Began: time.Now()}
	done.PID = begin()
	select {
	case <-time.After(planned.lasts): // this is what happens
	case <-ctx.Done():
	}
	end()
	done.Ended = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, done)
}

// ways of a fault to begin, which returns whom it met, and to end.
func (f *faults) ways(planned fault) (begin func() int, end func()) {
	p, c := f.world.processes[planned.target], f.world.proxies[planned.target]
	on := func(fault func()) func() int { return func() int { fault(); return p.pid() } }
	switch planned.kind {
	case record.Kill:
		return p.kill, p.revive
	case record.Freeze:
		return p.freeze, p.thaw
	case record.Stall:
		return on(c.Hold), c.Resume
	default:
		return on(c.Cut), c.Restore
	}
}
