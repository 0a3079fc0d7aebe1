package runtimes

import (
	"context"
	"sync"
)

// Progress is the status of a long call, for people who wait for it. It may be lost without harm. A nil Progress ignores all
// updates.
type Progress struct {
	mu       sync.Mutex
	location string
	tail     func(limit int) string
}

type progressKey struct{}

// WithProgress returns a context whose calls report their progress.
func WithProgress(ctx context.Context) (context.Context, *Progress) {
	p := &Progress{}
	return context.WithValue(ctx, progressKey{}, p), p
}

// ProgressOf is the progress of a context, or nil.
func ProgressOf(ctx context.Context) *Progress {
	p, _ := ctx.Value(progressKey{}).(*Progress)
	return p
}

// SetLocation records where a command runs, unless it is this machine: "Job shop/converge-web-1".
func (p *Progress) SetLocation(location string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.location = location
}

// SetOutput sets the function that reads the current end of a command's output, without secrets: at most limit bytes, of valid UTF-8.
// It may be called at any time, also after the command's end.
func (p *Progress) SetOutput(tail func(limit int) string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = tail
}

// Snapshot is where the command runs, and the current end of its output; both may be empty.
func (p *Progress) Snapshot(limit int) (location, tail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tail != nil {
		tail = p.tail(limit)
	}
	return p.location, tail
}
