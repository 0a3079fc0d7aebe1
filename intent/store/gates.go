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
)

// PutCheck keeps how a check is evaluated and returns its digest.
func (s *Store) PutCheck(ctx context.Context, definition entities.CheckDefinition) (string, error) {
	return s.putJSON(ctx, "checks/", definition)
}

// Check returns how the check of a digest is evaluated.
func (s *Store) Check(ctx context.Context, digest string) (entities.CheckDefinition, error) {
	return getJSON[entities.CheckDefinition](ctx, s, "checks/", digest)
}

// PutExtension keeps what an extension runs and returns its digest.
func (s *Store) PutExtension(ctx context.Context, definition entities.ExtensionDefinition) (string, error) {
	return s.putJSON(ctx, "extensions/", definition)
}

// Extension returns what the extension of a digest runs.
func (s *Store) Extension(ctx context.Context, digest string) (entities.ExtensionDefinition, error) {
	return getJSON[entities.ExtensionDefinition](ctx, s, "extensions/", digest)
}

// Definitions give how checks are judged and what extensions run, or nil where it is lost. What else went wrong while they
// were read is in the error that failed points to.
func (s *Store) Definitions(ctx context.Context) (check func(string) *entities.CheckDefinition, extension func(string) *entities.ExtensionDefinition, failed *error) {
	failed = new(error)
	check = func(digest string) *entities.CheckDefinition {
		d, err := s.Check(ctx, digest)
		return kept(&d, err, failed)
	}
	extension = func(digest string) *entities.ExtensionDefinition {
		d, err := s.Extension(ctx, digest)
		return kept(&d, err, failed)
	}
	return check, extension, failed
}

func kept[D any](d *D, err error, failed *error) *D {
	switch {
	case err == nil:
		return d
	case !IsNotFound(err) && !IsDamaged(err):
		*failed = err
	}
	return nil
}

// AppendAudit keeps lines of the audit trail of a service, or of an application when service is
// empty. Lines that are there already are left as they are, so that the same ones may be appended
// again, alone or together with later ones. A line is known by its number and its time: a service
// that was taken down and begins anew counts from one again. Of several writers at once, every line
// is kept, and read once.
func (s *Store) AppendAudit(ctx context.Context, application, service string, lines []entities.AuditLine) error {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return err
	}
	lines = inOrder(slices.Clone(lines))
	if len(lines) == 0 {
		return nil
	}
	from, to := numbersOf(lines)
	type name struct {
		at int64
		n  int64
	}
	known, damaged := map[name]bool{}, map[string]bool{}
	for _, c := range chunks {
		if c.to < from || c.from > to {
			continue
		}
		there, err := s.auditLines(ctx, c.key)
		if IsDamaged(err) { // what it had is written again
			damaged[c.key] = true
			continue
		}
		if err != nil {
			return err
		}
		for _, l := range there {
			known[name{l.At.UnixNano(), l.N}] = true
		}
	}
	lines = slices.DeleteFunc(lines, func(l entities.AuditLine) bool { return known[name{l.At.UnixNano(), l.N}] })
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

// Audit returns the audit trail of a service, or of an application when service is empty, as far as
// it was kept: in the order in which it was written, each line once. In the place of lines that are damaged stands one
// that says so.
func (s *Store) Audit(ctx context.Context, application, service string) ([]entities.AuditLine, error) {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return nil, err
	}
	there, damaged, err := eachChunk(ctx, chunks, s.auditLines)
	if err != nil {
		return nil, err
	}
	var lines []entities.AuditLine
	for n, c := range chunks {
		if damaged[n] != nil {
			there[n] = []entities.AuditLine{{N: c.from, At: c.at, Kind: "damaged", Text: fmt.Sprintf("lines %d to %d: %s", c.from, c.to, damaged[n])}}
		}
		lines = append(lines, there[n]...)
	}
	return inOrder(lines), nil // what writers at once kept overlaps
}

// Audited lists the services of an application of which a trail is kept, those that were removed too, in order.
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

// auditChunk is a piece of a trail that was written at once: lines from one number to another.
type auditChunk struct {
	key      string
	at       time.Time // of its first line
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
		c.at, _ = time.Parse(chunkTime, at) // of no other form
		n, err := fmt.Sscanf(numbers, "%d-%d", &c.from, &c.to)
		if err == nil && n == 2 && !strings.HasSuffix(name, ".tmp") {
			chunks = append(chunks, c)
		}
	}
	return chunks, nil
}

