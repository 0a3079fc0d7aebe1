package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// This file collects content that nothing refers to any more. Only what is named by its digest is collected: what it was of can be
// made again, and records, trails and numbers, which cannot, are small and stay.

// Collection says how to collect. Of content nothing refers to that is older than Grace it sets aside, and removes what has been
// set aside for as long: whoever puts something into the store, or reads what is there to refer to it, has that time to do so.
type Collection struct {
	By    string
	Now   time.Time
	Grace time.Duration
	// Keep is how long what was released, published and written down refers to what it was of.
	Keep time.Duration
	// DryRun changes nothing, and says what would be.
	DryRun bool
	// Texts hands over what refers to content beside the store itself: what Temporal has. Application is whose it is; "": anybody's.
	// It may hand over several at once. An error of it ends the collection.
	Texts func(ctx context.Context, take func(application string, text []byte) error) error
}

// Count is how many, and of how many bytes.
type Count struct {
	N     int   `json:"n"`
	Bytes int64 `json:"bytes"`
}

func (c *Count) add(e entry) { c.N, c.Bytes = c.N+1, c.Bytes+e.size }

// CollectedKind is what became of one kind of content: what Kept counts was in its place and stays there, Waiting was set aside
// before, and stays aside for now, or came back. SetAside and Removed were done now.
type CollectedKind struct {
	Kind     string `json:"kind"`
	Kept     Count  `json:"kept"`
	SetAside Count  `json:"setAside"`
	Waiting  Count  `json:"waiting"`
	Returned Count  `json:"returned"`
	Removed  Count  `json:"removed"`
}

// The kinds that are no content: records, which stay, and what writers that died left behind.
const (
	kindRecords    = "records"
	kindLeftBehind = "left behind"
)

// keptNumbers is how many of an application's incarnations stay, whatever refers to them.
const keptNumbers = 10

// Collect collects once, and says what it found of each kind, by name. What cannot be read ends it before anything was changed. It may
// be cut off at any moment, and runs beside all that uses the store, but not beside itself.
func (s *Store) Collect(ctx context.Context, o Collection) ([]CollectedKind, error) {
	held, err := s.holdCollection(ctx, o)
	if err != nil {
		return nil, err
	}
	defer held.giveBack()
	all, err := s.blobs.entries(ctx, "")
	if err != nil {
		return nil, err
	}
	c := &collection{Collection: o, store: s, held: held, kinds: map[string]*CollectedKind{}}
	if err := c.sort(all); err != nil {
		return nil, err
	}
	marked, err := c.mark(ctx)
	if err == nil {
		err = c.sweep(ctx, marked)
	}
	names := slices.Sorted(maps.Keys(c.kinds))
	out := make([]CollectedKind, 0, len(names))
	for _, name := range names {
		out = append(out, *c.kinds[name])
	}
	return out, err
}

// collection is one that goes on.
type collection struct {
	Collection
	store   *Store
	held    *collectionLease
	records []entry            // all but content
	content map[string][]entry // by digest, in its place and set aside
	there   map[string]bool    // the keys of content in its place
	behind  []entry

	mu    sync.Mutex
	kinds map[string]*CollectedKind
}

func (c *collection) kind(name string) *CollectedKind {
	if c.kinds[name] == nil {
		c.kinds[name] = &CollectedKind{Kind: name}
	}
	return c.kinds[name]
}

func (c *collection) count(name string, of func(*CollectedKind) *Count, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of(c.kind(name)).add(e)
}

// sort tells content from the rest. A folder that is not known is one of a later version, whose records may refer to anything.
func (c *collection) sort(all []entry) error {
	c.there = map[string]bool{}
	var content []entry
	for _, e := range all {
		folder, _, _ := strings.Cut(e.key, "/")
		if _, known := folders[folder+"/"]; !known {
			return fmt.Errorf("the store has %s, which this version does not know; collect with the version that wrote it [unknown-folder]", e.key)
		}
		switch key := strings.TrimPrefix(e.key, unreferenced); {
		case folder == "leases": // this collection's own is among them
		case isUnfinished(e.key):
			c.behind = append(c.behind, e)
		case isContent(key):
			content = append(content, e)
			c.there[e.key] = key == e.key
		default:
			c.records = append(c.records, e)
			c.kind(kindRecords).Kept.add(e)
		}
	}
	c.content = contentsOf(content)
	return nil
}

// isUnfinished: a file that a writer that died left behind, or one that is being written.
func isUnfinished(key string) bool {
	base := key[strings.LastIndexByte(key, '/')+1:]
	return strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".tmp")
}

func (c *collection) age(e entry) time.Duration { return c.Now.Sub(e.at) }

