package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/bundle"
)

// stored is an incarnation with a bundle, and a payload that names the bundle.
type stored struct{ incarnation, bundle, payload string }

func (of stored) keys() []string {
	return []string{"incarnations/" + of.incarnation, "bundles/" + of.bundle, "payloads/" + of.payload}
}

func putStored(ctx context.Context, s *Store, n int) (of stored, err error) {
	b := bundle.New([][]byte{fmt.Appendf(nil, `{"n":%d}`, n)})
	of.bundle = b.Digest()
	if err = s.PutBundle(ctx, b); err == nil {
		of.incarnation, err = s.putJSON(ctx, "incarnations/", map[string]any{"bundle": b.Digest(), "n": n})
	}
	if err == nil {
		of.payload, err = s.PutPayload(ctx, payloadOf(of, n))
	}
	return of, err
}

func payloadOf(of stored, n int) entities.Payload {
	return entities.Payload{Service: fmt.Sprint(n), Kubernetes: &entities.KubernetesPayload{Bundled: entities.Bundled{Bundle: of.bundle}}}
}

// isStored tells whether content is there, or set aside, without bringing it back.
func isStored(ctx context.Context, t require.TestingT, s *Store, key string) bool {
	for _, at := range []string{key, unreferenced + key} {
		there, err := s.blobs.exists(ctx, at)
		require.NoError(t, err)
		if there {
			return true
		}
	}
	return false
}

// A version that nothing has referred to for long is released again while it is removed, before each of the changes by which it is:
// either all that it needs is there afterwards, or its release is refused.
func TestReleaseDuringRemoval_F11(t *testing.T) {
	refused, released := 0, 0
	for change := 1; change < 8; change++ {
		ctx := t.Context()
		s, err := Open(ctx, t.TempDir())
		require.NoError(t, err)
		clock := withClock(s)
		of, err := putStored(ctx, s, 1)
		require.NoError(t, err)
		clock.pass(grace)
		_, err = s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		clock.pass(grace)

		var mu sync.Mutex
		changes, ours, again := 0, false, false
		clock.before = func(what, key string) error {
			mu.Lock()
			now := !ours && what == "remove" && key[:len(unreferenced)] == unreferenced
			if now {
				changes++
				now = changes == change
				ours = now
			}
			mu.Unlock()
			if !now {
				return nil
			}
			err := s.RenewIncarnation(ctx, of.incarnation)
			if err == nil {
				_, err = s.PutPayload(ctx, payloadOf(of, 1))
			}
			again = err == nil
			if !again {
				require.True(t, IsNotFound(err), "%v", err)
			}
			return nil
		}
		_, err = s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		clock.before = nil
		if !ours {
			break // there are no more changes than that
		}
		if !again {
			refused++
			continue
		}
		released++
		for range 3 {
			putReferencingState(t, s, 1, of.keys())
			for _, key := range of.keys() {
				require.True(t, isStored(ctx, t, s, key), "%s, released again before change %d", key, change)
			}
			clock.pass(grace)
			_, err = s.Collect(ctx, clock.collection())
			require.NoError(t, err)
		}
	}
	require.Positive(t, released)
	t.Logf("released again %d times, refused %d times", released, refused)
}

// A collection that is killed before any of its changes has lost nothing that is needed, and the next one finishes: in the end there is
// just what is needed.
func TestCollectionCanBeInterruptedAnywhere_F11(t *testing.T) {
	for kill := 1; ; kill++ {
		ctx := t.Context()
		s, err := Open(ctx, t.TempDir())
		require.NoError(t, err)
		clock := withClock(s)
		var all []stored
		for n := range 4 {
			of, err := putStored(ctx, s, n)
			require.NoError(t, err)
			all = append(all, of)
		}
		putReferencingState(t, s, 1, all[0].keys())
		clock.pass(grace)
		_, err = s.Collect(ctx, clock.collection())
		require.NoError(t, err)
		dropState(t, s, all[1].keys()) // it comes back, and the first goes
		clock.pass(grace)

		var mu sync.Mutex
		changes, killed := 0, false
		clock.before = func(string, string) error {
			mu.Lock()
			defer mu.Unlock()
			if changes++; changes >= kill {
				killed = true
				return errKilled
			}
			return nil
		}
		_, err = s.Collect(ctx, clock.collection())
		clock.before = nil
		if err != nil { // of the last change, by which it is given back, nobody is told
			require.ErrorIs(t, err, errKilled)
		}
		for _, key := range all[1].keys() {
			require.True(t, isStored(ctx, t, s, key), "%s, killed before change %d", key, kill)
		}
		free(t, s)
		for range 3 {
			clock.pass(grace)
			_, err = s.Collect(ctx, clock.collection())
			require.NoError(t, err)
		}
		for n, of := range all {
			for _, key := range of.keys() {
				require.Equal(t, n == 1, isStored(ctx, t, s, key), "%s of %d, killed before change %d", key, n, kill)
			}
		}
		if !killed {
			require.Greater(t, kill, 10)
			return
		}
	}
}

// free gives back what a collection that was killed holds: in this test nobody waits until that ends by itself.
func free(t require.TestingT, s *Store) {
	n, _, err := s.Lease(context.Background(), collectionScope)
	require.NoError(t, err)
	_, err = s.TakeLease(context.Background(), collectionScope, n+1, "")
	require.NoError(t, err)
}

// Several put what is new and what was there before, each with a memory of its own, while the store is collected: what they put is there
// when they begin to refer to it, and stays.
func TestPublicationDuringCollection_F11(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *Store{
		"directory": func(t *testing.T) *Store {
			s, err := Open(t.Context(), t.TempDir())
			require.NoError(t, err)
			return s
		},
		"bucket": func(t *testing.T) *Store {
			s, _ := openS3Store(t)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) { publishDuringCollection(t, open(t)) })
	}
}

func publishDuringCollection(t *testing.T, s *Store) {
	const publishers, rounds, each, pool = 4, 12, 3, 20
	ctx, clock := t.Context(), withClock(s)
	processes := make([]*Store, publishers)
	for n := range processes {
		processes[n] = &Store{url: s.url, dir: s.dir, blobs: s.blobs, cache: newCache()}
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // which contents are published
	collected := 0
	for round := range rounds {
		var g errgroup.Group
		put := make([][each]stored, publishers)
		for p, process := range processes {
			var references [each]int
			for n := range references {
				references[n] = random.IntN(pool)
			}
			g.Go(func() (err error) {
				for n, reference := range references {
					if put[p][n], err = putStored(ctx, process, reference); err != nil {
						return err
					}
				}
				return nil
			})
		}
		var found []CollectedKind
		g.Go(func() (err error) {
			found, err = s.Collect(ctx, clock.collection())
			return err
		})
		require.NoError(t, g.Wait())
		collected += total(found, removed)
		clock.pass(grace - time.Hour)
		var needs []string
		for _, of := range put {
			for _, one := range of {
				needs = append(needs, one.keys()...)
			}
		}
		dropState(t, &Store{blobs: s.blobs, cache: newCache()}, needs)
		for _, key := range needs {
			require.True(t, isStored(ctx, t, s, key), "%s, round %d", key, round)
		}
		clock.pass(2 * time.Hour)
	}
	require.Positive(t, collected, "nothing was removed")
}
