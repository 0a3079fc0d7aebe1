package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/trail"
)

// PutCheck stores the definition of a check and returns its digest.
func (s *Store) PutCheck(ctx context.Context, definition entities.CheckDefinition) (string, error) {
	return s.putJSON(ctx, "checks/", definition)
}

// Check returns the definition of a check by its digest.
func (s *Store) Check(ctx context.Context, digest string) (entities.CheckDefinition, error) {
	return getJSON[entities.CheckDefinition](ctx, s, "checks/", digest)
}

// PutExtension stores the definition of an extension and returns its digest.
func (s *Store) PutExtension(ctx context.Context, definition entities.ExtensionDefinition) (string, error) {
	return s.putJSON(ctx, "extensions/", definition)
}

// Extension returns the definition of an extension by its digest.
func (s *Store) Extension(ctx context.Context, digest string) (entities.ExtensionDefinition, error) {
	return getJSON[entities.ExtensionDefinition](ctx, s, "extensions/", digest)
}

// Definitions returns functions that look up the definitions of checks and extensions. They return nil for a lost definition. Any other
// error is stored where failed points to.
func (s *Store) Definitions(ctx context.Context) (check func(string) *entities.CheckDefinition, extension func(string) *entities.ExtensionDefinition, failed *error) {
	failed = new(error)
	check = func(digest string) *entities.CheckDefinition {
		d, err := s.Check(ctx, digest)
		return ignoreMissing(&d, err, failed)
	}
	extension = func(digest string) *entities.ExtensionDefinition {
		d, err := s.Extension(ctx, digest)
		return ignoreMissing(&d, err, failed)
	}
	return check, extension, failed
}

func ignoreMissing[D any](d *D, err error, failed *error) *D {
	switch {
	case err == nil:
		return d
	case !IsNotFound(err) && !IsDamaged(err):
		*failed = err
	}
	return nil
}

// AppendAudit appends lines to the audit trail of a service, or of an application if service is empty. It is idempotent: existing lines
// do not change, so the same lines can be appended again, alone or together with later ones. A line is identified by its number and its
// time, because a service that was removed and created again counts from one again. Lines of concurrent writers are all kept, and each
// is returned once.
func (s *Store) AppendAudit(ctx context.Context, application, service string, lines []entities.AuditEntry) error {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return err
	}
	lines = sortByTime(slices.Clone(lines))
	if len(lines) == 0 {
		return nil
	}
	from, to := numbersOf(lines)
	type recordID struct {
		at int64
		n  int64
	}
	known, damaged := map[recordID]bool{}, map[string]bool{}
	for _, c := range chunks {
		if c.to < from || c.from > to {
			continue
		}
		stored, err := s.readChunk(ctx, c.key)
		if IsDamaged(err) { // its lines are written again
			damaged[c.key] = true
			continue
		}
		if err != nil {
			return err
		}
		for _, l := range stored {
			known[recordID{l.At.UnixNano(), l.N}] = true
		}
	}
	lines = slices.DeleteFunc(lines, func(l entities.AuditEntry) bool { return known[recordID{l.At.UnixNano(), l.N}] })
	if len(lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	for _, line := range lines {
		if err := out.Encode(line); err != nil {
			return fmt.Errorf("write the audit trail of %s/%s: %w", application, service, err)
		}
	}
	from, to = numbersOf(lines)
	key := fmt.Sprintf("%s%s-%012d-%012d", auditPrefix(application, service), lines[0].At.UTC().Format(chunkTime), from, to)
	if damaged[key] {
		return s.blobs.write(ctx, key, b.Bytes())
	}
	_, err = s.blobs.create(ctx, key, b.Bytes())
	return err
}

