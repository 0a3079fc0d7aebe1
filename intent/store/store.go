// Package store keeps what must outlive a workflow, in a directory or in a bucket of S3: content by its
// digest, records that are written once, logs, and the audit trail. Workers and the CLI share it.
//
// Content that is put twice is the same, and what is read is compared with its digest. It decides nothing. Of
// intent it imports incarnation and bundle, whose content it reads back.
package store

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/seal"
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
	keys  *seal.Ring // of what holds secrets; nil: none

	forgotten atomic.Value // the day on which records of old tokens were removed
}

// NotFoundError says that the store has no such thing.
type NotFoundError struct{ Key string }

// Error names the key.
func (e *NotFoundError) Error() string { return fmt.Sprintf("the store has no %s [not-found]", e.Key) }

// IsNotFound reports whether an error means that the store has no such thing.
func IsNotFound(err error) bool {
	var e *NotFoundError
	return errors.As(err, &e)
}

// CorruptError says that what the store has under a key is not what was written.
type CorruptError struct{ Key, Why string }

// Error names the key, and says what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store's %s is damaged: %s; %s [corrupt]", e.Key, e.Why, e.remedy())
}

// remedy is what brings back what the key was of, or what to do without it.
func (e *CorruptError) remedy() string {
	folder, _, _ := strings.Cut(e.Key, "/")
	switch folder {
	case "versions":
		return "what that version means is lost: name a new version; or delete this, and the name means the newest configuration"
	case "payloads":
		return "release the version again"
	case "states", "audit":
		return "restore it from a backup"
	}
	return "apply the configuration again, which writes it again, or restore it from a backup"
}

// IsDamaged reports whether an error means that what the store has is not what was written.
func IsDamaged(err error) bool {
	var e *CorruptError
	return errors.As(err, &e)
}

// URL is where the store is: an absolute directory or a URL.
func (s *Store) URL() string { return s.url }

// Local reports whether only processes of this machine reach the store. Remote workers need another.
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
	// exists is cheaper than read.
	exists(ctx context.Context, key string) (bool, error)
	// entries is list with what is known of each key, in order.
	entries(ctx context.Context, prefix string) ([]entry, error)
	// move has the content of a key under another one, as if it were written there now. While it goes on, and when it is cut off,
	// the content is under one of them at least.
	move(ctx context.Context, from, to string) error
	close() error
}

// entry is a key, how many bytes lie there, and since when.
type entry struct {
	key  string
	size int64
	at   time.Time
}

// PutIncarnation keeps an incarnation and returns its hash.
func (s *Store) PutIncarnation(ctx context.Context, inc *incarnation.Incarnation) (string, error) {
	hash := inc.Hash()
	return hash, s.put(ctx, "incarnations/"+hash, hash, inc.Bytes())
}

// Incarnation returns the incarnation of a hash (D5).
func (s *Store) Incarnation(ctx context.Context, hash string) (*incarnation.Incarnation, error) {
	key := "incarnations/" + hash
	if inc, ok := s.cache.get("parsed/" + key); ok {
		return inc.(*incarnation.Incarnation), nil
	}
	data, err := s.get(ctx, key, hash)
	if err != nil {
		return nil, err
	}
	inc, err := incarnation.Parse(data)
	if err != nil {
		return nil, err
	}
	s.cache.put("parsed/"+key, inc, 4*len(data))
	return inc, nil
}

// PutSpec keeps a service spec and returns its digest.
func (s *Store) PutSpec(ctx context.Context, spec entities.Spec) (string, error) {
	return s.putJSON(ctx, "specs/", spec)
}

// Spec returns the service spec of a digest.
func (s *Store) Spec(ctx context.Context, digest string) (entities.Spec, error) {
	return getJSON[entities.Spec](ctx, s, "specs/", digest)
}

// PutManifest keeps a manifest and returns its digest.
func (s *Store) PutManifest(ctx context.Context, manifest incarnation.Manifest) (string, error) {
	return s.putJSON(ctx, "manifests/", manifest)
}

// Manifest returns the manifest of a digest.
func (s *Store) Manifest(ctx context.Context, digest string) (incarnation.Manifest, error) {
	return getJSON[incarnation.Manifest](ctx, s, "manifests/", digest)
}

// PutPayload keeps a payload and returns its digest.
func (s *Store) PutPayload(ctx context.Context, payload entities.Payload) (string, error) {
	digest := entities.DigestOf(payload)
	data, err := encoded("payloads/", digest, payload)
	if err != nil {
		return digest, err
	}
	return digest, s.putNew(ctx, "payloads/"+digest, digest, data)
}

// Payload returns the payload of a digest.
func (s *Store) Payload(ctx context.Context, digest string) (entities.Payload, error) {
	return getJSON[entities.Payload](ctx, s, "payloads/", digest)
}

