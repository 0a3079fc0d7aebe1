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

// marks are what is referred to: content by its digest, and versions and numbers by what they are called in an application.
type marks struct {
	of *collection

	mu      sync.Mutex
	digests map[string]bool
	// versions and numbers that there are, by application and by name, and which of them are named. Application "" names those of all.
	known map[string]map[string][]entry
	named map[string]bool // by key
}

func newMarks(c *collection) *marks {
	m := &marks{of: c, digests: map[string]bool{}, known: map[string]map[string][]entry{}, named: map[string]bool{}}
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

// nameOf is how the record of a version or a number is referred to.
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

// text takes in what a text refers to.
func (m *marks) text(application string, text []byte) {
	words(text, func(word string) {
		if isDigest(word) {
			m.digest(word)
		}
		m.name(application, word)
	})
}

func (m *marks) digest(digest string) {
	if m.of.content[digest] == nil {
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

// standing takes in the records that hold now, and what was written down and done not long ago.
func (m *marks) standing(ctx context.Context) error {
	return m.each(ctx, m.of.records, func(ctx context.Context, e entry) error {
		if !m.holds(e) {
			return nil
		}
		data, err := m.of.store.record(ctx, e.key)
		if IsNotFound(err) {
			return nil // it was replaced by a later one, of which all was put not long ago
		}
		if err != nil {
			return err
		}
		m.text(applicationOf(e.key), data)
		return nil
	})
}

// past are records of what was: they refer to what they are of as long as they are young, or named.
var past = []string{"versions/", "numbers/", trails, joints, reports, plans}

// silent are records that name no content: claims, tokens, who works here, which keys there are, what commands printed.
var silent = []string{"fence/", tokens, presences, "leases/", "restarts/", "keys/", "logs/", installations, directories}

// holds tells whether a record refers to something whoever names it.
func (m *marks) holds(e entry) bool {
	of := func(folder string) bool { return strings.HasPrefix(e.key, folder) }
	switch {
	case slices.ContainsFunc(silent, of):
		return false
	case slices.ContainsFunc(past, of):
		return m.young(e)
	}
	return true
}

// young tells whether a record is from the time that is kept. Lines of a trail were written when they say, wherever they lie since.
func (m *marks) young(e entry) bool {
	at := e.at
	if strings.HasPrefix(e.key, trails) {
		begins, _, _ := strings.Cut(path.Base(e.key), "-")
		if written, err := time.Parse(chunkTime, begins); err == nil {
			at = written
		}
	}
	return m.of.Now.Sub(at) < max(m.of.Keep, m.of.Grace)
}

// past takes in what the versions and numbers that are named are of, and the newest numbers.
func (m *marks) past(ctx context.Context) error {
	m.newest()
	for done := map[string]bool{}; ; {
		var named []entry
		for _, e := range m.of.records {
			if (m.named[e.key] || m.unnamed(e)) && !done[e.key] && !m.young(e) {
				named, done[e.key] = append(named, e), true
			}
		}
		if len(named) == 0 {
			return nil
		}
		err := m.each(ctx, named, func(ctx context.Context, e entry) error {
			data, err := m.of.store.record(ctx, e.key)
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

// unnamed: of a very long version only its beginning is known, so that nobody knows who names it.
func (m *marks) unnamed(e entry) bool {
	return strings.HasPrefix(e.key, "versions/") && len(path.Base(e.key)) > readableVersion
}

// newest names the newest numbers of each application.
func (m *marks) newest() {
	last := map[string][]string{}
	for _, e := range m.of.records { // sorted
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
	g.SetLimit(tracedAtOnce)
	for _, e := range entries {
		g.Go(func() error { return cmp.Or(do(ctx, e), m.of.held.renew(ctx)) })
	}
	return g.Wait()
}

// record reads what lies under a key past what is remembered, and refuses what is damaged.
func (s *Store) record(ctx context.Context, key string) ([]byte, error) {
	data, err := s.blobs.read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case strings.HasPrefix(key, checkpoints):
		_, err = parseCheckpoint(key, data)
	case strings.HasPrefix(key, trails):
		_, err = s.auditLines(ctx, key)
	case path.Base(key) == "current" && strings.HasPrefix(key, "runtimes/"):
		if !isDigest(string(data)) {
			err = &CorruptError{key, "it names no definition"}
		}
	case !json.Valid(data) || isSealed(data) && !unbroken(data):
		err = &CorruptError{key, "its content is not what was written"}
	}
	return data, err
}

// applicationOf is whose versions and numbers a record may name; "": anybody's.
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

// ApplicationOfWorkflow is whose versions and numbers a workflow may name, by its id; "": anybody's.
func ApplicationOfWorkflow(id string) string {
	kind, rest, _ := strings.Cut(id, "/")
	application, _, _ := strings.Cut(rest, "/")
	if slices.Contains([]string{"service", "application", "plan", "preview"}, kind) {
		return application
	}
	return ""
}
