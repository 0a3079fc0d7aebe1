package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/internal/seal"
)

// digestKey is the secret that digests of secrets are made with. It is made once and stays when keys are changed, or each
// change would name all content anew and release it.
const digestKey = "keys/digest"

// SecretDigest is how content that holds secrets is named, which is nil where the store has no key: by its SHA-256 then, and
// in clear. A store that has once been given a key is not written to without.
func (s *Store) SecretDigest(ctx context.Context) (func(content []byte) string, error) {
	raw, err := s.blobs.read(ctx, digestKey)
	switch {
	case IsNotFound(err) && s.keys == nil:
		return nil, nil
	case IsNotFound(err):
		if raw, err = s.newDigestKey(ctx); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	secret, err := s.open(digestKey, raw)
	if err != nil {
		return nil, err
	}
	if !s.keys.Newest(raw) {
		if err := s.blobs.write(ctx, digestKey, s.keys.Seal(digestKey, secret)); err != nil {
			return nil, err
		}
	}
	return func(content []byte) string { return seal.Digest(secret, content) }, nil
}

func (s *Store) newDigestKey(ctx context.Context) ([]byte, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	if _, err := s.blobs.create(ctx, digestKey, s.keys.Seal(digestKey, secret)); err != nil {
		return nil, err
	}
	return s.blobs.read(ctx, digestKey) // of somebody who was faster
}

// open decrypts what lies under a key of the store.
func (s *Store) open(key string, raw []byte) ([]byte, error) {
	plain, err := s.keys.Open(key, raw)
	if errors.Is(err, seal.ErrBroken) {
		return nil, &CorruptError{key, err.Error()}
	}
	if err != nil {
		return nil, fmt.Errorf("the store's %s: %w", key, err)
	}
	return plain, nil
}

// PutBundle keeps a bundle under its digest: encrypted where it holds secrets and the store has a key. One that is encrypted
// with an older key is written again.
func (s *Store) PutBundle(ctx context.Context, b bundle.Bundle) error {
	key := "bundles/" + b.Digest()
	if !b.Secret() || s.keys == nil {
		return s.put(ctx, key, b.Digest(), b.Bytes())
	}
	raw, err := s.blobs.read(ctx, key)
	if err == nil && s.keys.Newest(raw) {
		if _, err := s.open(key, raw); err == nil {
			return nil
		}
	}
	if err := s.blobs.write(ctx, key, s.keys.Seal(key, b.Bytes())); err != nil {
		return err
	}
	s.cache.put(key, b.Bytes(), len(b.Bytes()))
	return nil
}

// Bundle returns the bundle of a digest. One that is encrypted under the name of its digest is what it was when it was named.
func (s *Store) Bundle(ctx context.Context, digest string) (bundle.Bundle, error) {
	key := "bundles/" + digest
	if data, ok := s.cache.get(key); ok {
		return bundle.Stored(data.([]byte), digest), nil
	}
	if !isDigest(digest) {
		return bundle.Bundle{}, &NotFoundError{key}
	}
	data, err := s.content(ctx, key)
	switch {
	case err != nil:
	case !seal.Is(data):
		err = s.checked(key, digest, data)
	default:
		if data, err = s.open(key, data); err == nil {
			s.cache.put(key, data, len(data))
		}
	}
	if err != nil {
		return bundle.Bundle{}, err
	}
	return bundle.Stored(data, digest), nil
}

// Rekey encrypts all that is encrypted with the newest key, and returns how many bundles that were, and what is wrong with those
// that are damaged, which are left as they are.
func (s *Store) Rekey(ctx context.Context) (written int, damaged []error, err error) {
	if s.keys == nil {
		return 0, nil, errors.New("no key is named; name them by CONVERGE_STORE_KEY, the newest first")
	}
	if _, err := s.SecretDigest(ctx); err != nil {
		return 0, nil, err
	}
	rekey := func(key string, raw []byte) error {
		if !seal.Is(raw) || s.keys.Newest(raw) {
			return nil
		}
		name := strings.TrimPrefix(key, unreferenced)
		plain, err := s.open(name, raw)
		if IsDamaged(err) {
			damaged = append(damaged, err)
			return nil
		}
		if err == nil {
			err = s.blobs.write(ctx, key, s.keys.Seal(name, plain))
		}
		if err == nil {
			written++
		}
		return err
	}
	for _, folder := range []string{"bundles/", unreferenced + "bundles/"} {
		if err = s.eachIn(ctx, folder, rekey); err != nil {
			break
		}
	}
	return written, damaged, err
}
