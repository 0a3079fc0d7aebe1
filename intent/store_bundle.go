package intent

import "context"

// PutBundle keeps a bundle under its digest.
func (s *Store) PutBundle(ctx context.Context, bundle Bundle) error {
	return s.put(ctx, bundleKey(bundle.Digest()), bundle.Digest(), bundle.Bytes())
}

// Bundle returns the bundle of a digest.
func (s *Store) Bundle(ctx context.Context, digest string) (Bundle, error) {
	data, err := s.get(ctx, bundleKey(digest), digest)
	if err != nil {
		return Bundle{}, err
	}
	return Bundle{data: data, digest: digest}, nil
}

func bundleKey(digest string) string { return "bundles/" + digest }
