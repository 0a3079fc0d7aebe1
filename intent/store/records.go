package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

// VersionRecord is the permanent meaning of a version: one incarnation and the parameters of its release.
type VersionRecord struct {
	Version           string                    `json:"version"`
	FullVersion       string                    `json:"fullVersion"`
	Incarnation       int64                     `json:"incarnation"`
	Hash              string                    `json:"hash"`
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
	// Payloads: channel, by its name in the incarnation → digest of the payload that was rendered when it was first named. Values of an
	// aspect have none.
	Payloads map[string]string `json:"payloads,omitempty"`
}

// With returns the version with the parameters of another record, including those for single channels, in place of its own.
func (r VersionRecord) With(o VersionRecord) VersionRecord {
	r.Parameters = maps.Clone(r.Parameters)
	channels := map[string]map[string]any{}
	for channel, values := range r.ChannelParameters {
		channels[channel] = maps.Clone(values)
	}
	for name, v := range o.Parameters {
		for _, values := range channels {
			delete(values, name)
		}
		r.Parameters = with(r.Parameters, name, v)
	}
	for channel, values := range o.ChannelParameters {
		for name, v := range values {
			channels[channel] = with(channels[channel], name, v)
		}
	}
	r.ChannelParameters = channels
	return r
}

// Given returns the number of values in the record.
func (r VersionRecord) Given() int {
	n := len(r.Parameters)
	for _, values := range r.ChannelParameters {
		n += len(values)
	}
	return n
}

// with adds an entry to a map, and creates a nil map.
func with(all map[string]any, name string, v any) map[string]any {
	if all == nil {
		all = map[string]any{}
	}
	all[name] = v
	return all
}

// CreateVersion records the meaning of a full version of a service. The first call wins. It returns the stored record, and whether this
// call wrote it.
func (s *Store) CreateVersion(ctx context.Context, application, service string, record VersionRecord) (VersionRecord, bool, error) {
	return writeRecord(ctx, s, versionKey(application, service, record.FullVersion), record, ofVersion(record.FullVersion))
}

// Version returns the meaning of a full version of a service.
func (s *Store) Version(ctx context.Context, application, service, fullVersion string) (VersionRecord, error) {
	return readRecord(ctx, s, versionKey(application, service, fullVersion), ofVersion(fullVersion))
}

// ofVersion returns a function that reports whether a record matches its key.
func ofVersion(fullVersion string) func(VersionRecord) bool {
	return func(r VersionRecord) bool { return r.FullVersion == fullVersion }
}

// OtherVersion returns another recorded full version of a service; empty: there is none. A damaged record counts, as far as its key
// identifies the version.
func (s *Store) OtherVersion(ctx context.Context, application, service, than string) (string, error) {
	names, err := s.blobs.list(ctx, versionPrefix(application, service))
	if err != nil {
		return "", err
	}
	own := versionKey(application, service, than)
	for _, name := range names {
		if name == own || strings.HasPrefix(path.Base(name), ".") { // a crashed writer left it
			continue
		}
		record, err := readRecord(ctx, s, name, func(r VersionRecord) bool { return versionKey(application, service, r.FullVersion) == name })
		switch {
		case err == nil:
			return record.FullVersion, nil
		case IsDamaged(err):
			return versionOf(name), nil
		case !IsNotFound(err):
			return "", err
		}
	}
	return "", nil
}

// versionOf returns the full version of a key; only the beginning of a very long one.
func versionOf(key string) string {
	readable := path.Base(key)
	readable = readable[:max(0, strings.LastIndex(readable, "-"))]
	version, err := url.QueryUnescape(readable)
	if err != nil {
		return readable
	}
	return version
}

func versionPrefix(application, service string) string {
	return "versions/" + application + "/" + service + "/"
}

// readableVersion is how many characters of a version a key contains.
const readableVersion = 150

// versionKey is readable. Versions that differ only in case have different keys, even on a case-insensitive file system.
func versionKey(application, service, fullVersion string) string {
	readable := url.QueryEscape(fullVersion)
	readable = readable[:min(len(readable), readableVersion)]
	return versionPrefix(application, service) + readable + "-" + canonical.Hash([]byte(fullVersion))[:8]
}

