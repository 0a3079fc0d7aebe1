package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

const grace = 24 * time.Hour

// clockedBlobs is blobs with a clock of their own, so that a test need not wait for what grows old.
type clockedBlobs struct {
	blobs

	mu     sync.Mutex
	now    time.Time
	at     map[string]time.Time
	before func(what, key string) error // each change; nil: nothing
}

func withClock(s *Store) *clockedBlobs {
	c := &clockedBlobs{blobs: s.blobs, now: time.Unix(1_800_000_000, 0), at: map[string]time.Time{}}
	s.blobs = c
	return c
}

func (c *clockedBlobs) changes(what, key string) error {
	c.mu.Lock()
	before := c.before
	c.mu.Unlock()
	if before != nil {
		return before(what, key)
	}
	return nil
}

func (c *clockedBlobs) stamp(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[key] = c.now
}

func (c *clockedBlobs) write(ctx context.Context, key string, data []byte) error {
	if err := c.changes("write", key); err != nil {
		return err
	}
	c.stamp(key)
	return c.blobs.write(ctx, key, data)
}

func (c *clockedBlobs) create(ctx context.Context, key string, data []byte) (bool, error) {
	if err := c.changes("create", key); err != nil {
		return false, err
	}
	created, err := c.blobs.create(ctx, key, data)
	if created {
		c.stamp(key)
	}
	return created, err
}

func (c *clockedBlobs) remove(ctx context.Context, key string) error {
	if err := c.changes("remove", key); err != nil {
		return err
	}
	return c.blobs.remove(ctx, key)
}

func (c *clockedBlobs) move(ctx context.Context, from, to string) error {
	if err := c.changes("move", from); err != nil {
		return err
	}
	c.stamp(to)
	return c.blobs.move(ctx, from, to)
}

func (c *clockedBlobs) entries(ctx context.Context, prefix string) ([]entry, error) {
	all, err := c.blobs.entries(ctx, prefix)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range all {
		all[n].at = c.now // of what is being written
		if at, known := c.at[all[n].key]; known {
			all[n].at = at
		}
	}
	return all, err
}

func (c *clockedBlobs) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *clockedBlobs) collection() Collection {
	return Collection{By: "a test", Now: c.now, Grace: grace, Keep: 2 * grace}
}

// putReferencingState is a checkpoint of a service whose state says that.
func putReferencingState(t require.TestingT, s *Store, n int64, state any) {
	packed, err := protocol.Pack(state)
	require.NoError(t, err)
	require.NoError(t, s.PutCheckpoint(context.Background(), protocol.Checkpoint{ID: "service/shop/web", N: n, Run: "r", StateVersion: 1, State: packed}, nil))
}

// dropState has all checkpoints of a service say that.
func dropState(t require.TestingT, s *Store, state any) {
	ids, err := s.checkpointKeys(context.Background(), "service/shop/web")
	require.NoError(t, err)
	var last int64
	for _, key := range ids {
		_, err = fmt.Sscanf(key[strings.LastIndexByte(key, '/')+1:], "%d", &last)
		require.NoError(t, err)
	}
	for n := range int64(keptCheckpoints) {
		putReferencingState(t, s, last+1+n, state)
	}
}

func total(kinds []CollectedKind, of func(CollectedKind) Count) (n int) {
	for _, k := range kinds {
		if k.Kind != kindRecords {
			n += of(k).N
		}
	}
	return n
}

func setAside(k CollectedKind) Count { return k.SetAside }
func removed(k CollectedKind) Count  { return k.Removed }
func stayed(k CollectedKind) Count   { return k.Kept }

// What nothing refers to is set aside when it is older than the grace period, is there as long as that, and then is not. What a state
// names stays, and so does all that this names in turn, however deep it is packed.
func TestCollectedInTwoSteps_F11(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx, clock := t.Context(), withClock(s)
		b := bundle.New([][]byte{[]byte(`{"kind":"ConfigMap"}`)})
		require.NoError(t, s.PutBundle(ctx, b))
		used, err := s.PutPayload(ctx, entities.Payload{Service: "web", Kubernetes: &entities.KubernetesPayload{Bundled: entities.Bundled{Bundle: b.Digest()}}})
		require.NoError(t, err)
		old, err := s.PutPayload(ctx, entities.Payload{Service: "old"})
		require.NoError(t, err)
		carried, err := protocol.Pack(map[string]string{"digest": used})
		require.NoError(t, err)
		spilled, err := s.PutState(ctx, carried)
		require.NoError(t, err)
		putReferencingState(t, s, 1, map[string]any{"spilled": spilled})

		young, err := s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		require.Zero(t, total(young, setAside)+total(young, removed))

		clock.pass(grace)
		dry := clock.collection()
		dry.DryRun = true
		would, err := s.Collect(ctx, dry)
		require.NoError(t, err)
		found, err := s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		require.Equal(t, would, found, "a dry run reports what a run does")
		require.Equal(t, []int{1, 0, 3}, []int{total(found, setAside), total(found, removed), total(found, stayed)}, "%+v", found)

		clock.pass(grace - time.Second)
		found, err = s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		require.Zero(t, total(found, removed))
		clock.pass(time.Second)
		found, err = s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		require.Equal(t, []int{1, 3}, []int{total(found, removed), total(found, stayed)}, "%+v", found)

		s.cache = newCache()
		_, err = s.Payload(ctx, old)
		require.True(t, IsNotFound(err))
		_, err = s.Payload(ctx, used)
		require.NoError(t, err)
		_, err = s.Bundle(ctx, b.Digest())
		require.NoError(t, err)
	})
}