func (s *Store) auditLines(ctx context.Context, key string) ([]entities.AuditLine, error) {
	data, known := s.cache.get(key)
	if !known {
		read, err := s.blobs.read(ctx, key)
		if err != nil {
			return nil, err
		}
		data = read
	}
	raw := data.([]byte)
	var lines []entities.AuditLine
	for in := json.NewDecoder(bytes.NewReader(raw)); in.More(); {
		var line entities.AuditLine
		if err := in.Decode(&line); err != nil {
			return nil, &CorruptError{key, "it is no part of an audit trail"}
		}
		lines = append(lines, line)
	}
	if !known {
		s.cache.put(key, raw, len(raw))
	}
	return lines, nil
}

// inOrder sorts lines and drops those that are there twice.
func inOrder(lines []entities.AuditLine) []entities.AuditLine {
	slices.SortStableFunc(lines, inTime)
	return slices.CompactFunc(lines, func(a, b entities.AuditLine) bool { return inTime(a, b) == 0 })
}

func inTime(a, b entities.AuditLine) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.N, b.N)) }

// numbersOf is the least and the greatest number of lines.
func numbersOf(lines []entities.AuditLine) (from, to int64) {
	from, to = lines[0].N, lines[0].N
	for _, l := range lines {
		from, to = min(from, l.N), max(to, l.N)
	}
	return from, to
}

// auditPrefix sets the trail of an application apart from that of any service: no service is named
// with an underscore in front.
// applicationTrail stands in the place of a service.
const applicationTrail = "_application"

const trails = "audit/"

func auditPrefix(application, service string) string {
	if service == "" {
		service = applicationTrail
	}
	return trails + application + "/" + service + "/"
}

// PutPause keeps a pause of an application or a runtime where services that start later find it. A
// pause whose Pause is nil ends it. Application is empty for a runtime's, and for that of everything.
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

// PutPauseEnded keeps which pause of something has ended, where services find it that were away then.
func (s *Store) PutPauseEnded(ctx context.Context, application string, ended protocol.PauseEnded) error {
	data, err := json.Marshal(ended)
	if err != nil {
		return fmt.Errorf("write that the pause of %s has ended to the store: %w", ended.Scope, err)
	}
	return s.blobs.write(ctx, endedPauses+pauseName(application, ended.Scope), data)
}

// PausesEnded are the last pauses that have ended of everything, of an application and of runtimes. One whose record is
// damaged is left out: a service that was told of it goes by that, until it is paused and resumed once more.
func (s *Store) PausesEnded(ctx context.Context, application string) (all []protocol.PauseEnded, err error) {
	keys, err := s.blobs.list(ctx, endedPauses)
	for _, key := range keys {
		if name, of := strings.CutPrefix(key, endedPauses+"application/"); of && name != application {
			continue
		}
		data, err := s.blobs.read(ctx, key)
		if IsNotFound(err) {
			continue // what a writer had under another name just now
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

// Pauses returns the pauses in force of everything, of an application and of runtimes, in that order, but for one that
// leaves that application alone.
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
			pause = unreadable(key)
		}
		if pause.Pause.Spares(application) {
			continue
		}
		pauses = append(pauses, pause)
	}
	return pauses, nil
}

// PausedRuntimes are the names of the runtimes of which a pause is in force, sorted.
func (s *Store) PausedRuntimes(ctx context.Context) (names []string, err error) {
	prefix := pauseKey("", entities.ScopeRuntime)
	keys, err := s.blobs.list(ctx, prefix)
	for _, key := range keys {
		if name := strings.TrimPrefix(key, prefix); !strings.HasPrefix(name, ".") { // what a writer that died left behind
			names = append(names, name)
		}
	}
	return names, err
}

// unreadable is a pause whose record is damaged: in force, until it is paused and resumed once more.
func unreadable(key string) protocol.ScopePause {
	scope := strings.TrimPrefix(key, "holds/")
	if strings.HasPrefix(scope, "application/") {
		scope = "application"
	}
	return protocol.ScopePause{Scope: scope, Pause: &entities.Pause{
		By: "unknown", At: time.Unix(0, 0).UTC(), Reason: "the store's " + key + " is damaged; pause and resume once more",
	}}
}

const endedPauses = "resumed/"

func pauseKey(application, scope string) string { return "holds/" + pauseName(application, scope) }

// pauseName: a runtime's pause is everybody's, whichever application asks.
func pauseName(application, scope string) string {
	if scope == entities.ScopeApplication {
		return "application/" + application
	}
	return scope
}