// stays: it was put, brought back or set aside not long ago, and what is does not follow from what refers to it.
func (c *collection) stays(e entry) bool { return c.age(e) < c.Grace }

// mark returns the digests of all that stays: what is referred to, what is young, what that names, and what is named by what was
// set aside not long ago, or is now: that may come back.
func (c *collection) mark(ctx context.Context) (map[string]bool, error) {
	roots, err := c.roots(ctx)
	if err != nil {
		return nil, err
	}
	referred, err := c.reach(ctx, roots)
	if err != nil {
		return nil, err
	}
	var later []string
	for digest, entries := range c.content {
		due := !slices.ContainsFunc(entries, func(e entry) bool { return c.there[e.key] || c.stays(e) })
		if !due && !referred[digest] {
			later = append(later, digest)
		}
	}
	aside, err := c.reach(ctx, later)
	if err != nil {
		return nil, err
	}
	for digest := range aside {
		if !referred[digest] {
			referred[digest] = false // it is set aside, or stays so
		}
	}
	return referred, nil
}

// roots are the digests that records and Temporal name, and those of what is young.
func (c *collection) roots(ctx context.Context) ([]string, error) {
	m := newMarks(c)
	if err := m.standing(ctx); err != nil {
		return nil, err
	}
	if c.Texts != nil {
		take := func(application string, text []byte) error {
			m.text(application, text)
			return c.held.renew(ctx)
		}
		if err := c.Texts(ctx, take); err != nil {
			return nil, err
		}
	}
	if err := m.past(ctx); err != nil {
		return nil, err
	}
	for digest, entries := range c.content {
		if slices.ContainsFunc(entries, func(e entry) bool { return c.there[e.key] && c.stays(e) }) {
			m.digests[digest] = true
		}
	}
	return slices.Sorted(maps.Keys(m.digests)), nil
}

// reach are digests and all that they name, directly or not. What is named and cannot be read might have named something.
func (c *collection) reach(ctx context.Context, from []string) (map[string]bool, error) {
	var mu sync.Mutex
	reached := map[string]bool{}
	err := trace(ctx, from, func(ctx context.Context, digest string) (named []string, err error) {
		mu.Lock()
		reached[digest] = true
		mu.Unlock()
		for _, e := range c.content[digest] {
			some, err := c.named(ctx, digest, e)
			if err != nil {
				return nil, err
			}
			named = append(named, some...)
		}
		return named, c.held.renew(ctx)
	})
	return reached, err
}