// What was set aside is back as soon as it is read or put again, with all that it names, and nothing that this process remembers of
// it stands in the way of that. It is in an archive, too.
func TestSetAsideContentIsRestored_F11(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx, clock := t.Context(), withClock(s)
		check, err := s.PutCheck(ctx, entities.CheckDefinition{Service: "web"})
		require.NoError(t, err)
		digest, err := s.PutSpec(ctx, entities.Spec{Application: "shop", Channels: []entities.ChannelSpec{{Checks: []entities.Check{{Definition: check}}}}})
		require.NoError(t, err)
		payload, err := s.PutPayload(ctx, entities.Payload{Service: "web"})
		require.NoError(t, err)
		clock.pass(grace)
		other := &Store{url: s.url, dir: s.dir, blobs: s.blobs, cache: newCache()} // another process, which collects
		found, err := other.Collect(ctx, clock.collection())
		require.NoError(t, err)
		require.Equal(t, 3, total(found, setAside))
		all, _ := archiveOf(t, other)
		require.Contains(t, all, "specs/"+digest)

		_, err = s.PutPayload(ctx, entities.Payload{Service: "web"})
		require.NoError(t, err)
		there, err := s.blobs.exists(ctx, "payloads/"+payload)
		require.NoError(t, err)
		require.True(t, there, "a process with a cached copy put it again")
		_, err = other.Spec(ctx, digest)
		require.NoError(t, err)
		for _, key := range []string{"specs/" + digest, "checks/" + check} {
			there, err := s.blobs.exists(ctx, key)
			require.NoError(t, err)
			require.True(t, there, key)
		}
		clock.pass(grace - time.Second)
		found, err = other.Collect(ctx, clock.collection())
		require.NoError(t, err)
		require.Equal(t, []int{3, 3}, []int{total(found, stayed), total(found, func(k CollectedKind) Count { return k.Returned })}, "%+v", found)
	})
}

// What cannot be read ends the collection before anything is changed: a checkpoint, a record, content that is referred to, and a
// folder of a later version.
func TestCollectionStopsAtDamagedContent_F11(t *testing.T) {
	ctx := context.Background()
	for name, damage := range map[string]func(t *testing.T, s *Store, named string) string{
		"checkpoint": func(t *testing.T, s *Store, _ string) string {
			keys, err := s.checkpointKeys(ctx, "service/shop/web")
			require.NoError(t, err)
			require.NoError(t, s.blobs.write(ctx, keys[0], []byte("{}")))
			return keys[0]
		},
		"record of a version": func(t *testing.T, s *Store, _ string) string {
			_, _, err := s.CreateVersion(ctx, "shop", "web", VersionRecord{Version: "v1", FullVersion: "v1"})
			require.NoError(t, err)
			require.NoError(t, s.blobs.write(ctx, versionKey("shop", "web", "v1"), []byte(`{"version":"v1","digest":"`)))
			return versionKey("shop", "web", "v1")
		},
		"line of a trail": func(t *testing.T, s *Store, _ string) string {
			key := "audit/shop/web/20270116T080000.000000000-000000000001-000000000001"
			require.NoError(t, s.blobs.write(ctx, key, []byte("{")))
			return key
		},
		"content": func(t *testing.T, s *Store, named string) string {
			require.NoError(t, s.blobs.write(ctx, "payloads/"+named, []byte("{}")))
			return "payloads/" + named
		},
		"folder of a later version": func(t *testing.T, s *Store, _ string) string {
			require.NoError(t, s.blobs.write(ctx, "marvels/x", []byte("{}")))
			return "marvels/x"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(ctx, t.TempDir())
			require.NoError(t, err)
			clock := withClock(s)
			named, err := s.PutPayload(ctx, entities.Payload{Service: "web"})
			require.NoError(t, err)
			_, err = s.PutPayload(ctx, entities.Payload{Service: "old"})
			require.NoError(t, err)
			putReferencingState(t, s, 1, map[string]string{"digest": named})
			key := damage(t, s, named)
			before, err := s.blobs.list(ctx, "payloads/")
			require.NoError(t, err)
			clock.pass(grace)
			for range 2 {
				_, err = s.Collect(ctx, clock.collection())
				require.ErrorContains(t, err, key)
				clock.pass(grace)
			}
			after, err := s.blobs.list(ctx, "")
			require.NoError(t, err)
			require.Subset(t, after, before)
			require.False(t, strings.Contains(strings.Join(after, " "), unreferenced))
		})
	}
}

