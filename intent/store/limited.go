package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// remoteFolders returns the folders that a worker of a remote runtime may write: its claims, the output of its commands, the instances that
// its runtime watches, and the heartbeats of the workers of its runtime. The records of other queues are read-only for it.
func remoteFolders(runtime string) []string {
	queue := protocol.RuntimeTaskQueue(runtime)
	return []string{"fence/", "logs/", watched + queue + "/", heartbeats + queue + "/"}
}

// ReadOnlyError reports that this process may not write a key.
type ReadOnlyError struct {
	Key string
	// Writable lists the folders that it may write.
	Writable []string
}

// Error names the key and the folders that may be written.
func (e *ReadOnlyError) Error() string {
	return fmt.Sprintf("a remote worker does not write %s: %s only [read-only]", e.Key, strings.Join(e.Writable, ", "))
}

// IsReadOnly reports whether an error is a ReadOnlyError.
func IsReadOnly(err error) bool {
	var e *ReadOnlyError
	return errors.As(err, &e)
}

// RestrictToRemote limits writes and removals of this process to the folders that a worker of a remote runtime needs. It limits only
// Converge's own code; a compromised process needs a policy of the bucket (docs/workers.md, Remote workers).
func (s *Store) RestrictToRemote(runtime string) {
	s.blobs = writeRestricted{s.blobs, remoteFolders(runtime)}
}

// writeRestricted implements blobs in which only some folders can be written.
type writeRestricted struct {
	blobs
	writable []string // folders
}

func (l writeRestricted) checkWritable(key string) error {
	of := func(folder string) bool { return strings.HasPrefix(key, folder) && !strings.Contains(key, "..") }
	if slices.ContainsFunc(l.writable, of) {
		return nil
	}
	return &ReadOnlyError{key, l.writable}
}

func (l writeRestricted) write(ctx context.Context, key string, data []byte) error {
	if err := l.checkWritable(key); err != nil {
		return err
	}
	return l.blobs.write(ctx, key, data)
}

func (l writeRestricted) create(ctx context.Context, key string, data []byte) (bool, error) {
	if err := l.checkWritable(key); err != nil {
		return false, err
	}
	return l.blobs.create(ctx, key, data)
}

func (l writeRestricted) remove(ctx context.Context, key string) error {
	if err := l.checkWritable(key); err != nil {
		return err
	}
	return l.blobs.remove(ctx, key)
}

func (l writeRestricted) move(ctx context.Context, from, to string) error {
	for _, key := range []string{from, to} {
		if err := l.checkWritable(key); err != nil {
			return err
		}
	}
	return l.blobs.move(ctx, from, to)
}
