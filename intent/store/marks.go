package store

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// marks are the references: content by its digest, and versions and numbers by their name in an application.
type marks struct {
	collection *collection

	mu      sync.Mutex
	digests map[string]bool
	// known holds the existing versions and numbers by application and name. Application "" includes all applications. named holds the
	// referenced ones.
	known map[string]map[string][]entry
	named map[string]bool // by key
}

func newMarks(c *collection) *marks {
	m := &marks{collection: c, digests: map[string]bool{}, known: map[string]map[string][]entry{}, named: map[string]bool{}}
	for _, e := range c.records {
		application, name, ok := nameOf(e.key)
		if !ok {
			continue
		}
		if m.known[application] == nil {
			m.known[application] = map[string][]entry{}
		}
		m.known[application][name] = append(m.known[application][name], e)
	}
	return m
}

// nameOf returns the name by which texts refer to the record of a version or a number.
func nameOf(key string) (application, name string, ok bool) {
	parts := strings.Split(key, "/")
	switch {
	case parts[0] == "versions" && len(parts) == 4:
		return parts[1], versionOf(key), true
	case parts[0] == "numbers" && len(parts) == 3:
		return parts[1], strings.TrimLeft(parts[2], "0"), true
	}
	return "", "", false
}

// text adds the references in a text.
func (m *marks) text(application string, text []byte) {
	words(text, func(word string) {
		if isDigest(word) {
			m.digest(word)
		}
		m.name(application, word)
	})
}

func (m *marks) digest(digest string) {
	if m.collection.content[digest] == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.digests[digest] = true
}

func (m *marks) name(application, word string) {
	if application == "" {
		for application := range m.known {
			m.name(application, word)
		}
		return
	}
	for _, e := range m.known[application][cmp.Or(strings.TrimLeft(word, "0"), word)] {
		m.mu.Lock()
		m.named[e.key] = true
		m.mu.Unlock()
	}
}

// addCurrent adds the references of current records, and of recent releases and audit lines.
func (m *marks) addCurrent(ctx context.Context) error {
	return m.each(ctx, m.collection.records, func(ctx context.Context, e entry) error {
		if !m.alwaysCounts(e) {
			return nil
		}
		data, err := m.collection.store.record(ctx, e.key)
		if IsNotFound(err) {
			return nil // a later record replaced it, and all its content is young
		}
		if err != nil {
			return err
		}
		m.text(applicationOf(e.key), data)
		return nil
	})
}

// historicalFolders lists the folders of historical records. Such a record counts as a reference while it is young or referenced.
var historicalFolders = []string{"versions/", "numbers/", trails, joints, reports, plans}

// folderWithoutReferences lists the folders of records that refer to no content: claims, tokens, workers, key ids, command output.
var folderWithoutReferences = []string{"fence/", tokens, presences, probes, "leases/", "keys/", "logs/", installations, directories}

// alwaysCounts reports whether a record's references count even if nothing refers to the record.
func (m *marks) alwaysCounts(e entry) bool {
	of := func(folder string) bool { return strings.HasPrefix(e.key, folder) }
	switch {
	case slices.ContainsFunc(folderWithoutReferences, of):
		return false
	case slices.ContainsFunc(historicalFolders, of):
		return m.isRecent(e)
	}
	return true
}

// isRecent reports whether a record is within Keep. The age of an audit chunk is the time in its name, even if it was moved later.
func (m *marks) isRecent(e entry) bool {
	at := e.at
	if strings.HasPrefix(e.key, trails) {
		start, _, _ := strings.Cut(path.Base(e.key), "-")
		if written, err := time.Parse(chunkTime, start); err == nil {
			at = written
		}
	}
	return m.collection.Now.Sub(at) < max(m.collection.Keep, m.collection.Grace)
}

// addHistorical adds the references of the named versions and numbers, and of the newest numbers.
func (m *marks) addHistorical(ctx context.Context) error {
	m.markNewest()
	for done := map[string]bool{}; ; {
		var named []entry
		for _, e := range m.collection.records {
			if (m.named[e.key] || m.hasTruncatedName(e)) && !done[e.key] && !m.isRecent(e) {
				named, done[e.key] = append(named, e), true
			}
		}
		if len(named) == 0 {
			return nil
		}
		err := m.each(ctx, named, func(ctx context.Context, e entry) error {
			data, err := m.collection.store.record(ctx, e.key)
			if err == nil {
				m.text(applicationOf(e.key), data)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// hasTruncatedName reports whether a version is too long for its key. Then only its beginning is known, and references to it cannot be
// found.
func (m *marks) hasTruncatedName(e entry) bool {
	return strings.HasPrefix(e.key, "versions/") && len(path.Base(e.key)) > readableVersion
}

// markNewest marks the newest numbers of each application as named.
func (m *marks) markNewest() {
	last := map[string][]string{}
	for _, e := range m.collection.records { // sorted
		if strings.HasPrefix(e.key, "numbers/") {
			last[path.Dir(e.key)] = append(last[path.Dir(e.key)], e.key)
		}
	}
	for _, keys := range last {
		for _, key := range keys[max(0, len(keys)-keptNumbers):] {
			m.named[key] = true
		}
	}
}

func (m *marks) each(ctx context.Context, entries []entry, do func(context.Context, entry) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(traceConcurrency)
	for _, e := range entries {
		g.Go(func() error { return cmp.Or(do(ctx, e), m.collection.lease.renew(ctx)) })
	}
	return g.Wait()
}

// record reads a key without the cache, and fails if the record is damaged.
func (s *Store) record(ctx context.Context, key string) ([]byte, error) {
	data, err := s.blobs.read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case strings.HasPrefix(key, checkpoints):
		_, err = parseCheckpoint(key, data)
	case strings.HasPrefix(key, trails):
		_, err = s.readChunk(ctx, key)
	case path.Base(key) == "current" && strings.HasPrefix(key, "runtimes/"):
		if !isDigest(string(data)) {
			err = &CorruptError{key, "it names no definition"}
		}
	case !json.Valid(data) || isSealed(data) && !isIntact(data):
		err = &CorruptError{key, "its content differs from what was written"}
	}
	return data, err
}

// applicationOf returns the application whose versions and numbers a record may refer to; "": any.
func applicationOf(key string) string {
	folder, rest, _ := strings.Cut(key, "/")
	switch folder + "/" {
	case checkpoints, missedMessages:
		return ApplicationOfWorkflow(rest)
	case "versions/", "numbers/", trails, joints, reports, plans, plansRunning, captures, notices:
		application, _, _ := strings.Cut(rest, "/")
		return application
	}
	return ""
}

// ApplicationOfWorkflow returns the application whose versions and numbers a workflow may refer to, by its id; "": any.
func ApplicationOfWorkflow(id string) string {
	kind, rest, _ := strings.Cut(id, "/")
	application, _, _ := strings.Cut(rest, "/")
	if slices.Contains([]string{"service", "application", "plan", "preview"}, kind) {
		return application
	}
	return ""
}
