package store

import (
	"context"
	"fmt"
	"time"
)

// limitedCalls wraps the blobs of a file system that may hang. A call ends when its context ends, or after a timeout. The hanging operation
// stays behind. The number of concurrent operations is limited, because each blocks a thread.
type limitedCalls struct {
	blobs
	calls chan struct{}
}

const (
	maxCalls = 256
	maxCall  = 30 * time.Second
)

func newBounded(b blobs) *limitedCalls {
	return &limitedCalls{blobs: b, calls: make(chan struct{}, maxCalls)}
}

func withTimeout[T any](ctx context.Context, b *limitedCalls, what string, call func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	select {
	case b.calls <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("%s: the store does not respond: %w", what, ctx.Err())
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-b.calls }()
		v, err := call(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: the store does not respond: %w", what, ctx.Err())
	}
}

func (b *limitedCalls) read(ctx context.Context, key string) ([]byte, error) {
	return withTimeout(ctx, b, "read "+key, func(ctx context.Context) ([]byte, error) { return b.blobs.read(ctx, key) })
}

func (b *limitedCalls) write(ctx context.Context, key string, data []byte) error {
	_, err := withTimeout(ctx, b, "write "+key, func(ctx context.Context) (bool, error) { return true, b.blobs.write(ctx, key, data) })
	return err
}

func (b *limitedCalls) create(ctx context.Context, key string, data []byte) (bool, error) {
	return withTimeout(ctx, b, "write "+key, func(ctx context.Context) (bool, error) { return b.blobs.create(ctx, key, data) })
}

func (b *limitedCalls) list(ctx context.Context, prefix string) ([]string, error) {
	return withTimeout(ctx, b, "list "+prefix, func(ctx context.Context) ([]string, error) { return b.blobs.list(ctx, prefix) })
}

func (b *limitedCalls) remove(ctx context.Context, key string) error {
	_, err := withTimeout(ctx, b, "delete "+key, func(ctx context.Context) (bool, error) { return true, b.blobs.remove(ctx, key) })
	return err
}

func (b *limitedCalls) exists(ctx context.Context, key string) (bool, error) {
	return withTimeout(ctx, b, "check for "+key, func(ctx context.Context) (bool, error) { return b.blobs.exists(ctx, key) })
}

func (b *limitedCalls) entries(ctx context.Context, prefix string) ([]entry, error) {
	return withTimeout(ctx, b, "list "+prefix, func(ctx context.Context) ([]entry, error) { return b.blobs.entries(ctx, prefix) })
}

func (b *limitedCalls) move(ctx context.Context, from, to string) error {
	_, err := withTimeout(ctx, b, "move "+from, func(ctx context.Context) (bool, error) { return true, b.blobs.move(ctx, from, to) })
	return err
}
