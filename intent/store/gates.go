package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
	var known []entities.AuditLine
	for _, c := range chunks {
		if c.to < from || c.from > to {
			continue
		}
		there, err := s.auditLines(ctx, c.key)
		if err != nil {
			return err
		}
		known = append(known, there...)
	}
	lines = slices.DeleteFunc(lines, func(l entities.AuditLine) bool {
		return slices.ContainsFunc(known, func(k entities.AuditLine) bool { return inTime(k, l) == 0 })
	})
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
	key := fmt.Sprintf("%s%s-%012d-%012d", auditPrefix(application, service), lines[0].At.UTC().Format("20060102T150405.000000000"), from, to)
	_, err = s.blobs.create(ctx, key, b.Bytes())
	return err
}

// Audit returns the audit trail of a service, or of an application when service is empty, as far as
// it was kept: in the order in which it was written, each line once.
func (s *Store) Audit(ctx context.Context, application, service string) ([]entities.AuditLine, error) {
	chunks, err := s.auditChunks(ctx, application, service)
	if err != nil {
		return nil, err
	}
	var lines []entities.AuditLine
	for _, c := range chunks {
		there, err := s.auditLines(ctx, c.key)
		if err != nil {
			return nil, err
		}
		lines = append(lines, there...)
	}
	return inOrder(lines), nil // what writers at once kept overlaps
}

// auditChunk is a piece of a trail that was written at once: lines from one number to another.
type auditChunk struct {
	key      string
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
		_, numbers, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		n, err := fmt.Sscanf(numbers, "%d-%d", &c.from, &c.to)
		if err == nil && n == 2 && !strings.HasSuffix(name, ".tmp") {
			chunks = append(chunks, c)
		}
	}
	return chunks, nil
}

func (s *Store) auditLines(ctx context.Context, key string) ([]entities.AuditLine, error) {
	data, err := s.once(ctx, key)
	if err != nil {
		return nil, err
	}
	var lines []entities.AuditLine
	for in := json.NewDecoder(bytes.NewReader(data)); in.More(); {
		var line entities.AuditLine
		if err := in.Decode(&line); err != nil {
			return nil, &CorruptError{key, "it is no part of an audit trail"}
		}
		lines = append(lines, line)
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
func auditPrefix(application, service string) string {
	if service == "" {
		service = "_application"
	}
	return "audit/" + application + "/" + service + "/"
}

// PutPause keeps a pause of an application or a runtime where services that start later find it. A
// pause whose Pause is nil ends it. Application is empty for a runtime's.
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

// Pauses returns the pauses in force of an application and of runtimes, in that order.
func (s *Store) Pauses(ctx context.Context, application string, runtimes []string) ([]protocol.ScopePause, error) {
	keys := []string{pauseKey(application, "application")}
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
			return nil, &CorruptError{key, "it is no pause"}
		}
		pauses = append(pauses, pause)
	}
	return pauses, nil
}

// pauseKey: a runtime's pause is everybody's, whichever application asks.
func pauseKey(application, scope string) string {
	if scope == "application" {
		return "holds/application/" + application
	}
	return "holds/" + scope
}