// Audit returns the stored audit trail of a service, or of an application if service is empty. Lines are in the order in which they were
// recorded, also if the clock of the server was set back, each once. A line that reports the damage replaces damaged lines.
func (s *Store) Audit(ctx context.Context, application, service string) ([]entities.AuditEntry, error) {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return nil, err
	}
	parts, damaged, err := eachChunk(ctx, chunks, s.readChunk)
	if err != nil {
		return nil, err
	}
	var lines []entities.AuditEntry
	for n, c := range chunks {
		if damaged[n] != nil {
			parts[n] = []entities.AuditEntry{{N: c.from, At: c.at, Kind: "damaged", Text: fmt.Sprintf("lines %d to %d: %s", c.from, c.to, damaged[n])}}
		}
		lines = append(lines, parts[n]...)
	}
	return trail.InOrder(sortByTime(lines)), nil // concurrent writers may have stored the same lines
}

// Audited lists the services of an application that have an audit trail, including removed services, sorted.
func (s *Store) Audited(ctx context.Context, application string) ([]string, error) {
	prefix := trails + application + "/"
	keys, err := s.blobs.list(ctx, prefix)
	var services []string
	for _, key := range keys { // sorted
		service, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		if service != applicationTrail && (len(services) == 0 || services[len(services)-1] != service) {
			services = append(services, service)
		}
	}
	return services, err
}

const chunkTime = "20060102T150405.000000000"

// auditChunk is a piece of a trail that was written at once: a range of line numbers.
type auditChunk struct {
	key      string
	at       time.Time // time of its first line
	from, to int64
}

func (s *Store) auditChunks(ctx context.Context, application, service string) ([]auditChunk, error) {
	prefix := auditPrefix(application, service)
	names, err := s.blobs.list(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var chunks []auditChunk
	for _, name := range names {
		c := auditChunk{key: name}
		at, numbers, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		c.at, _ = time.Parse(chunkTime, at) // the name always has this format
		n, err := fmt.Sscanf(numbers, "%d-%d", &c.from, &c.to)
		if err == nil && n == 2 && !strings.HasSuffix(name, ".tmp") {
			chunks = append(chunks, c)
		}
	}
	return chunks, nil
}

func (s *Store) readChunk(ctx context.Context, key string) ([]entities.AuditEntry, error) {
	data, known := s.cache.get(key)
	if !known {
		read, err := s.blobs.read(ctx, key)
		if err != nil {
			return nil, err
		}
		data = read
	}
	raw := data.([]byte)
	var lines []entities.AuditEntry
	for in := json.NewDecoder(bytes.NewReader(raw)); in.More(); {
		var line entities.AuditEntry
		if err := in.Decode(&line); err != nil {
			return nil, &CorruptError{key, "it is not part of an audit trail"}
		}
		lines = append(lines, line)
	}
	if !known {
		s.cache.put(key, raw, len(raw))
	}
	return lines, nil
}

// sortByTime sorts lines and drops duplicates.
func sortByTime(lines []entities.AuditEntry) []entities.AuditEntry {
	slices.SortStableFunc(lines, compareTime)
	return slices.CompactFunc(lines, func(a, b entities.AuditEntry) bool { return compareTime(a, b) == 0 })
}

func compareTime(a, b entities.AuditEntry) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.N, b.N))
}

// numbersOf returns the lowest and the highest number of lines.
func numbersOf(lines []entities.AuditEntry) (from, to int64) {
	from, to = lines[0].N, lines[0].N
	for _, l := range lines {
		from, to = min(from, l.N), max(to, l.N)
	}
	return from, to
}

// applicationTrail replaces the service's name in the key of an application's trail. No service name begins with an underscore.
const applicationTrail = "_application"

const trails = "audit/"

func auditPrefix(application, service string) string {
	if service == "" {
		service = applicationTrail
	}
	return trails + application + "/" + service + "/"
}

