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

// createRecord writes a record if none exists, and returns the stored one. The function matches reports whether a record matches its key.
func createRecord[T any](ctx context.Context, s *Store, key string, record T, matches func(T) bool) (T, bool, error) {
	if stored, err := readRecord(ctx, s, key, matches); !IsNotFound(err) {
		return stored, false, err
	}
	return writeRecord(ctx, s, key, record, matches)
}

// writeRecord is createRecord for a record that probably does not exist yet.
func writeRecord[T any](ctx context.Context, s *Store, key string, record T, matches func(T) bool) (T, bool, error) {
	data, err := sealRecord(key, record)
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
	stored, err := readRecord(ctx, s, key, matches)
	return stored, false, err
}

// rewriteRecord replaces a damaged record.
func (s *Store) rewriteRecord(ctx context.Context, key string, record any) error {
	data, err := sealRecord(key, record)
	if err != nil {
		return err
	}
	return s.blobs.write(ctx, key, data)
}

// readRecord reads a record that is written once. It does not cache a damaged record, because that may be repaired.
func readRecord[T any](ctx context.Context, s *Store, key string, matches func(T) bool) (T, error) {
	data, known := s.cache.get(key)
	if !known {
		return fetchRecord(ctx, s, key, matches)
	}
	return recordOf(key, data.([]byte), matches)
}

// fetchRecord is readRecord without the cache, because another process may have removed the record.
func fetchRecord[T any](ctx context.Context, s *Store, key string, matches func(T) bool) (T, error) {
	var record T
	raw, err := s.blobs.read(ctx, key)
	if err != nil {
		return record, err
	}
	if !isIntact(raw) {
		return record, &CorruptError{key, "its content does not match its digest"}
	}
	if record, err = recordOf(key, raw, matches); err == nil {
		s.cache.put(key, raw, len(raw))
	}
	return record, err
}

func recordOf[T any](key string, raw []byte, matches func(T) bool) (record T, err error) {
	if err := json.Unmarshal(raw, &record); err != nil || !matches(record) {
		return record, &CorruptError{key, "it is not a record of that name"}
	}
	return record, nil
}

// sealRecord returns the bytes of a record including its digest.
func sealRecord(key string, record any) ([]byte, error) {
	data, err := json.Marshal(record)
	if err != nil || len(data) < 2 || data[len(data)-1] != '}' {
		return nil, fmt.Errorf("write %s to the store: %w", key, err)
	}
	out := append(bytes.Clone(data[:len(data)-1]), sealField+canonical.Hash(data)+`"}`...)
	return out, nil
}

// isIntact reports whether a record matches its digest.
func isIntact(data []byte) bool {
	const length = 2 * 32 // length of a digest in hex
	at := len(data) - len(sealField) - length - len(`"}`)
	if at < 1 || !bytes.HasPrefix(data[at:], []byte(sealField)) {
		return false
	}
	digest := string(data[at+len(sealField) : at+len(sealField)+length])
	return canonical.Hash(append(bytes.Clone(data[:at]), '}')) == digest
}

// isSealed reports whether a JSON object contains a digest. Records that are rewritten do not.
func isSealed(data []byte) bool {
	var record struct{ Digest *string }
	return json.Unmarshal(data, &record) != nil || record.Digest != nil
}
