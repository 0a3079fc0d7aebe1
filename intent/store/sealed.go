package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/converge-engine/converge/intent/internal/canonical"
)

// A record is a JSON object written once, whose last field is the digest of the object without that field.
const sealField = `,"digest":"`

// createRecord writes a record if there is none, and returns the one that stands. Fits tells that a record is the one
// of its key.
func createRecord[T any](ctx context.Context, s *Store, key string, record T, fits func(T) bool) (T, bool, error) {
	if stands, err := readRecord(ctx, s, key, fits); !IsNotFound(err) {
		return stands, false, err
	}
	return writeRecord(ctx, s, key, record, fits)
}

// writeRecord is createRecord of what is likely not there yet.
func writeRecord[T any](ctx context.Context, s *Store, key string, record T, fits func(T) bool) (T, bool, error) {
	data, err := sealed(key, record)
	if err != nil {
		return record, false, err
	}
	created, err := s.blobs.create(ctx, key, data)
	if created {
		s.cache.put(key, data, len(data))
	}
	if created || err != nil {
		return record, created, err
	}
	stands, err := readRecord(ctx, s, key, fits)
	return stands, false, err
}

// mend writes a record in the place of one that is damaged.
func (s *Store) mend(ctx context.Context, key string, record any) error {
	data, err := sealed(key, record)
	if err != nil {
		return err
	}
	return s.blobs.write(ctx, key, data)
}

// readRecord reads a record that is written once. What is damaged is not remembered: it may be mended.
func readRecord[T any](ctx context.Context, s *Store, key string, fits func(T) bool) (T, error) {
	data, known := s.cache.get(key)
	if !known {
		return fetchRecord(ctx, s, key, fits)
	}
	return recordOf(key, data.([]byte), fits)
}

// fetchRecord is readRecord of what the store has now, though it was read before: somebody may have removed it since.
func fetchRecord[T any](ctx context.Context, s *Store, key string, fits func(T) bool) (T, error) {
	var record T
	raw, err := s.blobs.read(ctx, key)
	if err != nil {
		return record, err
	}
	if !unbroken(raw) {
		return record, &CorruptError{key, "its content is not what its digest says"}
	}
	if record, err = recordOf(key, raw, fits); err == nil {
		s.cache.put(key, raw, len(raw))
	}
	return record, err
}

func recordOf[T any](key string, raw []byte, fits func(T) bool) (record T, err error) {
	if err := json.Unmarshal(raw, &record); err != nil || !fits(record) {
		return record, &CorruptError{key, "it is no record of that name"}
	}
	return record, nil
}

// sealed are the bytes of a record, its digest included.
func sealed(key string, record any) ([]byte, error) {
	data, err := json.Marshal(record)
	if err != nil || len(data) < 2 || data[len(data)-1] != '}' {
		return nil, fmt.Errorf("write %s to the store: %w", key, err)
	}
	out := append(bytes.Clone(data[:len(data)-1]), sealField+canonical.Hash(data)+`"}`...)
	return out, nil
}

// unbroken tells that a record has the digest that it names.
func unbroken(data []byte) bool {
	const length = 2 * 32 // of a digest in hex
	at := len(data) - len(sealField) - length - len(`"}`)
	if at < 1 || !bytes.HasPrefix(data[at:], []byte(sealField)) {
		return false
	}
	digest := string(data[at+len(sealField) : at+len(sealField)+length])
	return canonical.Hash(append(bytes.Clone(data[:at]), '}')) == digest
}

// isSealed tells that a JSON object names a digest: one that is written again and again does not.
func isSealed(data []byte) bool {
	var record struct{ Digest *string }
	return json.Unmarshal(data, &record) != nil || record.Digest != nil
}
