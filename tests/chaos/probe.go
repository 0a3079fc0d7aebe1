package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/converge-engine/converge/tests/chaos/record"
)

// probe asks each service once a second, as somebody would who looks at it, and keeps when it did not answer.
type probe struct {
	world *world

	mu   sync.Mutex
	gaps []record.Gap
}

const (
	asks  = time.Second
	worth = 3 * time.Second // a gap that is kept
)

// watch asks one service until ctx ends.
func (p *probe) watch(ctx context.Context, service string) {
	last, gone := time.Now(), false
	for ctx.Err() == nil {
		_, err := p.world.status(ctx, service)
		gone = gone || errors.Is(err, errGone)
		if err == nil || ctx.Err() != nil {
			p.answered(record.Gap{Service: service, From: last, To: time.Now(), Gone: gone})
			last, gone = time.Now(), false
		}
		select {
		case <-ctx.Done():
		case <-time.After(asks):
		}
	}
}

func (p *probe) answered(g record.Gap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.Gone || g.To.Sub(g.From) > worth {
		p.gaps = append(p.gaps, g)
	}
}