// PutState keeps bytes of a workflow's state and returns their digest.
func (s *Store) PutState(ctx context.Context, state []byte) (string, error) {
	digest := canonical.Hash(state)
	return digest, s.put(ctx, "states/"+digest, digest, state)
}

// TakesState fails if the store does not take any state now.
func (s *Store) TakesState(ctx context.Context) error {
	return s.blobs.write(ctx, "states/"+canonical.Hash(nil), nil)
}

// State returns the bytes of a digest.
func (s *Store) State(ctx context.Context, digest string) ([]byte, error) {
	data, err := s.get(ctx, "states/"+digest, digest)
	return bytes.Clone(data), err
}

// putJSON keeps a value under entities.DigestOf it, as the bytes that the digest is of.
func (s *Store) putJSON(ctx context.Context, folder string, v any) (string, error) {
	digest := entities.DigestOf(v)
	data, err := encoded(folder, digest, v)
	if err != nil {
		return digest, err
	}
	return digest, s.put(ctx, folder+digest, digest, data)
}

func encoded(folder, digest string, v any) ([]byte, error) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return nil, fmt.Errorf("write %s%s to the store: %w", folder, digest, err)
	}
	return b.Bytes(), nil
}

func getJSON[T any](ctx context.Context, s *Store, folder, digest string) (T, error) {
	var v T
	data, err := s.get(ctx, folder+digest, digest)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return v, &CorruptError{folder + digest, err.Error()}
	}
	return v, nil
}

// put writes content once. What is there and damaged is written again. That it is there is looked up whatever this process
// remembers: whoever puts something is about to refer to it, and it may have been set aside since (collect.go).
func (s *Store) put(ctx context.Context, key, digest string, data []byte) error {
	if there, err := s.has(ctx, key, digest); err == nil && there {
		return nil
	}
	if err := s.blobs.write(ctx, key, data); err != nil {
		return err
	}
	s.cache.put(key, bytes.Clone(data), len(data))
	return nil
}

// putNew is put of what is likely not there yet: one request where that is so.
func (s *Store) putNew(ctx context.Context, key, digest string, data []byte) error {
	created, err := s.blobs.create(ctx, key, data)
	switch {
	case err != nil:
		return err
	case !created:
		return s.put(ctx, key, digest, data)
	}
	s.cache.put(key, data, len(data))
	return nil
}

// get reads content and checks it against its digest, a SHA-256 in hex.
func (s *Store) get(ctx context.Context, key, digest string) ([]byte, error) {
	if data, ok := s.cache.get(key); ok {
		return data.([]byte), nil
	}
	if !isDigest(digest) {
		return nil, &NotFoundError{key}
	}
	data, err := s.content(ctx, key)
	if err != nil {
		return nil, err
	}
	return data, s.checked(key, digest, data)
}

// has tells whether content is there and whole.
func (s *Store) has(ctx context.Context, key, digest string) (bool, error) {
	if _, known := s.cache.get(key); known {
		return s.blobs.exists(ctx, key)
	}
	data, err := s.blobs.read(ctx, key)
	if err != nil {
		return false, err
	}
	return true, s.checked(key, digest, data)
}

// isDigest tells whether content can be named so: otherwise there is none.
func isDigest(name string) bool {
	raw, err := hex.DecodeString(name)
	return err == nil && len(raw) == sha256.Size
}

// checked compares content that was read with its digest, and remembers it.
func (s *Store) checked(key, digest string, data []byte) error {
	if hash := canonical.Hash(data); hash != digest {
		return &CorruptError{key, "its content has the digest " + hash}
	}
	s.cache.put(key, data, len(data))
	return nil
}

// maxCached bounds the bytes that a store holds in memory.
const maxCached = 32 << 20

// cache holds things that never change, the least recently used ones dropped first. What is in it
// is shared and must not be edited.
type cache struct {
	mu      sync.Mutex
	size    int
	byKey   map[string]*list.Element
	recency *list.List // most recent first
}

type cached struct {
	key  string
	v    any
	size int
}

func newCache() *cache { return &cache{byKey: map[string]*list.Element{}, recency: list.New()} }

func (c *cache) get(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil, false
	}
	c.recency.MoveToFront(e)
	return e.Value.(cached).v, true
}

// put keeps a thing of a size; one too large to be worth it is not kept.
func (c *cache) put(key string, v any, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != nil || size > maxCached/4 {
		return
	}
	c.byKey[key] = c.recency.PushFront(cached{key, v, size})
	c.size += size
	for c.size > maxCached {
		oldest := c.recency.Remove(c.recency.Back()).(cached)
		delete(c.byKey, oldest.key)
		c.size -= oldest.size
	}
}

// drop forgets a thing.
func (c *cache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, known := c.byKey[key]; known {
		c.size -= c.recency.Remove(e).(cached).size
		delete(c.byKey, key)
	}
}
