package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

// keptCheckpoints is how many checkpoints of a workflow are kept: the newest, and older ones as a fallback if it is damaged.
const keptCheckpoints = 3

// PutCheckpoint stores a checkpoint, and removes all but the newest few of that workflow. It sets the schema and the digest. It replaces
// a checkpoint at the same position, unless the existing one has a later time: a lost workflow task and the task that replaced it may
// each submit one. If an earlier checkpoint has a higher number, the error is a *BehindError.
func (s *Store) PutCheckpoint(ctx context.Context, c protocol.Checkpoint) error {
	c.Schema = protocol.CheckpointSchema
	c.Digest = digestOfCheckpoint(c)
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write a checkpoint of %s: %w", c.ID, err)
	}
	key := checkpointKey(c)
	created, err := s.blobs.create(ctx, key, data)
	if err == nil && !created {
		err = s.replaceCheckpoint(ctx, key, c, data)
	}
	if err != nil {
		return err
	}
	keys, err := s.checkpointKeys(ctx, c.ID)
	last := len(keys) - 1
	for n := 0; n <= last-keptCheckpoints && err == nil; n++ {
		err = s.blobs.remove(ctx, keys[n])
	}
	if err != nil || last < 0 || keys[last] <= key {
		return err
	}
	return s.checkBehind(ctx, keys[last], c)
}

// behindTolerance is how much earlier a checkpoint with a higher number must be. The clock is that of the Temporal server.
const behindTolerance = time.Second

// checkBehind compares a checkpoint with the newest one, which has a higher number.
func (s *Store) checkBehind(ctx context.Context, newest string, c protocol.Checkpoint) error {
	stored, err := s.checkpoint(ctx, newest)
	if IsNotFound(err) || IsDamaged(err) {
		return nil
	}
	if err == nil && c.At.Sub(stored.At) > behindTolerance {
		return &BehindError{c.ID}
	}
	return err
}

// BehindError means that a workflow submitted a checkpoint that is later than one with a higher number: its state is older than the one in
// the store, because the database of Temporal was restored from a backup.
type BehindError struct{ ID string }

// Error names the workflow.
func (e *BehindError) Error() string {
	return fmt.Sprintf("the state of %s is older than its newest checkpoint: the database of Temporal was restored from a backup [behind]", e.ID)
}

func (s *Store) replaceCheckpoint(ctx context.Context, key string, c protocol.Checkpoint, data []byte) error {
	stored, err := s.checkpoint(ctx, key)
	if IsNotFound(err) || err == nil && (stored.Digest == c.Digest || stored.At.After(c.At)) {
		return nil
	}
	if err != nil && !errors.As(err, new(*CorruptError)) {
		return err
	}
	return s.blobs.write(ctx, key, data)
}

// Checkpoint returns the newest intact checkpoint of a workflow, or a *NotFoundError. It skips damaged ones if an older one is intact.
// Otherwise the error is a *CorruptError that names the newest.
func (s *Store) Checkpoint(ctx context.Context, id string) (protocol.Checkpoint, error) {
	keys, err := s.checkpointKeys(ctx, id)
	if err != nil {
		return protocol.Checkpoint{}, err
	}
	var damaged error
	for n := len(keys) - 1; n >= 0; n-- {
		c, err := s.checkpoint(ctx, keys[n])
		if err == nil {
			return c, nil
		}
		if !errors.As(err, new(*CorruptError)) && !IsNotFound(err) { // or deleted in the meantime
			return c, err
		}
		if damaged == nil && !IsNotFound(err) {
			damaged = err
		}
	}
	if damaged != nil {
		return protocol.Checkpoint{}, damaged
	}
	return protocol.Checkpoint{}, &NotFoundError{checkpointPrefix(id)}
}

func (s *Store) checkpoint(ctx context.Context, key string) (protocol.Checkpoint, error) {
	data, err := s.blobs.read(ctx, key)
	if err != nil {
		return protocol.Checkpoint{}, err
	}
	return parseCheckpoint(key, data)
}

func parseCheckpoint(key string, data []byte) (c protocol.Checkpoint, err error) {
	if err := json.Unmarshal(data, &c); err != nil {
		return c, &CorruptError{key, "it is not a checkpoint"}
	}
	if c.Digest != digestOfCheckpoint(c) {
		return c, &CorruptError{key, "its content has another digest"}
	}
	return c, nil
}

// MissedRecord is the archive entry for messages that runs outside this archive accepted after the exported checkpoint.
func MissedRecord(m protocol.MissedMessages) (key string, data []byte, err error) {
	key = missedMessages + m.ID
	data, err = sealRecord(key, m)
	return key, data, err
}

// Missed returns the messages that runs outside this store accepted after a checkpoint, given its position. It returns nothing if all
// runs are in this store.
func (s *Store) Missed(ctx context.Context, id string, after protocol.Cursor) ([]protocol.MissedMessage, error) {
	m, err := readRecord(ctx, s, missedMessages+id, func(m protocol.MissedMessages) bool { return m.ID == id })
	if err != nil || m.After != after {
		if IsNotFound(err) {
			err = nil
		}
		return nil, err
	}
	return m.Messages, nil
}

const missedMessages = "missed/"

// Checkpointed lists the workflows that have checkpoints and whose ids begin with a prefix, sorted.
func (s *Store) Checkpointed(ctx context.Context, prefix string) ([]string, error) {
	keys, err := s.blobs.list(ctx, checkpoints+prefix)
	var ids []string
	for _, key := range keys {
		id := strings.TrimPrefix(key[:strings.LastIndexByte(key, '/')], checkpoints)
		if len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
	}
	return ids, err
}

const checkpoints = "checkpoints/"

func checkpointPrefix(id string) string { return checkpoints + id + "/" }

// checkpointKey returns a key whose sort order is the order of checkpoints.
func checkpointKey(c protocol.Checkpoint) string {
	return fmt.Sprintf("%s%019d-%019d", checkpointPrefix(c.ID), c.N, c.Event)
}

// checkpointKeys returns the checkpoint keys of a workflow, oldest first. It skips files that a crashed writer left.
func (s *Store) checkpointKeys(ctx context.Context, id string) ([]string, error) {
	prefix := checkpointPrefix(id)
	all, err := s.blobs.list(ctx, prefix)
	var keys []string
	for _, key := range all {
		var n, event int64
		if found, err := fmt.Sscanf(strings.TrimPrefix(key, prefix), "%d-%d", &n, &event); err == nil && found == 2 {
			keys = append(keys, key)
		}
	}
	return keys, err
}

func digestOfCheckpoint(c protocol.Checkpoint) string {
	c.Digest = ""
	data, err := json.Marshal(c)
	if err != nil {
		return "" // it has no field that cannot be encoded
	}
	return canonical.Hash(data)
}
