package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/bundle"
)

// user does to a store what workers and publishers do, one act at a time: it publishes and releases what is new and what is old, in two
// steps between which time passes and the store is collected, takes back and forgets. What it needs it knows apart from the store.
type user struct {
	t       *rapid.T
	store   *Store
	clock   *clockedBlobs
	n       int64 // checkpoints
	seq     int64 // numbers
	live    []release
	pending []pending
	refused int
}

// release is what a state has of one: how it is named there, and the keys of the content that it needs.
type release struct {
	Version     string `json:"version"`
	Incarnation int64  `json:"incarnation"`
	Payload     string `json:"payload"`
	Spec        string `json:"spec"`
	needs       []string
}

// pending is a release whose content is in the store and that no state names yet.
type pending struct {
	release
	since time.Time
}

const (
	mostLive  = 3
	contents  = 15 // that are published again and again
	versions  = 9
	actsInAll = 90
)

// publish puts what an incarnation needs, under the next number, and returns what it needs.
func (u *user) publish(ctx context.Context, content int) release {
	b := bundle.New([][]byte{fmt.Appendf(nil, `{"kind":"ConfigMap","n":%d}`, content)})
	require.NoError(u.t, u.store.PutBundle(ctx, b))
	check, err := u.store.PutCheck(ctx, entities.CheckDefinition{Service: "web", Dir: fmt.Sprint(content)})
	require.NoError(u.t, err)
	spec, err := u.store.PutSpec(ctx, entities.Spec{Application: "shop", Service: fmt.Sprint(content), Channels: []entities.ChannelSpec{{Checks: []entities.Check{{Definition: check}}}}})
	require.NoError(u.t, err)
	manifest, err := u.store.putJSON(ctx, "manifests/", map[string]string{"web": spec})
	require.NoError(u.t, err)
	hash, err := u.store.putJSON(ctx, "incarnations/", map[string]string{"bundle": b.Digest(), "check": check})
	require.NoError(u.t, err)
	u.seq++
	require.NoError(u.t, u.store.PutNumber(ctx, "shop", protocol.Incarnation{Number: u.seq, Hash: hash, Manifest: manifest}))
	return release{Incarnation: u.seq, Spec: spec, needs: []string{
		"bundles/" + b.Digest(), "checks/" + check, "specs/" + spec, "manifests/" + manifest, "incarnations/" + hash,
	}}
}

// prepare does the first half of a release, as Prepare does: of a version that is known it is what that was of.
func (u *user) prepare(ctx context.Context, version string, content int) {
	var r release
	record, err := u.store.Version(ctx, "shop", "web", version)
	if err == nil {
		err = u.store.RenewIncarnation(ctx, record.Hash)
		if IsNotFound(err) {
			u.refused++ // nothing has referred to it for long
			return
		}
		require.NoError(u.t, err)
		r = release{Incarnation: record.Incarnation, needs: u.namedBy(ctx, "incarnations/"+record.Hash)}
	} else {
		require.True(u.t, IsNotFound(err), "%v", err)
		r = u.publish(ctx, content)
	}
	r.Version = version
	var of string
	for _, key := range r.needs {
		if len(key) > 8 && key[:8] == "bundles/" {
			of = key[8:]
		}
	}
	r.Payload, err = u.store.PutPayload(ctx, entities.Payload{Service: "web", Parameters: map[string]any{"version": version}, Kubernetes: &entities.KubernetesPayload{Bundled: entities.Bundled{Bundle: of}}})
	require.NoError(u.t, err)
	r.needs = append(r.needs, "payloads/"+r.Payload)
	hash := ""
	for _, key := range r.needs {
		if len(key) > 13 && key[:13] == "incarnations/" {
			hash = key[13:]
		}
	}
	_, _, err = u.store.CreateVersion(ctx, "shop", "web", VersionRecord{Version: version, FullVersion: version, Incarnation: r.Incarnation, Hash: hash})
	require.NoError(u.t, err)
	u.pending = append(u.pending, pending{r, u.clock.now})
}

// namedBy are an incarnation and what it names, as the test knows it.
func (u *user) namedBy(ctx context.Context, key string) []string {
	data, err := u.store.content(ctx, key)
	require.NoError(u.t, err)
	needs := []string{key}
	for _, digest := range digestsIn(key, data) {
		for _, folder := range []string{"bundles/", "checks/"} {
			there, err := u.has(ctx, folder+digest)
			require.NoError(u.t, err)
			if there {
				needs = append(needs, folder+digest)
			}
		}
	}
	require.Len(u.t, needs, 3, "an incarnation exists, but not what it refers to")
	return needs
}

// commit does the second half: the state names it, and forgets what is oldest.
func (u *user) commit() {
	if len(u.pending) == 0 {
		return
	}
	u.live = append(u.live, u.pending[0].release)
	u.pending = u.pending[1:]
	u.live = u.live[max(0, len(u.live)-mostLive):]
	u.save()
}