// PutNumber records the incarnation of a number, so that it can always be read by its number (D5). It rejects a number that already
// belongs to another incarnation. It rewrites a damaged record.
func (s *Store) PutNumber(ctx context.Context, application string, record protocol.Incarnation) error {
	key := numberKey(application, record.Number)
	stored, _, err := createRecord(ctx, s, key, record, ofNumber(record.Number))
	if IsDamaged(err) {
		return s.rewriteRecord(ctx, key, record)
	}
	if err == nil && (stored.Hash != record.Hash || stored.Manifest != record.Manifest) {
		return fmt.Errorf("incarnation %d of %s is already %s and cannot become %s [number-taken]", record.Number, application, stored.Hash, record.Hash)
	}
	return err
}

// Number returns the record of an incarnation by its number.
func (s *Store) Number(ctx context.Context, application string, number int64) (protocol.Incarnation, error) {
	return readRecord(ctx, s, numberKey(application, number), ofNumber(number))
}

func ofNumber(number int64) func(protocol.Incarnation) bool {
	return func(i protocol.Incarnation) bool { return i.Number == number }
}

// ListNumbers lists the numbers of an application's incarnations in ascending order.
func (s *Store) ListNumbers(ctx context.Context, application string) ([]int64, error) {
	prefix := "numbers/" + application + "/"
	names, err := s.blobs.list(ctx, prefix)
	var numbers []int64
	for _, name := range names {
		if n, err := strconv.ParseInt(strings.TrimPrefix(name, prefix), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers, err
}

func numberKey(application string, number int64) string {
	return fmt.Sprintf("numbers/%s/%012d", application, number)
}

// PutRuntime stores a definition of a runtime and returns its digest.
func (s *Store) PutRuntime(ctx context.Context, definition entities.RuntimeDefinition) (string, error) {
	return s.putJSON(ctx, "runtimes/"+definition.Name+"/", definition)
}

// Runtime returns the definition of a runtime by its digest.
func (s *Store) Runtime(ctx context.Context, name, digest string) (entities.RuntimeDefinition, error) {
	return getJSON[entities.RuntimeDefinition](ctx, s, "runtimes/"+name+"/", digest)
}

// CurrentRuntime returns the newest definition of a runtime.
func (s *Store) CurrentRuntime(ctx context.Context, name string) (entities.RuntimeDefinition, error) {
	digest, err := s.blobs.read(ctx, "runtimes/"+name+"/current")
	if err != nil {
		return entities.RuntimeDefinition{}, err
	}
	return s.Runtime(ctx, name, string(digest))
}

// OwnedError reports that another application already defines a runtime.
type OwnedError struct{ Runtime, Owner string }

// Error names the runtime and its owner.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("runtime %q belongs to application %q, which defined it first; name yours differently, or leave its definition to that application [runtime-owned]", e.Runtime, e.Owner)
}

// RuntimeOwner is the record of a runtime's owner.
type RuntimeOwner struct {
	Application string `json:"application"`
}

// ClaimRuntime makes an application the owner of a runtime's name, unless it has an owner. The first application that defines a runtime
// owns it. For any other application the error is an *OwnedError (D11).
func (s *Store) ClaimRuntime(ctx context.Context, name, application string) error {
	stored, _, err := createRecord(ctx, s, "runtimes/"+name+"/owner", RuntimeOwner{application}, func(o RuntimeOwner) bool { return o.Application != "" })
	if err == nil && stored.Application != application {
		return &OwnedError{name, stored.Application}
	}
	return err
}

// PublishRuntime claims a runtime for its owner, stores the definition and makes it the current one.
func (s *Store) PublishRuntime(ctx context.Context, definition entities.RuntimeDefinition) (string, error) {
	if err := s.ClaimRuntime(ctx, definition.Name, definition.Owner); err != nil {
		return "", err
	}
	digest, err := s.PutRuntime(ctx, definition)
	if err != nil {
		return "", err
	}
	return digest, s.blobs.write(ctx, "runtimes/"+definition.Name+"/current", []byte(digest))
}

// Runtimes lists the current definitions of all published runtimes by name. Applications that do not define them may refer to them
// (Options.Runtimes). It omits damaged ones; publishing the owner again restores them.
func (s *Store) Runtimes(ctx context.Context) ([]entities.RuntimeDefinition, error) {
	names, err := s.blobs.list(ctx, "runtimes/")
	if err != nil {
		return nil, err
	}
	var all []entities.RuntimeDefinition
	for _, key := range names {
		name, current := strings.CutSuffix(strings.TrimPrefix(key, "runtimes/"), "/current")
		if !current {
			continue
		}
		digest, err := s.blobs.read(ctx, key)
		if err != nil {
			return nil, err
		}
		definition, err := s.Runtime(ctx, name, string(digest))
		if IsDamaged(err) || IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, definition)
	}
	return all, nil
}

