package store

import (
	"context"
	"errors"
	"time"
)

// Measure sets a callback for each request to the store: the operation (read, write, create, list, remove), its duration, and whether it
// failed. Not found is not a failure. Call it before concurrent use of the store.
func (s *Store) Measure(requested func(operation string, took time.Duration, failed bool)) {
	s.blobs = measured{s.blobs, requested}
}

// measured wraps blobs and reports their requests.
type measured struct {
	blobs
	requested func(operation string, took time.Duration, failed bool)
}

func (m measured) observe(operation string, since time.Time, err error) {
	m.requested(operation, time.Since(since), err != nil && !IsNotFound(err) && !errors.Is(err, context.Canceled))
}

func (m measured) read(ctx context.Context, key string) (data []byte, err error) {
	defer func(since time.Time) { m.observe("read", since, err) }(time.Now())
	return m.blobs.read(ctx, key)
}

func (m measured) write(ctx context.Context, key string, data []byte) (err error) {
	defer func(since time.Time) { m.observe("write", since, err) }(time.Now())
	return m.blobs.write(ctx, key, data)
}

func (m measured) create(ctx context.Context, key string, data []byte) (created bool, err error) {
	defer func(since time.Time) { m.observe("create", since, err) }(time.Now())
	return m.blobs.create(ctx, key, data)
}

func (m measured) list(ctx context.Context, prefix string) (keys []string, err error) {
	defer func(since time.Time) { m.observe("list", since, err) }(time.Now())
	return m.blobs.list(ctx, prefix)
}

func (m measured) remove(ctx context.Context, key string) (err error) {
	defer func(since time.Time) { m.observe("remove", since, err) }(time.Now())
	return m.blobs.remove(ctx, key)
}
