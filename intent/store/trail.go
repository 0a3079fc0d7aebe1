package store

import (
	"bytes"
	"context"
	"encoding/json"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
)

// This file reads audit trails as they are, to verify them and to go on from their ends.

// KeptAudit returns all that is kept of the audit trail of a service, or of an application when service is empty, in no
// particular order, and what of it cannot be read: nothing is dropped that seems to be there twice.
func (s *Store) KeptAudit(ctx context.Context, application, service string) (lines []entities.KeptLine, damaged []error, err error) {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return nil, nil, err
	}
	there, failed, err := eachChunk(ctx, chunks, s.keptLines)
	for n := range chunks {
		if failed[n] != nil {
			damaged = append(damaged, failed[n])
		}
		lines = append(lines, there[n]...)
	}
	return lines, damaged, err
}

// chunksAtOnce is how many pieces of a trail are read at a time: one of years has thousands.
const chunksAtOnce = 16

// eachChunk reads all pieces of a trail, and says which of them are damaged.
func eachChunk[L any](ctx context.Context, chunks []auditChunk, read func(ctx context.Context, key string) ([]L, error)) (lines [][]L, damaged []error, err error) {
	lines, damaged = make([][]L, len(chunks)), make([]error, len(chunks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(chunksAtOnce)
	for n, c := range chunks {
		g.Go(func() error {
			there, err := read(ctx, c.key)
			if IsDamaged(err) {
				damaged[n] = err
				return nil
			}
			lines[n] = there
			return err
		})
	}
	return lines, damaged, g.Wait()
}

// TrailEnd returns the last line that is kept of an audit trail, or nil. What is damaged is passed over.
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
	lines, err := s.keptLines(ctx, last.key)
	if err != nil || len(lines) == 0 {
		if IsDamaged(err) || IsNotFound(err) {
			err = nil
		}
		return nil, err
	}
	end := lines[0]
	for _, l := range lines {
		if l.N > end.N {
			end = l
		}
	}
	return &entities.TrailEnd{N: end.N, Hash: end.Hash}, nil
}

// keptLines reads one chunk past the cache: what is there now.
func (s *Store) keptLines(ctx context.Context, key string) (lines []entities.KeptLine, err error) {
	raw, err := s.blobs.read(ctx, key)
	if err != nil {
		return nil, err
	}
	for in := json.NewDecoder(bytes.NewReader(raw)); in.More(); {
		var one json.RawMessage
		var line entities.AuditLine
		if in.Decode(&one) != nil || json.Unmarshal(one, &line) != nil {
			return nil, &CorruptError{key, "it is no part of an audit trail"}
		}
		lines = append(lines, entities.KeptLine{AuditLine: line, Hash: entities.HashOfLine(one)})
	}
	return lines, nil
}