// keptLogs is how many entries of each kind are kept per instance. The many fetch entries do not displace apply entries.
const keptLogs = 10

// LogKind is apply, fetch or extension.
type LogKind string

// The kinds of log entries.
const (
	LogApply     LogKind = "apply"
	LogFetch     LogKind = "fetch"
	LogExtension LogKind = "extension"
)

// LogEntry is the output of a command. The runtime has already limited and redacted it.
type LogEntry struct {
	Kind        LogKind       `json:"kind"`
	Name        string        `json:"name,omitempty"` // name of an extension
	At          time.Time     `json:"at"`
	FullVersion string        `json:"fullVersion,omitempty"`
	Attempt     int           `json:"attempt,omitempty"`
	Begun       int           `json:"begun,omitempty"` // how often an apply was begun, if more than once: a worker was lost or stopped
	Command     string        `json:"command,omitempty"`
	ExitCode    int           `json:"exitCode"`           // -1: none
	TimedOut    bool          `json:"timedOut,omitempty"` // the command reached its timeout
	Stdout      string        `json:"stdout,omitempty"`
	Stderr      string        `json:"stderr,omitempty"`
	Duration    time.Duration `json:"duration,omitempty"`
	Error       string        `json:"error,omitempty"`
}

// PutLog stores an entry of an instance and deletes all but the last ten of its kind and name.
func (s *Store) PutLog(ctx context.Context, application, service, channel string, entry LogEntry) error {
	_, err := s.PutLogKey(ctx, application, service, channel, entry)
	return err
}

// PutLogKey is PutLog and returns the key of the entry.
func (s *Store) PutLogKey(ctx context.Context, application, service, channel string, entry LogEntry) (key string, err error) {
	data, err := json.Marshal(entry)
	if err != nil {
		return "", fmt.Errorf("write a log of %s/%s: %w", application, service, err)
	}
	prefix := logPrefix(application, service, channel) + string(entry.Kind) + "-"
	if entry.Name != "" {
		prefix = logPrefix(application, service, channel) + string(entry.Kind) + "/" + entry.Name + "/"
	}
	for n := 0; ; n++ { // two entries with the same time
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

// Logs returns the entries of an instance, oldest first.
func (s *Store) Logs(ctx context.Context, application, service, channel string) ([]LogEntry, error) {
	return s.NewLogs(ctx, application, service, channel, map[string]bool{})
}

// NewLogs returns the entries of an instance whose keys are not known, oldest first, and adds their keys unless there is an error.
func (s *Store) NewLogs(ctx context.Context, application, service, channel string, known map[string]bool) ([]LogEntry, error) {
	prefix := logPrefix(application, service, channel)
	names, err := s.blobs.list(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var entries []LogEntry
	var keys []string
	for _, name := range names {
		if known[name] || strings.HasSuffix(name, ".tmp") {
			continue
		}
		data, err := s.blobs.read(ctx, name)
		if IsNotFound(err) {
			continue // deleted in the meantime
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, name)
		var entry LogEntry
		if json.Unmarshal(data, &entry) == nil { // otherwise it is damaged, and nothing depends on it
			entries = append(entries, entry)
		}
	}
	for _, key := range keys {
		known[key] = true
	}
	slices.SortStableFunc(entries, func(a, b LogEntry) int { return a.At.Compare(b.At) })
	return entries, nil
}

func logPrefix(application, service, channel string) string {
	return "logs/" + application + "/" + service + "/" + channel + "/"
}