func (c *collection) named(ctx context.Context, digest string, e entry) ([]string, error) {
	key := strings.TrimPrefix(e.key, unreferenced)
	if isLeaf(key) {
		return nil, nil
	}
	data, err := c.store.blobs.read(ctx, e.key)
	if IsNotFound(err) { // brought back since
		data, err = c.store.blobs.read(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	if err := c.store.checked(key, digest, data); err != nil {
		return nil, err
	}
	return c.known(digestsIn(key, data)), nil
}

// known are the digests of which there is something.
func (c *collection) known(digests []string) []string {
	return slices.DeleteFunc(digests, func(digest string) bool { return c.content[digest] == nil })
}

// sweep does what follows. What names something is set aside, and removed, before that is: so whatever is in its place has all that
// it names there, too.
func (c *collection) sweep(ctx context.Context, marked map[string]bool) error {
	byRank := map[int][]func(context.Context) error{}
	for digest, entries := range c.content {
		for _, e := range entries {
			rank := rankOf(strings.TrimPrefix(e.key, unreferenced))
			byRank[rank] = append(byRank[rank], func(ctx context.Context) error { return c.dispose(ctx, digest, e, marked) })
		}
	}
	for _, e := range c.behind {
		byRank[0] = append(byRank[0], func(ctx context.Context) error { return c.tidy(ctx, e) })
	}
	for _, n := range slices.Sorted(maps.Keys(byRank)) {
		g, rank := errgroup.WithContext(ctx) // what has begun ends, whatever becomes of the others: a file system would go on with it later, while the next collection looks
		g.SetLimit(archivedAtOnce)
		for _, do := range byRank[n] {
			g.Go(func() error {
				if err := cmp.Or(rank.Err(), c.held.renew(ctx)); err != nil {
					return err
				}
				return do(ctx)
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// rankOf sorts kinds so that each comes before those that it names.
func rankOf(key string) int {
	folder, _, _ := strings.Cut(key, "/")
	ranks := map[string]int{"states": 1, "manifests": 2, "incarnations": 2, "specs": 4, "payloads": 4, "checks": 5, "extensions": 5, "runtimes": 6}
	switch rank, known := ranks[folder]; {
	case isLeaf(key):
		return 7
	case known:
		return rank
	}
	return 3
}

// dispose does what follows for one piece of content. Marked: it is referred to; marked as false: only by what is set aside.
func (c *collection) dispose(ctx context.Context, digest string, e entry, marked map[string]bool) error {
	key := strings.TrimPrefix(e.key, unreferenced)
	referred, named := marked[digest]
	inPlace := c.there[e.key]
	kind, _, _ := strings.Cut(key, "/")
	switch {
	case inPlace && referred:
		c.count(kind, func(k *CollectedKind) *Count { return &k.Kept }, e)
		return nil
	case inPlace:
		c.count(kind, func(k *CollectedKind) *Count { return &k.SetAside }, e)
		return c.unlessDry(func() error { return c.move(ctx, key) })
	case c.there[key] && referred: // it came back before
		c.count(kind, func(k *CollectedKind) *Count { return &k.Returned }, e)
		return c.unlessDry(func() error { return c.store.blobs.remove(ctx, e.key) })
	case c.there[key]: // it came back before, and is set aside over this once more
		return nil
	case referred:
		c.count(kind, func(k *CollectedKind) *Count { return &k.Returned }, e)
		return c.unlessDry(func() error { return c.giveBack(ctx, key) })
	case named || c.stays(e):
		c.count(kind, func(k *CollectedKind) *Count { return &k.Waiting }, e)
		return nil
	}
	c.count(kind, func(k *CollectedKind) *Count { return &k.Removed }, e)
	return c.unlessDry(func() error { return c.store.blobs.remove(ctx, e.key) })
}

func (c *collection) unlessDry(do func() error) error {
	if c.DryRun {
		return nil
	}
	return do()
}

// move sets aside. What this process remembers of it is forgotten: it reads it from where it is.
func (c *collection) move(ctx context.Context, key string) error {
	err := c.store.blobs.move(ctx, key, unreferenced+key)
	c.store.cache.drop(key)
	if IsNotFound(err) {
		return nil
	}
	return err
}

func (c *collection) giveBack(ctx context.Context, key string) error {
	data, err := c.store.blobs.read(ctx, unreferenced+key)
	if IsNotFound(err) {
		return nil // somebody else was faster
	}
	if err == nil {
		_, err = c.store.blobs.create(ctx, key, data)
	}
	if err == nil {
		err = c.store.blobs.remove(ctx, unreferenced+key)
	}
	return err
}

// tidy removes a file of a writer that died.
func (c *collection) tidy(ctx context.Context, e entry) error {
	if c.stays(e) {
		c.count(kindLeftBehind, func(k *CollectedKind) *Count { return &k.Kept }, e)
		return nil
	}
	c.count(kindLeftBehind, func(k *CollectedKind) *Count { return &k.Removed }, e)
	return c.unlessDry(func() error { return c.store.blobs.remove(ctx, e.key) })
}

// collectionScope is what the lease is for, since nobody else may collect meanwhile.
const collectionScope = "collection"

// How long a collection holds the store without renewing, and how often it renews.
const (
	collectionFor   = 15 * time.Minute
	collectionRenew = time.Minute
)

// collectionLease is held by whoever collects.
type collectionLease struct {
	store *Store
	by    string
	dry   bool

	mu   sync.Mutex
	n    int64
	last time.Time
}

// holdCollection waits for nobody.
func (s *Store) holdCollection(ctx context.Context, o Collection) (*collectionLease, error) {
	held := &collectionLease{store: s, by: o.By, dry: o.DryRun}
	if o.DryRun {
		return held, nil
	}
	n, holder, err := s.Lease(ctx, collectionScope)
	if err != nil {
		return nil, err
	}
	until, by, _ := strings.Cut(holder, " ")
	if at, err := time.Parse(time.RFC3339, until); err == nil && time.Now().Before(at) {
		return nil, fmt.Errorf("the store is being collected by %s; when that ends, or at %s, it can be again [collecting]", by, until)
	}
	held.n = n
	return held, held.renew(ctx)
}

var errOvertaken = errors.New("somebody else collects the store by now; what was not done is done by them [collecting]")

func (l *collectionLease) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dry || time.Since(l.last) < collectionRenew {
		return nil
	}
	return l.write(ctx, time.Now().Add(collectionFor).UTC().Format(time.RFC3339)+" "+l.by)
}

func (l *collectionLease) write(ctx context.Context, holder string) error {
	taken, err := l.store.TakeLease(ctx, collectionScope, l.n+1, holder)
	if err == nil && !taken {
		err = errOvertaken
	}
	if err == nil {
		l.n, l.last = l.n+1, time.Now()
	}
	return err
}

// giveBack lets others collect at once.
func (l *collectionLease) giveBack() {
	if l.dry {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.write(ctx, "") // else they can a little later
}
