package store

import (
	"bytes"
	"context"
	"crypto/rand"
)

// probes is the folder of what Probe writes.
const probes = "probes/"

// probeSize is as much as a larger checkpoint, in bytes.
const probeSize = 64 << 10

// Probe writes something to the store, reads it, and removes it. It returns the first error.
func (s *Store) Probe(ctx context.Context) error {
	data := make([]byte, probeSize)
	_, _ = rand.Read(data) // never fails (crypto/rand)
	key := probes + rand.Text()
	err := s.blobs.write(ctx, key, data)
	if err == nil {
		var found []byte
		if found, err = s.blobs.read(ctx, key); err == nil && !bytes.Equal(found, data) {
			err = &CorruptError{Key: key, Reason: "it differs from what was written"}
		}
	}
	if removed := s.blobs.remove(ctx, key); err == nil {
		err = removed
	}
	return err
}
