package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// keptLogs is how many entries of each kind stay for an instance: looks, which are many, do not
// push out applies.
const keptLogs = 10

// LogKind is apply, fetch or extension.
type LogKind string

// The kinds of log entries.
const (
	LogApply     LogKind = "apply"
	LogFetch     LogKind = "fetch"
	LogExtension LogKind = "extension"
)

// LogEntry is what a command printed, bounded and redacted by the runtime before it comes here.
type LogEntry struct {
	Kind        LogKind       `json:"kind"`
	Name        string        `json:"name,omitempty"` // of an extension
	At          time.Time     `json:"at"`
	FullVersion string        `json:"fullVersion,omitempty"`
	Attempt     int           `json:"attempt,omitempty"`
	Command     string        `json:"command,omitempty"`
	ExitCode    int           `json:"exitCode"`
	Stdout      string        `json:"stdout,omitempty"`
	Stderr      string        `json:"stderr,omitempty"`
	Duration    time.Duration `json:"duration,omitempty"`
	Error       string        `json:"error,omitempty"`
}

// PutLog keeps an entry of an instance and deletes all but the last ten of its kind and name.
func (s *Store) PutLog(ctx context.Context, application, service, channel string, entry LogEntry) error {
	_, err := s.PutLogKey(ctx, application, service, channel, entry)
	return err
}

// PutLogKey is PutLog that returns the key of the entry.
func (s *Store) PutLogKey(ctx context.Context, application, service, channel string, entry LogEntry) (key string, err error) {
	data, err := json.Marshal(entry)
	if err != nil {
		return "", fmt.Errorf("write a log of %s/%s: %w", application, service, err)
	}
	prefix := logPrefix(application, service, channel) + string(entry.Kind) + "-"
	if entry.Name != "" {
		prefix = logPrefix(application, service, channel) + string(entry.Kind) + "/" + entry.Name + "/"
	}
	for n := 0; ; n++ { // two entries of one moment
		key = fmt.Sprintf("%s%020d-%03d", prefix, entry.At.UnixNano(), n)
		created, err := s.blobs.create(ctx, key, data)
		if err != nil {
			return "", err
		}
		if created {
			break
		}
	}
	names, err := s.blobs.list(ctx, prefix)
	for len(names) > keptLogs && err == nil {
		err = s.blobs.remove(ctx, names[0])
		names = names[1:]
	}
	return key, err
}

// Logs returns the entries kept of an instance, oldest first.
func (s *Store) Logs(ctx context.Context, application, service, channel string) ([]LogEntry, error) {
	prefix := logPrefix(application, service, channel)
	names, err := s.blobs.list(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var entries []LogEntry
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			continue
		}
		data, err := s.blobs.read(ctx, name)
		if IsNotFound(err) {
			continue // pushed out meanwhile
		}
		if err != nil {
			return nil, err
		}
		var entry LogEntry
		if err := json.Unmarshal(data, &entry); err != nil {
			return nil, &CorruptError{name, "it is no log entry"}
		}
		entries = append(entries, entry)
	}
	slices.SortStableFunc(entries, func(a, b LogEntry) int { return a.At.Compare(b.At) })
	return entries, nil
}

func logPrefix(application, service, channel string) string {
	return "logs/" + application + "/" + service + "/" + channel + "/"
}
