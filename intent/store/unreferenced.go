package store

import (
	"context"
	"fmt"
	"strings"
)

// What nothing referred to when Collect looked is set aside before it is removed, and is found there as long as it is: whoever
// begins to refer to it just then brings it back by reading it (docs/decisions/0009-store-collects-unreferenced-content.md).

const unreferenced = "unreferenced/"

// content reads what is named by its digest: where it belongs, or where it was set aside, from where it is brought back with all
// that it names. A remote worker, which may not write, reads it all the same.
func (s *Store) content(ctx context.Context, key string) ([]byte, error) {
	data, err := s.blobs.read(ctx, key)
	if !IsNotFound(err) {
		return data, err
	}
	aside, missing := s.blobs.read(ctx, unreferenced+key)
	if IsNotFound(missing) {
		return s.blobs.read(ctx, key) // brought back between the two, or there is none
	}
	if missing == nil {
		missing = s.bringBack(ctx, key, aside)
	}
	if missing != nil && !IsReadOnly(missing) {
		return nil, missing
	}
	return aside, nil
}

// RenewIncarnation has an incarnation that was there before, and all that it names, stay: for whoever makes something refer to
// it again. What is put, and what is referred to already, stays by itself.
func (s *Store) RenewIncarnation(ctx context.Context, hash string) error {
	return s.renew(ctx, "incarnations/"+hash)
}

// RenewManifest does so for a manifest.
func (s *Store) RenewManifest(ctx context.Context, digest string) error {
	return s.renew(ctx, "manifests/"+digest)
}

// renew looks past what this process remembers. What is in its place has all that it names there, too: Collect sets things aside
// before what they name, and they are brought back after that.
func (s *Store) renew(ctx context.Context, key string) error {
	if there, err := s.blobs.exists(ctx, key); err != nil || there {
		return err
	}
	_, err := s.content(ctx, key)
	return err
}

func (s *Store) bringBack(ctx context.Context, key string, data []byte) error {
	aside, err := s.blobs.entries(ctx, unreferenced)
	if err != nil {
		return err
	}
	r := returning{s, contentsOf(aside), map[string]bool{}}
	return r.bring(ctx, key, data)
}

// returning is content on its way back.
type returning struct {
	store *Store
	aside map[string][]entry // by digest
	seen  map[string]bool
}

func (r *returning) bring(ctx context.Context, key string, data []byte) error {
	r.seen[key] = true
	for _, digest := range digestsIn(key, data) {
		for _, e := range r.aside[digest] {
			if err := r.named(ctx, strings.TrimPrefix(e.key, unreferenced)); err != nil {
				return err
			}
		}
	}
	_, err := r.store.blobs.create(ctx, key, data)
	return err
}

// named brings back what something names that comes back. When it was removed meanwhile that cannot come back either.
func (r *returning) named(ctx context.Context, key string) error {
	if r.seen[key] {
		return nil
	}
	data, err := r.store.blobs.read(ctx, unreferenced+key)
	if IsNotFound(err) {
		there, err := r.store.blobs.exists(ctx, key)
		if err == nil && !there {
			err = fmt.Errorf("the store's %s was not referred to for long, and is being removed just now: %w", key, &NotFoundError{key})
		}
		return err
	}
	if err != nil {
		return err
	}
	return r.bring(ctx, key, data)
}
