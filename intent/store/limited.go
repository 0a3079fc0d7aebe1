package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// remotely returns the folders that a worker of a remote runtime may write: its claims, the output of its commands, the instances that
// its runtime watches, and the heartbeats of the workers of its runtime. The records of other queues are read-only for it.
func remotely(runtime string) []string {
	queue := protocol.RuntimeTaskQueue(runtime)
	return []string{"fence/", "logs/", watched + queue + "/", rounds + queue + "/"}
}

// ReadOnlyError reports that this process may not write a key.
type ReadOnlyError struct {
	Key string
	// Own lists the folders that it may write.
	Own []string
}

// Error names the key and the folders that may be written.
func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("a remote worker does not write %s: %s only [read-only]", e.Key, strings.Join(e.Own, ", "))
}

// IsReadOnly reports whether an error is a ReadOnlyError.
func IsReadOnly(err error) bool {
	var e *ReadOnlyError
	return errors.As(err, &e)
}

// Remotely limits writes and removals of this process to the folders that a worker of a remote runtime needs. It limits only Converge's
// own code; a compromised process needs a policy of the bucket (docs/operating.md).
func (s *Store) Remotely(runtime string) { s.blobs = limited{s.blobs, remotely(runtime)} }

// limited implements blobs in which only some folders can be written.
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