// A texts that cannot be handed over ends it as well, and so does somebody who collects already.
func TestCollectionsDoNotRunConcurrently_F11(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	clock := withClock(s)
	_, err = s.PutPayload(t.Context(), entities.Payload{Service: "old"})
	require.NoError(t, err)
	clock.pass(grace)
	o := clock.collection()
	o.Texts = func(ctx context.Context, _ func(string, []byte) error) error {
		_, second := s.Collect(ctx, clock.collection())
		require.ErrorContains(t, second, "is being collected by a test")
		return errors.New("no history")
	}
	_, err = s.Collect(t.Context(), o)
	require.EqualError(t, err, "no history")
	found, err := s.Collect(t.Context(), clock.collection())
	require.NoError(t, err, "a failed collection released the lease")
	require.Equal(t, 1, total(found, setAside))
}

// Versions, numbers and what they are of are kept as long as they are young, or named by a state, a line of the trail that is young, or a
// history, alone or in another name; of numbers the newest, too. Only those of the same application are meant.
func TestReferencesKeepVersionsAndNumbers_F11(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, t.TempDir())
	require.NoError(t, err)
	clock := withClock(s)
	of := map[string]string{}
	make := func(application, name string) {
		digest, err := s.PutState(ctx, []byte(application+name))
		require.NoError(t, err)
		of[application+name] = digest
		_, _, err = s.CreateVersion(ctx, application, "web", VersionRecord{Version: name, FullVersion: name, Hash: digest})
		require.NoError(t, err)
	}
	for _, name := range []string{"v1", "v2", "v3", "v4", "v5", "v6-x"} {
		make("shop", name)
		make("other", name)
	}
	for n := range int64(14) {
		digest, err := s.PutState(ctx, []byte(fmt.Sprintf("incarnation %d", n+1)))
		require.NoError(t, err)
		of[fmt.Sprint(n+1)] = digest
		require.NoError(t, s.PutNumber(ctx, "shop", protocol.Incarnation{Number: n + 1, Hash: digest}))
	}
	clock.pass(3 * grace)
	putReferencingState(t, s, 1, map[string]any{"releases": []map[string]any{{"version": "v1", "incarnation": 2}, {"full": "v6-x-i3"}}})
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", []entities.AuditEntry{{N: 1, At: clock.now, Text: "released v2", Version: "v2"}}))
	require.NoError(t, s.AppendAudit(ctx, "shop", "web", []entities.AuditEntry{{N: 2, At: clock.now.Add(-3 * grace), Text: "released v3", Version: "v3"}}))
	o := clock.collection()
	o.Texts = func(_ context.Context, take func(string, []byte) error) error {
		text, err := json.Marshal(map[string]any{"payload": []byte(`{"version":"v4"}`)})
		require.NoError(t, err)
		return take("shop", text)
	}
	_, err = s.Collect(ctx, o)
	require.NoError(t, err)
	aside, err := s.blobs.list(ctx, unreferenced)
	require.NoError(t, err)
	for _, name := range []string{"shopv1", "shopv2", "shopv4", "shopv6-x", "2", "3", "5", "14"} {
		require.NotContains(t, aside, unreferenced+"states/"+of[name], name)
	}
	for _, name := range []string{"shopv3", "shopv5", "otherv1", "otherv6-x", "4"} {
		require.Contains(t, aside, unreferenced+"states/"+of[name], name)
	}
}

// Words of a text are found however they are packed, quoted or joined.
func TestReferencesInTextAreFound_F11(t *testing.T) {
	digest := canonical.Hash([]byte("x"))
	packed, err := protocol.Pack(map[string]string{"a": "b", "digest": digest})
	require.NoError(t, err)
	part, err := json.Marshal(map[string]any{"part": packed})
	require.NoError(t, err)
	twice, err := protocol.Pack(map[string]any{"in": part})
	require.NoError(t, err)
	for name, text := range map[string]string{
		"json": `{"a":{"` + digest + `":1}}`, "key": "states/" + digest, "packed": string(packed), "base64": string(part), "twice": string(twice),
		"sentence": "spec " + digest + ", which is new", "of an algorithm": `"sha256:` + digest + `"`, "escaped": `"{\"digest\":\"` + digest + `\"}"`,
		"lines": "{}\n{\"a\":\"" + digest + "\"}\n", "no longer JSON": `{"a":"` + digest + `"`,
	} {
		found := false
		words([]byte(text), func(word string) { found = found || word == digest })
		require.True(t, found, name)
	}
}
