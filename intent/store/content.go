package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

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
	return s.putJSON(ctx, "payloads/", payload)
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

// State returns the bytes of a digest.
func (s *Store) State(ctx context.Context, digest string) ([]byte, error) {
	data, err := s.get(ctx, "states/"+digest, digest)
	return bytes.Clone(data), err
}

// putJSON keeps a value under entities.DigestOf it, as the bytes that the digest is of.
func (s *Store) putJSON(ctx context.Context, folder string, v any) (string, error) {
	digest := entities.DigestOf(v)
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return "", fmt.Errorf("write %s%s to the store: %w", folder, digest, err)
	}
	return digest, s.put(ctx, folder+digest, digest, b.Bytes())
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

// put writes content once. What is there and damaged is written again.
func (s *Store) put(ctx context.Context, key, digest string, data []byte) error {
	if _, err := s.get(ctx, key, digest); err == nil {
		return nil
	}
	if err := s.blobs.write(ctx, key, data); err != nil {
		return err
	}
	s.cache.put(key, bytes.Clone(data), len(data))
	return nil
}

// get reads content and checks it against its digest, a SHA-256 in hex or the beginning of one.
func (s *Store) get(ctx context.Context, key, digest string) ([]byte, error) {
	if data, ok := s.cache.get(key); ok {
		return data.([]byte), nil
	}
	if raw, err := hex.DecodeString(digest); err != nil || len(raw) < 8 || len(raw) > sha256.Size {
		return nil, &NotFoundError{key}
	}
	data, err := s.blobs.read(ctx, key)
	if err != nil {
		return nil, err
	}
	if hash := canonical.Hash(data); hash[:len(digest)] != digest {
		return nil, &CorruptError{key, "its content has the digest " + hash[:len(digest)]}
	}
	s.cache.put(key, data, len(data))
	return data, nil
}

// PutBundle keeps a bundle under its digest.
func (s *Store) PutBundle(ctx context.Context, b bundle.Bundle) error {
	return s.put(ctx, bundleKey(b.Digest()), b.Digest(), b.Bytes())
}

// Bundle returns the bundle of a digest.
func (s *Store) Bundle(ctx context.Context, digest string) (bundle.Bundle, error) {
	data, err := s.get(ctx, bundleKey(digest), digest)
	if err != nil {
		return bundle.Bundle{}, err
	}
	return bundle.Stored(data, digest), nil
}

func bundleKey(digest string) string { return "bundles/" + digest }
