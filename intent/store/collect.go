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

// This file collects unreferenced content. It only collects content that is named by its digest, because that can be created again.
// Records, trails and numbers cannot be created again. They are small and stay.

// Collection configures a collection. It sets aside unreferenced content that is older than Grace. It removes content that has been set
// aside for Grace. Grace is the time that a writer has between putting content, or reading existing content, and referring to it.
type Collection struct {
	By    string
	Now   time.Time
	Grace time.Duration
	// Keep is how long releases, publications and records keep their references to content.
	Keep time.Duration
	// DryRun changes nothing and reports the changes that a collection would make.
	DryRun bool
	// Texts passes references from outside the store: the data in Temporal. Application is the owner of the text; "": any application.
	// It may call take concurrently. An error of it ends the collection.
	Texts func(ctx context.Context, take func(application string, text []byte) error) error
}

// Count is a number of entries and their size in bytes.
type Count struct {
	N     int   `json:"n"`
	Bytes int64 `json:"bytes"`
}

func (c *Count) add(e entry) { c.N, c.Bytes = c.N+1, c.Bytes+e.size }

// CollectedKind is the result for one kind of content. Kept counts content that was in its place and stays there. Waiting counts content
// that was set aside before, and stays aside for now or was restored. SetAside and Removed count the changes of this collection.
type CollectedKind struct {
	Kind     string `json:"kind"`
	Kept     Count  `json:"kept"`
	SetAside Count  `json:"setAside"`
	Waiting  Count  `json:"waiting"`
	Returned Count  `json:"returned"`
	Removed  Count  `json:"removed"`
}

// The kinds that are not content: records, which stay, and files that crashed writers left.
const (
	kindRecords    = "records"
	kindUnfinished = "left behind"
)

// keptNumbers is how many of an application's incarnations stay even without a reference.
const keptNumbers = 10

// Collect runs one collection, and returns the result of each kind by name. If it cannot read something, it stops before it changes
// anything. It can be interrupted at any moment. It can run concurrently with every other use of the store, but not with another
// collection.
func (s *Store) Collect(ctx context.Context, o Collection) ([]CollectedKind, error) {
	lease, err := s.acquireCollectionLease(ctx, o)
	if err != nil {
		return nil, err
	}
	defer lease.release()
	all, err := s.blobs.entries(ctx, "")
	if err != nil {
		return nil, err
	}
	c := &collection{Collection: o, store: s, lease: lease, kinds: map[string]*CollectedKind{}}
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

// collection is a collection in progress.
type collection struct {
	Collection
	store      *Store
	lease      *collectionLease
	records    []entry            // everything but content
	content    map[string][]entry // by digest: in its place and set aside
	inPlace    map[string]bool    // keys of content in its place
	unfinished []entry

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

// sort separates content from everything else. An unknown folder is from a later version, whose records may refer to anything.
func (c *collection) sort(all []entry) error {
	c.inPlace = map[string]bool{}
	var content []entry
	for _, e := range all {
		folder, _, _ := strings.Cut(e.key, "/")
		if _, known := folders[folder+"/"]; !known {
			return fmt.Errorf("the store has %s, which is unknown to this version; collect with the version that wrote it [unknown-folder]", e.key)
		}
		switch key := strings.TrimPrefix(e.key, unreferenced); {
		case folder == "leases": // includes the lease of this collection
		case isUnfinished(e.key):
			c.unfinished = append(c.unfinished, e)
		case isContent(key):
			content = append(content, e)
			c.inPlace[e.key] = key == e.key
		default:
			c.records = append(c.records, e)
			c.kind(kindRecords).Kept.add(e)
		}
	}
	c.content = contentsOf(content)
	return nil
}

// isUnfinished reports whether a file is incomplete: a crashed writer left it, or it is being written.
func isUnfinished(key string) bool {
	base := key[strings.LastIndexByte(key, '/')+1:]
	return strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".tmp")
}

func (c *collection) age(e entry) time.Duration { return c.Now.Sub(e.at) }

// isYoung reports whether content is young: it was put, restored or set aside within Grace. Its references say nothing yet.
func (c *collection) isYoung(e entry) bool { return c.age(e) < c.Grace }

// mark returns the digests of all content that stays: referenced content, young content, and everything that these refer to. It includes
// everything that content refers to that was set aside within Grace or is being set aside, because that content may be restored.
func (c *collection) mark(ctx context.Context) (map[string]bool, error) {
	roots, err := c.roots(ctx)
	if err != nil {
		return nil, err
	}
	referred, err := c.reach(ctx, roots)
	if err != nil {
		return nil, err
	}
	var setAside []string
	for digest, entries := range c.content {
		due := !slices.ContainsFunc(entries, func(e entry) bool { return c.inPlace[e.key] || c.isYoung(e) })
		if !due && !referred[digest] {
			setAside = append(setAside, digest)
		}
	}
	aside, err := c.reach(ctx, setAside)
	if err != nil {
		return nil, err
	}
	for digest := range aside {
		if !referred[digest] {
			referred[digest] = false // it is set aside, or stays set aside
		}
	}
	return referred, nil
}

// roots returns the digests that records and Temporal refer to, and those of young content.
func (c *collection) roots(ctx context.Context) ([]string, error) {
	m := newMarks(c)
	if err := m.addCurrent(ctx); err != nil {
		return nil, err
	}
	if c.Texts != nil {
		take := func(application string, text []byte) error {
			m.text(application, text)
			return c.lease.renew(ctx)
		}
		if err := c.Texts(ctx, take); err != nil {
			return nil, err
		}
	}
	if err := m.addHistorical(ctx); err != nil {
		return nil, err
	}
	for digest, entries := range c.content {
		if slices.ContainsFunc(entries, func(e entry) bool { return c.inPlace[e.key] && c.isYoung(e) }) {
			m.digests[digest] = true
		}
	}
	return slices.Sorted(maps.Keys(m.digests)), nil
}

// reach returns digests and everything that they refer to, directly or indirectly. It fails on content that cannot be read, because that
// might refer to something.
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
		return named, c.lease.renew(ctx)
	})
	return reached, err
}

