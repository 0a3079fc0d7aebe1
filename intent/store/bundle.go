package store

import (
	"context"

	"github.com/converge-engine/converge/intent/bundle"
)

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
