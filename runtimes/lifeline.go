package runtimes

import (
	"context"
	"errors"
	"time"
)

// ErrDisconnected is the cause of a context that ends because another worker may soon do the same work: running work must end within
// DisconnectGrace.
var ErrDisconnected = errors.New("disconnected from the server, which reassigns this attempt to another worker")

// ErrStopRequested is the cause of a context that ends because a person or a newer release requests it: running work may take its
// time to end, at most until its timeout, unless its lifeline expires earlier.
var ErrStopRequested = errors.New("stop requested")

// DisconnectGrace is how long work may take to end after a disconnection, including SIGKILL.
const DisconnectGrace = time.Second

// Lifeline is the time until which no other worker can own the work of a context. It advances as long as the server receives
// heartbeats of the worker. A frozen worker cannot end its own work at that time. For terminated work it expires at once.
type Lifeline func() time.Time

// Expired reports whether the time of a lifeline has passed; a nil lifeline never expires.
func (l Lifeline) Expired() bool { return l != nil && !time.Now().Before(l()) }

type lifelineKey struct{}

// WithLifeline returns a context with a lifeline.
func WithLifeline(ctx context.Context, l Lifeline) context.Context {
	return context.WithValue(ctx, lifelineKey{}, l)
}

// LifelineOf is the lifeline of a context, or nil: no other worker takes the work over.
func LifelineOf(ctx context.Context) Lifeline {
	l, _ := ctx.Value(lifelineKey{}).(Lifeline)
	return l
}
