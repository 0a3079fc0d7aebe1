package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// A service loads the newest notice in the store, regardless of the content of a signal. A signal may be late. A forged one is rejected
// (G1).
func TestLoadSpecTrustsOnlyTheStore(t *testing.T) {
	a := newActivities(t, &server{})
	ctx := t.Context()
	incarnations := map[int64]protocol.Incarnation{}
	digests := map[int64]string{}
	for n := int64(1); n <= 4; n++ {
		spec := entities.Spec{Application: "shop", Service: "web", Description: string(rune('a' + n))}
		digest, err := a.Store.PutSpec(ctx, spec)
		require.NoError(t, err)
		other, err := a.Store.PutSpec(ctx, entities.Spec{Application: "shop", Service: "api"})
		require.NoError(t, err)
		manifest, err := a.Store.PutManifest(ctx, incarnation.Manifest{"web": digest, "api": other, "mixed": other})
		require.NoError(t, err)
		incarnations[n] = protocol.Incarnation{Number: n, Hash: string(rune('a' + n)), Manifest: manifest, At: time.Unix(n, 0).UTC(), By: "ann"}
		digests[n] = digest
	}
	newestIncarnation := intenttest.Dir(t, "../intent/compile/testdata/shop").Incarnation
	last := incarnations[4]
	var err error
	last.Hash, err = a.Store.PutIncarnation(ctx, newestIncarnation)
	require.NoError(t, err)
	incarnations[4] = last
	publish := func(n, count int64, pinned bool) {
		t.Helper()
		newest := n
		for k, i := range incarnations {
			if _, err := a.Store.Number(ctx, "shop", k); err == nil {
				newest = max(newest, i.Number)
			}
		}
		require.NoError(t, a.Store.PutNumber(ctx, "shop", incarnations[n]))
		_, err := a.record(ctx, protocol.NotifyRequest{
			Application: "shop", Newest: incarnations[n], To: incarnations[n].Manifest, Pinned: pinned, Order: noticeOrder(newest, count),
		})
		require.NoError(t, err)
	}
	load := func(n int64, hash string, o entities.NoticeOrder) (protocol.LoadSpecAnswer, error) {
		answer, _, err := run[protocol.LoadSpecAnswer](t, a.LoadSpec, protocol.LoadSpecRequest{
			Application: "shop", Service: "web", Incarnation: n, Hash: hash, Order: o,
		})
		return answer, err
	}
	requireLoaded := func(want, n int64, o entities.NoticeOrder) {
		t.Helper()
		answer, err := load(n, incarnations[n].Hash, o)
		require.NoError(t, err)
		require.Equal(t, want, answer.Notice.Incarnation.Number)
		require.Equal(t, digests[want], answer.Digest)
		require.Equal(t, "ann", answer.Notice.Incarnation.By)
	}
	requireRejected := func(text string, n int64, hash string, o entities.NoticeOrder) {
		t.Helper()
		_, err := load(n, hash, o)
		require.ErrorContains(t, err, text)
	}

	requireRejected("incarnation 1 (b) of shop was never published", 1, "b", noticeOrder(1, 7))
	require.NoError(t, a.Store.PutNumber(ctx, "shop", incarnations[1]))
	requireRejected("incarnation 1 of shop was not published or pinned", 1, "b", noticeOrder(1, 7))
	publish(2, 8, false)
	requireLoaded(2, 2, noticeOrder(2, 8))
	requireLoaded(2, 1, noticeOrder(1, 7))
	requireLoaded(2, 1, entities.NoticeOrder{})
	requireRejected("incarnation 1 of shop was not published or pinned after incarnation 2", 1, "b", noticeOrder(9, 9))
	requireRejected("incarnation 2 (other) of shop was never published", 2, "other", noticeOrder(2, 8))
	requireRejected("was never published", -1, "b", noticeOrder(2, 8))
	requireRejected("was never published", 1<<62, "b", noticeOrder(1<<62, 8))
	publish(1, 9, true)
	requireLoaded(1, 1, noticeOrder(2, 9))
	requireLoaded(1, 2, noticeOrder(2, 8))
	requireRejected("incarnation 2 of shop was not published or pinned after incarnation 1", 2, "c", noticeOrder(3, 1))
	require.NoError(t, a.Store.PutNumber(ctx, "shop", incarnations[3]))
	requireRejected("incarnation 3 of shop was not published or pinned after incarnation 1", 3, "d", noticeOrder(3, 1))
	publish(4, 10, false)
	requireLoaded(4, 4, noticeOrder(4, 10))
	answer, err := load(0, "", entities.NoticeOrder{})
	require.NoError(t, err)
	require.Equal(t, int64(4), answer.Notice.Incarnation.Number, "without a notice")

	_, _, err = run[protocol.LoadSpecAnswer](t, a.LoadSpec, protocol.LoadSpecRequest{
		Application: "shop", Service: "mixed", Incarnation: 4, Hash: incarnations[4].Hash, Order: noticeOrder(4, 10),
	})
	require.ErrorContains(t, err, "is of shop/api, not of shop/mixed")
	gone, _, err := run[protocol.LoadSpecAnswer](t, a.LoadSpec, protocol.LoadSpecRequest{
		Application: "shop", Service: "gone", Incarnation: 4, Hash: incarnations[4].Hash, Order: noticeOrder(4, 10),
	})
	require.NoError(t, err)
	require.Empty(t, gone.Digest)
	identity, grants := newestIncarnation.People()
	require.Equal(t, &entities.Spec{
		Application: "shop", Service: "gone", Identity: identity, Grants: grants, Notifications: newestIncarnation.Notifications(),
	}, gone.Spec, "no channels, and the newest people")
}

func noticeOrder(newest, count int64) entities.NoticeOrder {
	return entities.NoticeOrder{Newest: newest, Count: count}
}

// A superseded notice is not recorded. A repeated one is idempotent. Only the last ones are kept.
func TestNoticesAreRecordedInOrder(t *testing.T) {
	a := newActivities(t, &server{})
	ctx := t.Context()
	record := func(number, count int64) entities.NoticeOrder {
		t.Helper()
		later, err := a.record(ctx, protocol.NotifyRequest{Application: "shop", Newest: protocol.Incarnation{Number: number}, Order: noticeOrder(9, count)})
		require.NoError(t, err)
		return later
	}
	require.Zero(t, record(1, 5))
	require.Zero(t, record(1, 5), "retry")
	require.Equal(t, noticeOrder(9, 5), record(2, 5), "another run with the same number")
	require.Equal(t, noticeOrder(9, 5), record(2, 4), "a delayed worker")
	require.Zero(t, record(2, 6))
	for count := int64(7); count < 60; count++ {
		require.Zero(t, record(count, count))
	}
	newest, err := a.Store.NewestNotice(ctx, "shop")
	require.NoError(t, err)
	require.Equal(t, int64(59), newest.Incarnation.Number)
	require.Equal(t, noticeOrder(9, 59), record(5, 8), "older than all stored ones")
}
