package runtimes

import (
	"context"
	"errors"
	"time"
)

// ErrCutOff is the cause of a context that ends because somebody else may soon do the same work: what was begun has
// to end within CutGrace.
var ErrCutOff = errors.New("cut off from the server, which gives this attempt to another worker")

// ErrAsked is the cause of a context that ends because a person or a newer release asks for that: what was begun ends in its own
// time, until its timeout at the latest, unless its lifeline is over before.
var ErrAsked = errors.New("asked to end")

// CutGrace is how long what was cut off may take to end, SIGKILL included.
const CutGrace = time.Second

// Lifeline says until when the work of a context is surely nobody else's. That moves on for as long as the server hears
// of the worker. A worker that stands still ends nothing at that time by itself. It is over at once for what is terminated.
type Lifeline func() time.Time

// Over tells whether the time of a lifeline is past; that of none never is.
func (l Lifeline) Over() bool { return l != nil && !time.Now().Before(l()) }

type lifelineKey struct{}

// WithLifeline returns a context that has one.
func WithLifeline(ctx context.Context, l Lifeline) context.Context {
	return context.WithValue(ctx, lifelineKey{}, l)
}

// LifelineOf is that of a context, or nil: nobody else would take the work over.
func LifelineOf(ctx context.Context) Lifeline {
	l, _ := ctx.Value(lifelineKey{}).(Lifeline)
	return l
}
