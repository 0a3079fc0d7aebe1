package store

import (
	"bytes"
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
)

// This file reads raw audit trails, to verify and to continue them.

// RawAudit returns everything that is stored of the audit trail of a service, or of an application if service is empty, in no
// particular order, and the errors of unreadable parts. It keeps duplicates.
func (s *Store) RawAudit(ctx context.Context, application, service string) (lines []entities.StoredEntry, damaged []error, err error) {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return nil, nil, err
	}
	parts, failed, err := eachChunk(ctx, chunks, s.readRawChunk)
	for n := range chunks {
		if failed[n] != nil {
			damaged = append(damaged, failed[n])
		}
		lines = append(lines, parts[n]...)
	}
	return lines, damaged, err
}

// chunkConcurrency is how many pieces of a trail are read concurrently. A trail of years has thousands.
const chunkConcurrency = 16

// eachChunk reads all pieces of a trail, and returns the errors of damaged ones.
func eachChunk[L any](ctx context.Context, chunks []auditChunk, read func(ctx context.Context, key string) ([]L, error)) (lines [][]L, damaged []error, err error) {
	lines, damaged = make([][]L, len(chunks)), make([]error, len(chunks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(chunkConcurrency)
	for n, c := range chunks {
		g.Go(func() error {
			part, err := read(ctx, c.key)
			if IsDamaged(err) {
				damaged[n] = err
				return nil
			}
			lines[n] = part
			return err
		})
	}
	return lines, damaged, g.Wait()
}

// TrailEnd returns the last stored line of an audit trail, or nil. It skips damaged pieces. The last line is the one that no other follows:
// the times of lines only say where to begin, because the clock of the server may have been set back.
func (s *Store) TrailEnd(ctx context.Context, application, service string) (*entities.TrailEnd, error) {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil || len(chunks) == 0 {
		return nil, err
	}
	last := chunks[0]
	for _, c := range chunks {
		if c.at.After(last.at) || c.at.Equal(last.at) && c.to > last.to {
			last = c
		}
	}
	lines, err := s.readSoundChunk(ctx, last.key)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	end := lines[0]
	for _, l := range lines {
		if l.N > end.N {
			end = l
		}
	}
	for found := true; found && err == nil; {
		end, found, err = s.followingLine(ctx, chunks, end)
	}
	return &entities.TrailEnd{N: end.N, Hash: end.Hash}, err
}

// followingLine returns the line that follows another in the chain, if it is stored, otherwise that other.
func (s *Store) followingLine(ctx context.Context, chunks []auditChunk, of entities.StoredEntry) (next entities.StoredEntry, found bool, err error) {
	for _, c := range chunks {
		if c.from > of.N+1 || c.to <= of.N {
			continue
		}
		lines, err := s.readSoundChunk(ctx, c.key)
		if err != nil {
			return of, false, err
		}
		for _, l := range lines {
			if l.N == of.N+1 && l.Prev == of.Hash {
				return l, true, nil
			}
		}
	}
	return of, false, nil
}

// readSoundChunk returns the lines of a chunk; none if it is damaged or gone.
func (s *Store) readSoundChunk(ctx context.Context, key string) ([]entities.StoredEntry, error) {
	lines, err := s.readRawChunk(ctx, key)
	if IsDamaged(err) || IsNotFound(err) {
		return nil, nil
	}
	return lines, err
}

// readRawChunk reads the current content of a chunk, without the cache.
func (s *Store) readRawChunk(ctx context.Context, key string) (lines []entities.StoredEntry, err error) {
	raw, err := s.blobs.read(ctx, key)
	if err != nil {
		return nil, err
	}
	for in := json.NewDecoder(bytes.NewReader(raw)); in.More(); {
		var one json.RawMessage
		var line entities.AuditEntry
		if in.Decode(&one) != nil || json.Unmarshal(one, &line) != nil {
			return nil, &CorruptError{key, "it is not part of an audit trail"}
		}
		lines = append(lines, entities.StoredEntry{AuditEntry: line, Hash: entities.HashOfEntry(one)})
	}
	return lines, nil
}
