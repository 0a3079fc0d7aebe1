package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// remotely are the folders that a worker of a remote runtime writes: its claims, what its commands printed, what the workers of its runtime
// watch, and who of them is there. What others watch, and who reads it, is not its own.
func remotely(runtime string) []string {
	queue := protocol.RuntimeTaskQueue(runtime)
	return []string{"fence/", "logs/", watched + queue + "/", rounds + queue + "/"}
}

// ReadOnlyError says that this process may not write there.
type ReadOnlyError struct {
	Key string
	// Own are the folders where it may.
	Own []string
}

// Error names the key, and where it may write.
func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("a remote worker does not write %s: %s only [read-only]", e.Key, strings.Join(e.Own, ", "))
}

// IsReadOnly reports whether an error means that this process may not write there.
func IsReadOnly(err error) bool {
	var e *ReadOnlyError
	return errors.As(err, &e)
}

// Remotely has this process write and remove only what a worker of a remote runtime has to, whatever it is asked for. It keeps to that what
// Converge does there, not the process: that takes a policy of the bucket (docs/operating.md).
func (s *Store) Remotely(runtime string) { s.blobs = limited{s.blobs, remotely(runtime)} }

// limited is blobs of which only some are written.
type limited struct {
	blobs
	own []string // folders
}

func (l limited) allowed(key string) error {
	of := func(folder string) bool { return strings.HasPrefix(key, folder) && !strings.Contains(key, "..") }
	if slices.ContainsFunc(l.own, of) {
		return nil
	}
	return &ReadOnlyError{key, l.own}
}

func (l limited) write(ctx context.Context, key string, data []byte) error {
	if err := l.allowed(key); err != nil {
		return err
	}
	return l.blobs.write(ctx, key, data)
}

func (l limited) create(ctx context.Context, key string, data []byte) (bool, error) {
	if err := l.allowed(key); err != nil {
		return false, err
	}
	return l.blobs.create(ctx, key, data)
}

func (l limited) remove(ctx context.Context, key string) error {
	if err := l.allowed(key); err != nil {
		return err
	}
	return l.blobs.remove(ctx, key)
}

func (l limited) move(ctx context.Context, from, to string) error {
	for _, key := range []string{from, to} {
		if err := l.allowed(key); err != nil {
			return err
		}
	}
	return l.blobs.move(ctx, from, to)
}
