package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

// keptCheckpoints is how many checkpoints of a workflow are kept: the newest, and older ones as a fallback if it is damaged.
const keptCheckpoints = 3

// PutCheckpoint stores a checkpoint, and removes all but the newest few of that workflow. It sets the schema and the digest. It replaces
// an equal one, unless the existing one has a later time: one of a task that changed nothing has the place of the next task.
//
// If the checkpoint is later than the newest one and does not include its change, isBehind decides whether the workflow went back behind
// the newest one. Then the error is a *BehindError, and nothing is stored. A nil isBehind: it did not.
func (s *Store) PutCheckpoint(ctx context.Context, c protocol.Checkpoint, isBehind func(newest protocol.Checkpoint) (bool, error)) error {
	keys, err := s.checkpointKeys(ctx, c.ID)
	if err == nil && len(keys) > 0 && isBehind != nil {
		err = s.checkFollows(ctx, c, keys[len(keys)-1], isBehind)
	}
	if err != nil {
		return err
	}
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
	if at, found := slices.BinarySearch(keys, key); !found {
		keys = slices.Insert(keys, at, key)
	}
	for n := 0; n < len(keys)-keptCheckpoints && err == nil; n++ {
		err = s.blobs.remove(ctx, keys[n])
	}
	return err
}

// checkFollows returns a *BehindError if a checkpoint is of a state that went back behind the newest one. The changes are times by the clock
// of the Temporal server.
func (s *Store) checkFollows(ctx context.Context, c protocol.Checkpoint, newest string, isBehind func(protocol.Checkpoint) (bool, error)) error {
	change, _ := changeOfKey(newest)
	if c.Follows(change) || c.At.UnixNano() < change {
		return nil
	}
	stored, err := s.checkpoint(ctx, newest)
	if IsNotFound(err) || IsDamaged(err) {
		return nil
	}
	if err != nil {
		return err
	}
	behind, err := isBehind(stored)
	if err == nil && behind {
		err = &BehindError{c.ID}
	}
	return err
}

// BehindError means that a workflow submitted a checkpoint of a state that is older than the one in the store, because the database of
// Temporal was restored from a backup.
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
	key := fmt.Sprintf("%s%019d-%019d", checkpointPrefix(c.ID), c.N, c.Event)
	if c.Change != 0 {
		key += fmt.Sprintf("-%019d", c.Change)
	}
	return key
}

// checkpointKeys returns the checkpoint keys of a workflow, oldest first. It skips files that a crashed writer left.
func (s *Store) checkpointKeys(ctx context.Context, id string) ([]string, error) {
	prefix := checkpointPrefix(id)
	all, err := s.blobs.list(ctx, prefix)
	var keys []string
	for _, key := range all {
		if _, ok := changeOfKey(key); ok {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// changeOfKey reads the change of a checkpoint from its key, 0 if it names none; false if it is no such key.
func changeOfKey(key string) (change int64, ok bool) {
	var n, event int64
	found, _ := fmt.Sscanf(key[strings.LastIndexByte(key, '/')+1:], "%d-%d-%d", &n, &event, &change)
	return change, found >= 2
}

func digestOfCheckpoint(c protocol.Checkpoint) string {
	c.Digest = ""
	data, err := json.Marshal(c)
	if err != nil {
		return "" // it has no field that cannot be encoded
	}
	return canonical.Hash(data)
}