func (c *collection) named(ctx context.Context, digest string, e entry) ([]string, error) {
	key := strings.TrimPrefix(e.key, unreferenced)
	if isLeaf(key) {
		return nil, nil
	}
	data, err := c.store.blobs.read(ctx, e.key)
	if IsNotFound(err) { // restored in the meantime
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

// known returns the digests for which the store has content.
func (c *collection) known(digests []string) []string {
	return slices.DeleteFunc(digests, func(digest string) bool { return c.content[digest] == nil })
}

// sweep applies the result of mark. It sets aside and removes content before the content that it refers to. So content in its place
// always has all its references in place, too.
func (c *collection) sweep(ctx context.Context, marked map[string]bool) error {
	byRank := map[int][]func(context.Context) error{}
	for digest, entries := range c.content {
		for _, e := range entries {
			rank := rankOf(strings.TrimPrefix(e.key, unreferenced))
			byRank[rank] = append(byRank[rank], func(ctx context.Context) error { return c.dispose(ctx, digest, e, marked) })
		}
	}
	for _, e := range c.unfinished {
		byRank[0] = append(byRank[0], func(ctx context.Context) error { return c.removeUnfinished(ctx, e) })
	}
	for _, n := range slices.Sorted(maps.Keys(byRank)) {
		// An operation that has started is completed, even if others fail: a file system would complete it later, during the next collection.
		g, groupCtx := errgroup.WithContext(ctx)
		g.SetLimit(archiveConcurrency)
		for _, do := range byRank[n] {
			g.Go(func() error {
				if err := cmp.Or(groupCtx.Err(), c.lease.renew(ctx)); err != nil {
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

// rankOf orders kinds so that each comes before the kinds that it refers to.
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

// dispose applies the result of mark to one piece of content. Marked with true: it is referenced. Marked with false: only set-aside
// content refers to it.
func (c *collection) dispose(ctx context.Context, digest string, e entry, marked map[string]bool) error {
	key := strings.TrimPrefix(e.key, unreferenced)
	referred, reachable := marked[digest]
	inPlace := c.inPlace[e.key]
	kind, _, _ := strings.Cut(key, "/")
	switch {
	case inPlace && referred:
		c.count(kind, func(k *CollectedKind) *Count { return &k.Kept }, e)
		return nil
	case inPlace:
		c.count(kind, func(k *CollectedKind) *Count { return &k.SetAside }, e)
		return c.doUnlessDryRun(func() error { return c.move(ctx, key) })
	case c.inPlace[key] && referred: // it was restored earlier
		c.count(kind, func(k *CollectedKind) *Count { return &k.Returned }, e)
		return c.doUnlessDryRun(func() error { return c.store.blobs.remove(ctx, e.key) })
	case c.inPlace[key]: // it was restored earlier, and is set aside again over this copy
		return nil
	case referred:
		c.count(kind, func(k *CollectedKind) *Count { return &k.Returned }, e)
		return c.doUnlessDryRun(func() error { return c.restore(ctx, key) })
	case reachable || c.isYoung(e):
		c.count(kind, func(k *CollectedKind) *Count { return &k.Waiting }, e)
		return nil
	}
	c.count(kind, func(k *CollectedKind) *Count { return &k.Removed }, e)
	return c.doUnlessDryRun(func() error { return c.store.blobs.remove(ctx, e.key) })
}

func (c *collection) doUnlessDryRun(do func() error) error {
	if c.DryRun {
		return nil
	}
	return do()
}

// move sets content aside. It drops the content from the cache, so this process reads it from its new place.
func (c *collection) move(ctx context.Context, key string) error {
	err := c.store.blobs.move(ctx, key, unreferenced+key)
	c.store.cache.drop(key)
	if IsNotFound(err) {
		return nil
	}
	return err
}

func (c *collection) restore(ctx context.Context, key string) error {
	data, err := c.store.blobs.read(ctx, unreferenced+key)
	if IsNotFound(err) {
		return nil // another process was faster
	}
	if err == nil {
		_, err = c.store.blobs.create(ctx, key, data)
	}
	if err == nil {
		err = c.store.blobs.remove(ctx, unreferenced+key)
	}
	return err
}

// removeUnfinished removes a file that a crashed writer left.
func (c *collection) removeUnfinished(ctx context.Context, e entry) error {
	if c.isYoung(e) {
		c.count(kindUnfinished, func(k *CollectedKind) *Count { return &k.Kept }, e)
		return nil
	}
	c.count(kindUnfinished, func(k *CollectedKind) *Count { return &k.Removed }, e)
	return c.doUnlessDryRun(func() error { return c.store.blobs.remove(ctx, e.key) })
}

// collectionScope is the scope of the lease, because only one collection may run at a time.
const collectionScope = "collection"

// How long a collection holds the lease without renewing it, and how often it renews it.
const (
	collectionLeaseTime    = 15 * time.Minute
	collectionLeaseRenewal = time.Minute
)

// collectionLease is the lease of a collection.
type collectionLease struct {
	store *Store
	by    string
	dry   bool

	mu   sync.Mutex
	n    int64
	last time.Time
}

// acquireCollectionLease takes the lease, or fails without waiting.
func (s *Store) acquireCollectionLease(ctx context.Context, o Collection) (*collectionLease, error) {
	lease := &collectionLease{store: s, by: o.By, dry: o.DryRun}
	if o.DryRun {
		return lease, nil
	}
	n, holder, err := s.Lease(ctx, collectionScope)
	if err != nil {
		return nil, err
	}
	until, by, _ := strings.Cut(holder, " ")
	if at, err := time.Parse(time.RFC3339, until); err == nil && time.Now().Before(at) {
		return nil, fmt.Errorf("the store is being collected by %s; try again when that ends, or at %s [collecting]", by, until)
	}
	lease.n = n
	return lease, lease.renew(ctx)
}

var errLeaseLost = errors.New("another process has started to collect the store, and does the rest [collecting]")

func (l *collectionLease) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dry || time.Since(l.last) < collectionLeaseRenewal {
		return nil
	}
	return l.write(ctx, time.Now().Add(collectionLeaseTime).UTC().Format(time.RFC3339)+" "+l.by)
}

func (l *collectionLease) write(ctx context.Context, holder string) error {
	taken, err := l.store.TakeLease(ctx, collectionScope, l.n+1, holder)
	if err == nil && !taken {
		err = errLeaseLost
	}
	if err == nil {
		l.n, l.last = l.n+1, time.Now()
	}
	return err
}

// release releases the lease, so that another collection can start immediately.
func (l *collectionLease) release() {
	if l.dry {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.write(ctx, "") // on failure the lease expires a little later
}
