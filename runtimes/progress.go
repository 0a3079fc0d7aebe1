package runtimes

import (
	"context"
	"sync"
)

// Progress is what a call that takes long says of itself meanwhile, for people who wait for it. It is lost without harm.
// A nil one takes in nothing.
type Progress struct {
	mu    sync.Mutex
	place string
	tail  func(limit int) string
}

type progressKey struct{}

// WithProgress returns a context whose calls say how far they are.
func WithProgress(ctx context.Context) (context.Context, *Progress) {
	p := &Progress{}
	return context.WithValue(ctx, progressKey{}, p), p
}

// ProgressOf is that of a context, or nil.
func ProgressOf(ctx context.Context) *Progress {
	p, _ := ctx.Value(progressKey{}).(*Progress)
	return p
}

// At notes where a command runs, unless it is this machine: "Job shop/converge-web-1".
func (p *Progress) At(place string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place = place
}

// Prints notes how the end of what a command has printed so far is read, with secrets taken out: at most limit bytes, of valid
// UTF-8. It is called at any time, also after the command's end.
func (p *Progress) Prints(tail func(limit int) string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = tail
}

// Said is where the command runs, and the end of what it has printed so far; both may be empty.
func (p *Progress) Said(limit int) (place, tail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tail != nil {
		tail = p.tail(limit)
	}
	return p.place, tail
}