// PutPause stores a pause of an application or a runtime, so that services that start later find it. A pause whose Pause is nil ends it.
// Application is empty for a pause of a runtime and for a pause of everything.
func (s *Store) PutPause(ctx context.Context, application string, pause protocol.ScopePause) error {
	key := pauseKey(application, pause.Scope)
	if pause.Pause == nil {
		return s.blobs.remove(ctx, key)
	}
	data, err := json.Marshal(pause)
	if err != nil {
		return fmt.Errorf("write %s to the store: %w", key, err)
	}
	return s.blobs.write(ctx, key, data)
}

// PutPauseEnded records which pause has ended, for services that were not running at that time.
func (s *Store) PutPauseEnded(ctx context.Context, application string, ended protocol.PauseEnded) error {
	data, err := json.Marshal(ended)
	if err != nil {
		return fmt.Errorf("write that the pause of %s has ended to the store: %w", ended.Scope, err)
	}
	return s.blobs.write(ctx, endedPauses+pauseName(application, ended.Scope), data)
}

// PausesEnded returns the last ended pauses of everything, of an application and of runtimes. It omits a damaged record: a service that
// received the notification relies on that until the next pause and resume.
func (s *Store) PausesEnded(ctx context.Context, application string) (all []protocol.PauseEnded, err error) {
	keys, err := s.blobs.list(ctx, endedPauses)
	for _, key := range keys {
		if name, of := strings.CutPrefix(key, endedPauses+"application/"); of && name != application {
			continue
		}
		data, err := s.blobs.read(ctx, key)
		if IsNotFound(err) {
			continue // a temporary file of a writer
		}
		if err != nil {
			return nil, err
		}
		var ended protocol.PauseEnded
		if json.Unmarshal(data, &ended) == nil && key == endedPauses+pauseName(application, ended.Scope) {
			all = append(all, ended)
		}
	}
	return all, err
}

// Pauses returns the pauses in force of everything, of an application and of runtimes, in that order. It omits pauses that exclude the
// application.
func (s *Store) Pauses(ctx context.Context, application string, runtimes []string) ([]protocol.ScopePause, error) {
	keys := []string{pauseKey("", entities.ScopeInstallation), pauseKey(application, entities.ScopeApplication)}
	for _, name := range runtimes {
		keys = append(keys, pauseKey(application, protocol.RuntimeID(name)))
	}
	var pauses []protocol.ScopePause
	for _, key := range keys {
		data, err := s.blobs.read(ctx, key)
		if IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var pause protocol.ScopePause
		if err := json.Unmarshal(data, &pause); err != nil || pause.Pause == nil {
			pause = damagedPause(key)
		}
		if pause.Pause.Excludes(application) {
			continue
		}
		pauses = append(pauses, pause)
	}
	return pauses, nil
}

// PausedRuntimes returns the names of the runtimes that are paused, sorted.
func (s *Store) PausedRuntimes(ctx context.Context) (names []string, err error) {
	prefix := pauseKey("", entities.ScopeRuntime)
	keys, err := s.blobs.list(ctx, prefix)
	for _, key := range keys {
		if name := strings.TrimPrefix(key, prefix); !strings.HasPrefix(name, ".") { // a crashed writer left it
			names = append(names, name)
		}
	}
	return names, err
}

// damagedPause replaces a pause whose record is damaged. It is in force until the next pause and resume.
func damagedPause(key string) protocol.ScopePause {
	scope := strings.TrimPrefix(key, "holds/")
	if strings.HasPrefix(scope, "application/") {
		scope = "application"
	}
	return protocol.ScopePause{Scope: scope, Pause: &entities.Pause{
		By: "unknown", At: time.Unix(0, 0).UTC(), Reason: "the store's " + key + " is damaged; pause and resume again",
	}}
}

const endedPauses = "resumed/"

func pauseKey(application, scope string) string { return "holds/" + pauseName(application, scope) }

// pauseName returns the name of a pause in its key. A runtime's pause is the same for every application.
func pauseName(application, scope string) string {
	if scope == entities.ScopeApplication {
		return "application/" + application
	}
	return scope
}
