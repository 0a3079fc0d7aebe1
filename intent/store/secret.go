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

// digestKey is the secret for digests of secrets. It is created once and does not change with the encryption keys. Otherwise each key
// change would rename all content and release it.
const digestKey = "keys/digest"

// SecretDigest returns the function that names content with secrets. It is nil if the store has no key; then the name is a SHA-256, and
// the content is not encrypted. A store that ever had a key cannot be written without one.
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
	if !s.keys.SealedWithNewest(raw) {
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
	return s.blobs.read(ctx, digestKey) // another process was faster
}

// open decrypts the content of a key of the store.
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

// PutBundle stores a bundle under its digest. It encrypts a bundle with secrets if the store has a key. It writes a bundle again that is
// encrypted with an older key.
func (s *Store) PutBundle(ctx context.Context, b bundle.Bundle) error {
	key := "bundles/" + b.Digest()
	if !b.Secret() || s.keys == nil {
		return s.put(ctx, key, b.Digest(), b.Bytes())
	}
	raw, err := s.blobs.read(ctx, key)
	if err == nil && s.keys.SealedWithNewest(raw) {
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

// Bundle returns the bundle of a digest. Encryption authenticates the digest, so an encrypted bundle under that name is unchanged.
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

// Rekey encrypts all encrypted content with the newest key. It returns the number of rewritten bundles, and the errors of damaged ones,
// which it does not change.
func (s *Store) Rekey(ctx context.Context) (written int, damaged []error, err error) {
	if s.keys == nil {
		return 0, nil, errors.New("no key is given; set CONVERGE_STORE_KEY to the keys, the newest first")
	}
	if _, err := s.SecretDigest(ctx); err != nil {
		return 0, nil, err
	}
	rekey := func(key string, raw []byte) error {
		if !seal.Is(raw) || s.keys.SealedWithNewest(raw) {
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
