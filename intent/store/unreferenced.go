package store

import (
	"context"
	"fmt"
	"strings"
)

// Collect sets unreferenced content aside before it removes it. Set-aside content can still be read. Reading it restores it, which
// protects a writer that begins to refer to it at the same time (docs/decisions/0009-store-collects-unreferenced-content.md).

const unreferenced = "unreferenced/"

// content reads content by its key. If the content is set aside, it restores that and everything that it refers to. A remote worker
// cannot write, so it only reads the set-aside content.
func (s *Store) content(ctx context.Context, key string) ([]byte, error) {
	data, err := s.blobs.read(ctx, key)
	if !IsNotFound(err) {
		return data, err
	}
	aside, asideErr := s.blobs.read(ctx, unreferenced+key)
	if IsNotFound(asideErr) {
		return s.blobs.read(ctx, key) // restored between the two reads, or it does not exist
	}
	if asideErr == nil {
		asideErr = s.restoreAside(ctx, key, aside)
	}
	if asideErr != nil && !IsReadOnly(asideErr) {
		return nil, asideErr
	}
	return aside, nil
}

// RenewIncarnation keeps an existing incarnation and everything that it refers to. Call it before you refer to an incarnation again.
// Content that is put or already referenced stays without it.
func (s *Store) RenewIncarnation(ctx context.Context, hash string) error {
	return s.renew(ctx, "incarnations/"+hash)
}

// RenewManifest does the same for a manifest.
func (s *Store) RenewManifest(ctx context.Context, digest string) error {
	return s.renew(ctx, "manifests/"+digest)
}

// renew bypasses the cache. Content in its place has all its references in place, too: Collect sets content aside before the content
// that it refers to, and restoring uses the reverse order.
func (s *Store) renew(ctx context.Context, key string) error {
	if exists, err := s.blobs.exists(ctx, key); err != nil || exists {
		return err
	}
	_, err := s.content(ctx, key)
	return err
}

func (s *Store) restoreAside(ctx context.Context, key string, data []byte) error {
	aside, err := s.blobs.entries(ctx, unreferenced)
	if err != nil {
		return err
	}
	r := restoration{s, contentsOf(aside), map[string]bool{}}
	return r.restore(ctx, key, data)
}

// restoration is a restore of set-aside content.
type restoration struct {
	store *Store
	aside map[string][]entry // by digest
	seen  map[string]bool
}

func (r *restoration) restore(ctx context.Context, key string, data []byte) error {
	r.seen[key] = true
	for _, digest := range digestsIn(key, data) {
		for _, e := range r.aside[digest] {
			if err := r.restoreReferenced(ctx, strings.TrimPrefix(e.key, unreferenced)); err != nil {
				return err
			}
		}
	}
	_, err := r.store.blobs.create(ctx, key, data)
	return err
}

// restoreReferenced restores everything that restored content refers to. If a reference was removed in the meantime, the restore fails.
func (r *restoration) restoreReferenced(ctx context.Context, key string) error {
	if r.seen[key] {
		return nil
	}
	data, err := r.store.blobs.read(ctx, unreferenced+key)
	if IsNotFound(err) {
		exists, err := r.store.blobs.exists(ctx, key)
		if err == nil && !exists {
			err = fmt.Errorf("the store's %s has had no references for long, and is being removed: %w", key, &NotFoundError{key})
		}
		return err
	}
	if err != nil {
		return err
	}
	return r.restore(ctx, key, data)
}