func (u *user) save() {
	u.n++
	putReferencingState(u.t, u.store, u.n, map[string]any{"releases": u.live})
}

// rollback takes back to a target that the state has still: of what was rendered then.
func (u *user) rollback(which int) {
	if len(u.live) < 2 {
		return
	}
	u.live = append(u.live[1:], u.live[which%len(u.live)])
	u.save()
}

// pass lets time go by, but not so much that a release takes longer than the grace period between its halves.
func (u *user) pass(d time.Duration) {
	u.clock.pass(d)
	for len(u.pending) > 0 && u.clock.now.Sub(u.pending[0].since) > grace-time.Hour {
		u.clock.pass(-d)
		u.commit()
		u.clock.pass(d)
	}
}

// act does one of all that, as a number says.
func (u *user) act(ctx context.Context, n int) {
	switch n % 6 {
	case 0, 1:
		u.prepare(ctx, fmt.Sprintf("v%d", n/6%versions), n/6%contents)
	case 2, 3:
		u.commit()
	case 4:
		u.rollback(n / 6)
	case 5:
		r := u.publish(ctx, n/6%contents)
		u.pending = append(u.pending, pending{r, u.clock.now})
	}
}

func (u *user) has(ctx context.Context, key string) (bool, error) {
	there, err := u.clock.blobs.exists(ctx, key)
	if err == nil && !there {
		there, err = u.clock.blobs.exists(ctx, unreferenced+key)
	}
	return there, err
}

// check finds everything that is needed, without bringing it back by that.
func (u *user) check(ctx context.Context) {
	all := slices.Clone(u.live)
	for _, p := range u.pending {
		all = append(all, p.release)
	}
	for _, r := range all {
		for _, key := range r.needs {
			there, err := u.has(ctx, key)
			require.NoError(u.t, err)
			require.True(u.t, there, "%s of %s, incarnation %d, is missing", key, r.Version, r.Incarnation)
		}
	}
}

var errKilled = errors.New("killed")

// collect collects, while the user acts before some of its changes, and is killed before one of them.
func (u *user) collect(ctx context.Context, acts []int, kill int) {
	var acting atomic.Bool
	var changes int
	u.clock.before = func(string, string) error {
		if !acting.CompareAndSwap(false, true) {
			return nil // it is the user's own, or another change beside it
		}
		defer acting.Store(false)
		changes++
		if kill > 0 && changes >= kill {
			return errKilled
		}
		if len(acts) > 0 {
			n := acts[0]
			acts = acts[1:]
			u.act(ctx, n)
		}
		return nil
	}
	o := u.clock.collection()
	o.Keep = 0
	_, err := u.store.Collect(ctx, o)
	u.clock.before = nil
	if err != nil {
		require.ErrorIs(u.t, err, errKilled)
	}
	free(u.t, u.store)
}

// finish collects undisturbed until what nobody refers to is removed. It needs two collections, a grace period apart.
func (u *user) finish(ctx context.Context) {
	garbage := bundle.New([][]byte{[]byte(`{"kind":"ConfigMap","of":"nobody"}`)})
	require.NoError(u.t, u.store.PutBundle(ctx, garbage))
	for range 2 {
		u.pass(grace + time.Hour)
		u.collect(ctx, nil, 0)
	}
	there, err := u.has(ctx, "bundles/"+garbage.Digest())
	require.NoError(u.t, err)
	require.False(u.t, there, "unreferenced content stays")
}

// Whatever is published, released, released again, taken back and forgotten, between collections and in the middle of them, and
// wherever these are killed: what a state names, or is about to, is there. What is unreferenced is removed in the end.
func TestReferencedContentIsNeverCollected_F11(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		s, err := Open(ctx, memoryURL)
		require.NoError(t, err)
		u := &user{t: t, store: s, clock: withClock(s)}
		u.save()
		for range rapid.IntRange(5, actsInAll).Draw(t, "acts") {
			switch n := rapid.IntRange(0, 99).Draw(t, "act"); {
			case n < 55:
				u.act(ctx, rapid.IntRange(0, 1000).Draw(t, "what"))
			case n < 75:
				u.pass(time.Duration(rapid.IntRange(1, 50).Draw(t, "hours")) * time.Hour)
			default:
				acts := rapid.SliceOfN(rapid.IntRange(0, 1000), 0, 6).Draw(t, "meanwhile")
				u.collect(ctx, acts, rapid.IntRange(0, 12).Draw(t, "kill"))
			}
			u.check(ctx)
		}
		u.finish(ctx)
		u.check(ctx)
		refused += u.refused
	})
	t.Logf("%d releases were refused", refused)
}
