// Package store keeps what must outlive a workflow, in a directory or in a bucket of S3: content by its
// digest, records that are written once, logs, and the audit trail. Workers and the CLI share it.
//
// Content that is put twice is the same, and what is read is compared with its digest. It decides nothing. Of
// intent it imports incarnation and bundle, whose content it reads back.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Store keeps what was compiled and rendered, immutable and by digest, with the few records that
// give such things a number or an owner. It is safe for concurrent use, also by several processes.
//
// Writing what is there already does nothing. Reading by digest checks the bytes. What is not
// there is a *NotFoundError. All other errors may pass if tried again, but a *CorruptError.
//
// A local directory outlives any process that is killed. It is not flushed to disk at each write:
// what a loss of power damages is noticed when read, and written again when put again.
type Store struct {
	url   string
	dir   string // set when it is a local directory
	blobs blobs
	cache *cache
}

// NotFoundError says that the store has no such thing.
type NotFoundError struct{ Key string }

// Error names the key.
func (e *NotFoundError) Error() string { return fmt.Sprintf("the store has no %s [not-found]", e.Key) }

// IsNotFound tells whether an error means that the store has no such thing.
func IsNotFound(err error) bool {
	var e *NotFoundError
	return errors.As(err, &e)
}

// CorruptError says that what the store has under a key is not what was written.
type CorruptError struct{ Key, Why string }

// Error names the key.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store's %s is damaged: %s; delete it and publish or release again [corrupt]", e.Key, e.Why)
}

// URL is where the store is: an absolute directory or a URL.
func (s *Store) URL() string { return s.url }

// Local tells whether only processes of this machine reach the store. Remote workers need another.
func (s *Store) Local() bool { return s.dir != "" || s.url == memoryURL }

// Reach refuses runtimes whose worker runs elsewhere when nobody elsewhere reaches the store.
func (s *Store) Reach(definitions []entities.RuntimeDefinition) error {
	for _, d := range definitions {
		if d.Remote && s.Local() {
			return &strict.Fault{
				Code: "store-out-of-reach", Message: fmt.Sprintf("runtime %s has its own worker (worker: remote), which cannot reach the store %s", d.Name, s.url),
				Expected: "a store that both reach, such as s3://bucket",
			}
		}
	}
	return nil
}

// Close releases what the store holds open.
func (s *Store) Close() error { return s.blobs.close() }

// blobs is the little that the store needs of a bucket. Keys are slashed paths of plain characters.
type blobs interface {
	// read returns a *NotFoundError when there is no such key.
	read(ctx context.Context, key string) ([]byte, error)
	// write is atomic: a reader sees all of it or nothing.
	write(ctx context.Context, key string, data []byte) error
	// create is write that changes nothing and returns false when the key exists. Of several at
	// once, one wins.
	create(ctx context.Context, key string, data []byte) (bool, error)
	// list returns the keys beginning with prefix, in order.
	list(ctx context.Context, prefix string) ([]string, error)
	// remove succeeds when there is no such key.
	remove(ctx context.Context, key string) error
	close() error
}
