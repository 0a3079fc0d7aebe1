package store

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file stores the last known states of watched instances, so that a worker that takes over finds changes since then. Records belong
// to the queue whose workers watch, because only they can access the runtime.

// PutWatched replaces the known state of an instance ("shop/web/production/main").
func (s *Store) PutWatched(ctx context.Context, queue, instance string, w protocol.WatchedInstance) error {
	data, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("write the known state of %s: %w", instance, err)
	}
	return s.blobs.write(ctx, watchedKey(queue, instance), data)
}

// Watched returns the known state of an instance, or a *NotFoundError. An unreadable record also counts as not found: the caller then
// makes the workflow observe, which rewrites the record.
func (s *Store) Watched(ctx context.Context, queue, instance string) (w protocol.WatchedInstance, err error) {
	key := watchedKey(queue, instance)
	data, err := s.blobs.read(ctx, key)
	if err == nil && json.Unmarshal(data, &w) != nil || err == nil && len(w.Request.Instances) != 1 {
		err = &NotFoundError{key}
	}
	return w, err
}

// WatchedInstances lists the instances with a known state for the workers of a queue.
func (s *Store) WatchedInstances(ctx context.Context, queue string) ([]string, error) {
	keys, err := s.blobs.list(ctx, watchedKey(queue, ""))
	var instances []string
	for _, key := range keys {
		application, rest, _ := strings.Cut(strings.TrimPrefix(key, watchedKey(queue, "")), "/")
		if strings.Count(rest, nameSeparator) == 2 && !strings.Contains(rest, "/") { // skips other queues, and files that a crashed writer left
			instances = append(instances, application+"/"+strings.ReplaceAll(rest, nameSeparator, "/"))
		}
	}
	return instances, err
}

// RemoveWatched removes the known state of an instance.
func (s *Store) RemoveWatched(ctx context.Context, queue, instance string) error {
	return s.blobs.remove(ctx, watchedKey(queue, instance))
}

// Heartbeat is the heartbeat record of a worker, for the workers that share the steady instances with it.
type Heartbeat struct {
	// Number increases by one with each heartbeat.
	Number int64 `json:"number"`
	// Last: this is the last heartbeat.
	Last bool `json:"left,omitempty"`
	// Recorded lists the instances ("shop/web/production/main") that the worker recorded, one list per heartbeat, the oldest first.
	Recorded [][]string `json:"told,omitempty"`
	// Truncated: the worker recorded more instances than Recorded lists.
	Truncated bool `json:"all,omitempty"`
	// Process is the process of the worker, "PID@HOST".
	Process string `json:"process,omitempty"`
	// ClockOffset is how far its clock is ahead of the Temporal server's, in nanoseconds; negative: behind; 0: not at all, or not known.
	ClockOffset time.Duration `json:"clockOffset,omitempty"`
}

// ClockTolerance is how far the clock of a worker may be off. It is half of what is tolerated where the times of two machines are compared:
// the issue times of tokens, and the recovery of lost checkpoints.
const ClockTolerance = 30 * time.Second

// ClockText says how far the clock of the worker is off; empty: not more than is tolerated.
func (b Heartbeat) ClockText() string {
	switch {
	case b.ClockOffset > ClockTolerance:
		return b.ClockOffset.String() + " ahead of the clock of the Temporal server"
	case b.ClockOffset < -ClockTolerance:
		return b.ClockOffset.Abs().String() + " behind the clock of the Temporal server"
	}
	return ""
}

// PutHeartbeat replaces the heartbeat record of a worker of a queue.
func (s *Store) PutHeartbeat(ctx context.Context, queue, worker string, b Heartbeat) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write the heartbeat of worker %s: %w", worker, err)
	}
	return s.blobs.write(ctx, heartbeatKey(queue, worker), data)
}

// Heartbeats returns the heartbeat records of a queue by worker name. It skips unreadable ones.
func (s *Store) Heartbeats(ctx context.Context, queue string) (map[string]Heartbeat, error) {
	return s.heartbeatsBelow(ctx, heartbeatKey(queue, ""), 0)
}

// RemoteHeartbeats returns the heartbeat records of each remote runtime, by runtime name and worker name.
func (s *Store) RemoteHeartbeats(ctx context.Context) (map[string]map[string]Heartbeat, error) {
	all, err := s.heartbeatsBelow(ctx, heartbeats+protocol.RuntimeTaskQueue(""), 1)
	byRuntime := map[string]map[string]Heartbeat{}
	for key, b := range all {
		runtime, worker, _ := strings.Cut(key, "/")
		if byRuntime[runtime] == nil {
			byRuntime[runtime] = map[string]Heartbeat{}
		}
		byRuntime[runtime][worker] = b
	}
	return byRuntime, err
}

// heartbeatsBelow returns the heartbeat records in a folder, or a number of levels below it.
func (s *Store) heartbeatsBelow(ctx context.Context, folder string, below int) (map[string]Heartbeat, error) {
	keys, err := s.blobs.list(ctx, folder)
	if err != nil {
		return nil, err
	}
	result := map[string]Heartbeat{}
	for _, key := range keys {
		worker := strings.TrimPrefix(key, folder)
		if strings.Count(worker, "/") != below || strings.Contains(path.Base(worker), ".") { // of another queue, or a crashed writer left it
			continue
		}
		data, err := s.blobs.read(ctx, key)
		if err != nil && !IsNotFound(err) { // it left in the meantime
			return nil, err
		}
		var b Heartbeat
		if err == nil && json.Unmarshal(data, &b) == nil {
			result[worker] = b
		}
	}
	return result, nil
}

// RemoveHeartbeat removes the record of a worker that is gone.
func (s *Store) RemoveHeartbeat(ctx context.Context, queue, worker string) error {
	return s.blobs.remove(ctx, heartbeatKey(queue, worker))
}

func heartbeatKey(queue, worker string) string { return heartbeats + queue + "/" + worker }

const (
	watched    = "watched/"
	heartbeats = "rounds/"
)

// nameSeparator separates the parts of a name in a folder. An application has one folder, because all of it is listed repeatedly.
const nameSeparator = "~"

func watchedKey(queue, instance string) string {
	application, rest, found := strings.Cut(instance, "/")
	key := watched + queue + "/" + application
	if found {
		key += "/" + strings.ReplaceAll(rest, "/", nameSeparator)
	}
	return key
}
