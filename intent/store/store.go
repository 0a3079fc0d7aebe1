// Package store holds the data that must outlive a workflow, in a directory or in an S3 bucket: content by its digest, records that are
// written once, logs, and the audit trail. Workers and the CLI share it.
//
// Putting the same content twice is idempotent, and reads verify the digest. The package makes no decisions. Of intent it imports
// incarnation and bundle, because it decodes their content.
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

// Store holds compiled and rendered content, immutable and by digest, and the few records that assign numbers and owners. It is safe for
// concurrent use, also by several processes.
//
// Writing existing content does nothing. Reading by digest verifies the bytes. Missing content is a *NotFoundError. All errors except a
// *CorruptError may succeed on a retry.
//
// A local directory survives a killed process. Writes are not flushed to disk. Reads detect damage by a power failure, and putting the
// content again repairs it.
type Store struct {
	url   string
	dir   string // set for a local directory
	blobs blobs
	cache *cache
	keys  *seal.Ring // for content with secrets; nil: none

	keepOpen bool

	tokensRemovedOn atomic.Value // the day of the last removal of old token records
}

// NotFoundError reports that the store has no such key.
type NotFoundError struct{ Key string }

// Error names the key.
func (e *NotFoundError) Error() string { return fmt.Sprintf("the store has no %s [not-found]", e.Key) }

// IsNotFound reports whether an error is a NotFoundError.
func IsNotFound(err error) bool {
	var e *NotFoundError
	return errors.As(err, &e)
}

// CorruptError reports that the content of a key differs from the content that was written.
type CorruptError struct{ Key, Reason string }

// Error names the key, and the remedy.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("the store's %s is damaged: %s; %s [corrupt]", e.Key, e.Reason, e.remedy())
}

// remedy returns how to restore the content, or how to continue without it.
func (e *CorruptError) remedy() string {
	folder, _, _ := strings.Cut(e.Key, "/")
	switch folder {
	case "versions":
		return "the meaning of that version is lost: use a new version; or delete this, and the name means the newest configuration"
	case "payloads":
		return "release the version again"
	case "states", "audit":
		return "restore it from a backup"
	}
	return "apply the configuration again to rewrite it, or restore it from a backup"
}

// IsDamaged reports whether an error is a CorruptError.
func IsDamaged(err error) bool {
	var e *CorruptError
	return errors.As(err, &e)
}

// URL returns the location of the store: an absolute directory or a URL.
func (s *Store) URL() string { return s.url }

// Local reports whether only processes on this machine can access the store. Remote workers need a shared one.
func (s *Store) Local() bool { return s.dir != "" || s.url == memoryURL }

// CheckReachable rejects runtimes with a remote worker if the store is local.
func (s *Store) CheckReachable(definitions []entities.RuntimeDefinition) error {
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

// Close releases the resources of the store.
func (s *Store) Close() error {
	if s.keepOpen {
		return nil
	}
	return s.blobs.close()
}

// KeepOpen makes Close do nothing: others use the store, and the last of them is not known.
func (s *Store) KeepOpen() { s.keepOpen = true }

// blobs is the bucket interface that the store needs. Keys are slash-separated paths of plain characters.
type blobs interface {
	// read returns a *NotFoundError if the key does not exist.
	read(ctx context.Context, key string) ([]byte, error)
	// write is atomic: a reader sees all of it or nothing.
	write(ctx context.Context, key string, data []byte) error
	// create writes only if the key does not exist, and otherwise returns false. Of concurrent calls, one wins.
	create(ctx context.Context, key string, data []byte) (bool, error)
	// list returns the keys beginning with prefix, in order.
	list(ctx context.Context, prefix string) ([]string, error)
	// remove succeeds if the key does not exist.
	remove(ctx context.Context, key string) error
	// exists is cheaper than read.
	exists(ctx context.Context, key string) (bool, error)
	// entries is list with the size and time of each key.
	entries(ctx context.Context, prefix string) ([]entry, error)
	// move moves content to another key and sets its time to now. During the move, and if it is interrupted, the content exists under at
	// least one of the keys.
	move(ctx context.Context, from, to string) error
	close() error
}

// entry is a key, its size in bytes, and its modification time.
type entry struct {
	key  string
	size int64
	at   time.Time
}

// PutIncarnation stores an incarnation and returns its hash.
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

// PutSpec stores a service spec and returns its digest.
func (s *Store) PutSpec(ctx context.Context, spec entities.Spec) (string, error) {
	return s.putJSON(ctx, "specs/", spec)
}

// Spec returns the service spec of a digest.
func (s *Store) Spec(ctx context.Context, digest string) (entities.Spec, error) {
	return getJSON[entities.Spec](ctx, s, "specs/", digest)
}

// PutManifest stores a manifest and returns its digest.
func (s *Store) PutManifest(ctx context.Context, manifest incarnation.Manifest) (string, error) {
	return s.putJSON(ctx, "manifests/", manifest)
}

// Manifest returns the manifest of a digest.
func (s *Store) Manifest(ctx context.Context, digest string) (incarnation.Manifest, error) {
	return getJSON[incarnation.Manifest](ctx, s, "manifests/", digest)
}

// PutPayload stores a payload and returns its digest.
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

// PutState stores bytes of a workflow's state and returns their digest.
func (s *Store) PutState(ctx context.Context, state []byte) (string, error) {
	digest := canonical.Hash(state)
	return digest, s.put(ctx, "states/"+digest, digest, state)
}

// CheckWritable returns an error if the store currently accepts no state.
func (s *Store) CheckWritable(ctx context.Context) error {
	return s.blobs.write(ctx, "states/"+canonical.Hash(nil), nil)
}

// State returns the bytes of a digest.
func (s *Store) State(ctx context.Context, digest string) ([]byte, error) {
	data, err := s.get(ctx, "states/"+digest, digest)
	return bytes.Clone(data), err
}

// putJSON stores the canonical JSON of a value under its digest (entities.DigestOf).
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

// put writes content once. It rewrites damaged content. It checks for existence in the store and not in the cache: the caller is about
// to refer to the content, and it may have been set aside in the meantime (collect.go).
func (s *Store) put(ctx context.Context, key, digest string, data []byte) error {
	if exists, err := s.has(ctx, key, digest); err == nil && exists {
		return nil
	}
	if err := s.blobs.write(ctx, key, data); err != nil {
		return err
	}
	s.cache.put(key, bytes.Clone(data), len(data))
	return nil
}

// putNew is put for content that probably does not exist yet. In that case it needs one request.
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

// get reads content and verifies its digest, a SHA-256 in hex.
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

// has reports whether content exists and is intact.
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

// isDigest reports whether a name has the form of a digest. Otherwise no such content exists.
func isDigest(name string) bool {
	raw, err := hex.DecodeString(name)
	return err == nil && len(raw) == sha256.Size
}

// checked verifies the digest of content, and caches it.
func (s *Store) checked(key, digest string, data []byte) error {
	if hash := canonical.Hash(data); hash != digest {
		return &CorruptError{key, "its content has the digest " + hash}
	}
	s.cache.put(key, data, len(data))
	return nil
}

// maxCached bounds the bytes in the cache of a store.
const maxCached = 32 << 20

// cache is an LRU cache of immutable values. Its values are shared and must not be modified.
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

// put caches a value of a size, unless it is too large.
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

// drop removes a value.
func (c *cache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, known := c.byKey[key]; known {
		c.size -= c.recency.Remove(e).(cached).size
		delete(c.byKey, key)
	}
}
