package store

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file keeps what workflows know of the instances that runtimes watch, so that a worker that takes over finds what
// has changed since. Records are of the queue whose workers watch: only they reach the runtime.

// PutWatched keeps what is known of an instance ("shop/web/production/main"), in place of what was known before.
func (s *Store) PutWatched(ctx context.Context, queue, instance string, w protocol.Watched) error {
	data, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("write what is known of %s: %w", instance, err)
	}
	return s.blobs.write(ctx, watchedKey(queue, instance), data)
}

// Watched is what is known of an instance, or a *NotFoundError. What cannot be read is not there either: whoever asks has
// the workflow look, which writes it anew.
func (s *Store) Watched(ctx context.Context, queue, instance string) (w protocol.Watched, err error) {
	key := watchedKey(queue, instance)
	data, err := s.blobs.read(ctx, key)
	if err == nil && json.Unmarshal(data, &w) != nil || err == nil && len(w.Request.Instances) != 1 {
		err = &NotFoundError{key}
	}
	return w, err
}

// WatchedBy lists the instances that are known to the workers of a queue.
func (s *Store) WatchedBy(ctx context.Context, queue string) ([]string, error) {
	keys, err := s.blobs.list(ctx, watchedKey(queue, ""))
	var instances []string
	for _, key := range keys {
		application, rest, _ := strings.Cut(strings.TrimPrefix(key, watchedKey(queue, "")), "/")
		if strings.Count(rest, apart) == 2 && !strings.Contains(rest, "/") { // nor what a writer that died left behind
			instances = append(instances, application+"/"+strings.ReplaceAll(rest, apart, "/"))
		}
	}
	return instances, err
}

// RemoveWatched forgets what is known of an instance.
func (s *Store) RemoveWatched(ctx context.Context, queue, instance string) error {
	return s.blobs.remove(ctx, watchedKey(queue, instance))
}

// Beat is what a worker says of itself, again and again, to those that share with it what is steady.
type Beat struct {
	// Number grows by one with each.
	Number int64 `json:"number"`
	// Left: it was the last.
	Left bool `json:"left,omitempty"`
	// Told are the instances ("shop/web/production/main") that it wrote down, by beat, with the oldest first.
	Told [][]string `json:"told,omitempty"`
	// All: it wrote down more than it names.
	All bool `json:"all,omitempty"`
}

// PutBeat keeps what a worker of a queue says of itself, in place of what it said before.
func (s *Store) PutBeat(ctx context.Context, queue, worker string, b Beat) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write what worker %s says of itself: %w", worker, err)
	}
	return s.blobs.write(ctx, beatKey(queue, worker), data)
}

// Beats is what the workers of a queue say of themselves, by what they call themselves. One that cannot be read is passed over.
func (s *Store) Beats(ctx context.Context, queue string) (map[string]Beat, error) {
	return s.beats(ctx, beatKey(queue, ""), 0)
}

// RemoteBeats is what the workers of each remote runtime say of themselves, by its name and by what they call themselves.
func (s *Store) RemoteBeats(ctx context.Context) (map[string]map[string]Beat, error) {
	all, err := s.beats(ctx, rounds+protocol.RuntimeTaskQueue(""), 1)
	by := map[string]map[string]Beat{}
	for key, b := range all {
		runtime, worker, _ := strings.Cut(key, "/")
		if by[runtime] == nil {
			by[runtime] = map[string]Beat{}
		}
		by[runtime][worker] = b
	}
	return by, err
}

// beats are those in a folder, or so many folders below.
func (s *Store) beats(ctx context.Context, folder string, below int) (map[string]Beat, error) {
	keys, err := s.blobs.list(ctx, folder)
	if err != nil {
		return nil, err
	}
	beats := map[string]Beat{}
	for _, key := range keys {
		worker := strings.TrimPrefix(key, folder)
		if strings.Count(worker, "/") != below || strings.Contains(path.Base(worker), ".") { // of another queue, or what a writer that died left behind
			continue
		}
		data, err := s.blobs.read(ctx, key)
		if err != nil && !IsNotFound(err) { // it left just now
			return nil, err
		}
		var b Beat
		if err == nil && json.Unmarshal(data, &b) == nil {
			beats[worker] = b
		}
	}
	return beats, nil
}

// RemoveBeat forgets a worker that is gone.
func (s *Store) RemoveBeat(ctx context.Context, queue, worker string) error {
	return s.blobs.remove(ctx, beatKey(queue, worker))
}

func beatKey(queue, worker string) string { return rounds + queue + "/" + worker }

const (
	watched = "watched/"
	rounds  = "rounds/"
)

// apart is between the names of what is in one folder: there is one for an application, since all of it is listed again and again.
const apart = "~"

func watchedKey(queue, instance string) string {
	application, rest, found := strings.Cut(instance, "/")
	key := watched + queue + "/" + application
	if found {
		key += "/" + strings.ReplaceAll(rest, "/", apart)
	}
	return key
}
