package store

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

func opened(t *testing.T) (*Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(t.Context(), dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, dir
}

// The newest checkpoint is that of the greatest number, and of one number that of the longest history, in whatever order
// they were written. Few are kept.
func TestNewestCheckpoint(t *testing.T) {
	s, dir := opened(t)
	_, err := s.Checkpoint(t.Context(), "service/shop/web")
	require.True(t, IsNotFound(err))
	for _, c := range []protocol.Checkpoint{
		{N: 1, Event: 9}, {N: 10, Event: 3}, {N: 10, Event: 30}, {N: 10, Event: 4}, {N: 9, Event: 99},
	} {
		c.ID, c.State = "service/shop/web", protocol.Packed{1, 2, 3}
		require.NoError(t, s.PutCheckpoint(t.Context(), c, nil))
	}
	require.NoError(t, s.PutCheckpoint(t.Context(), protocol.Checkpoint{ID: "service/shop/web2", N: 77}, nil))
	c, err := s.Checkpoint(t.Context(), "service/shop/web")
	require.NoError(t, err)
	require.Equal(t, protocol.Cursor{Event: 30}, protocol.Cursor{Event: c.Event})
	require.Equal(t, protocol.Packed{1, 2, 3}, c.State)
	files, err := os.ReadDir(filepath.Join(dir, "checkpoints", "service", "shop", "web"))
	require.NoError(t, err)
	require.Len(t, files, keptCheckpoints)
	ids, err := s.Checkpointed(t.Context(), "service/shop/")
	require.NoError(t, err)
	require.Equal(t, []string{"service/shop/web", "service/shop/web2"}, ids)
}

// Of two checkpoints of the same place, which a workflow task that was lost and the one in its place may have handed over, that
// of the later time stays, in whatever order they come. A damaged one is written again.
func TestCheckpointsAtTheSamePosition(t *testing.T) {
	s, dir := opened(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	first := protocol.Checkpoint{ID: "service/shop/web", N: 3, Event: 3, At: at, Run: "lost"}
	second := protocol.Checkpoint{ID: "service/shop/web", N: 3, Event: 3, At: at.Add(time.Second), Run: "done"}
	for _, c := range []protocol.Checkpoint{first, second, first, second} {
		require.NoError(t, s.PutCheckpoint(t.Context(), c, nil))
	}
	c, err := s.Checkpoint(t.Context(), "service/shop/web")
	require.NoError(t, err)
	require.Equal(t, "done", c.Run)
	files, err := filepath.Glob(filepath.Join(dir, "checkpoints", "service", "shop", "web", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o600))
	require.NoError(t, s.PutCheckpoint(t.Context(), first, nil))
	c, err = s.Checkpoint(t.Context(), "service/shop/web")
	require.NoError(t, err)
	require.Equal(t, "lost", c.Run)
}

// A checkpoint that is later than the newest one, and does not include its change, may be of a workflow that went back. Then it is not
// stored, whether its number is lower, equal or higher. One that is written late, or that follows a lost task, is not of such a workflow.
func TestCheckpointBehindTheNewest_F1(t *testing.T) {
	s, _ := opened(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	asked := 0
	put := func(n int64, after time.Duration, wentBack bool, earlier ...time.Duration) error {
		c := protocol.Checkpoint{ID: "service/shop/web", N: n, Event: n, At: at.Add(after), Change: at.Add(after).UnixNano(), Run: "r"}
		for _, change := range earlier {
			c.Earlier = append(c.Earlier, at.Add(change).UnixNano())
		}
		asked = 0
		return s.PutCheckpoint(t.Context(), c, func(newest protocol.Checkpoint) (bool, error) {
			asked++
			return wentBack, nil
		})
	}
	newest := func() int64 {
		c, err := s.Checkpoint(t.Context(), "service/shop/web")
		require.NoError(t, err)
		return c.N
	}
	require.NoError(t, put(10, 0, true))
	require.NoError(t, put(20, time.Minute, true, 0))
	require.Zero(t, asked, "it follows")
	require.NoError(t, put(15, 30*time.Second, true, 0))
	require.Zero(t, asked, "it is late")
	for _, n := range []int64{12, 20, 21, 1000} {
		var behind *BehindError
		require.ErrorAs(t, put(n, 2*time.Minute, true, 0, 30*time.Second), &behind)
		require.Equal(t, "service/shop/web", behind.ID)
		require.EqualValues(t, 20, newest())
	}
	require.NoError(t, put(21, 2*time.Minute, false, 0), "the newest one is of a lost task")
	require.Equal(t, 1, asked)
	require.EqualValues(t, 21, newest())
	require.NoError(t, put(25, 3*time.Minute, true, 2*time.Minute, 150*time.Second))
	require.Zero(t, asked)

	ended := protocol.Checkpoint{ID: "service/shop/web", N: 30, Event: 30, At: at.Add(time.Hour), Change: at.Add(time.Hour).UnixNano(), Run: "r", Over: true}
	require.NoError(t, s.PutCheckpoint(t.Context(), ended, nil))
	require.Error(t, put(40, 2*time.Hour, true, 3*time.Minute), "the workflow had ended")
	require.NoError(t, put(70000, 2*time.Hour, false), "it was started again")
}

// A damaged checkpoint is passed over where an older one is whole, and named where none is.
func TestDamagedCheckpoint(t *testing.T) {
	s, dir := opened(t)
	for n := range int64(2) {
		require.NoError(t, s.PutCheckpoint(t.Context(), protocol.Checkpoint{ID: "application/shop", N: n + 1, Manifest: "m"}, nil))
	}
	files, err := filepath.Glob(filepath.Join(dir, "checkpoints", "application", "shop", "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	data, err := os.ReadFile(files[1])
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(files[1], data, 0o600))
	c, err := s.Checkpoint(t.Context(), "application/shop")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.N)
	require.NoError(t, os.WriteFile(files[0], []byte("{"), 0o600))
	_, err = s.Checkpoint(t.Context(), "application/shop")
	require.ErrorContains(t, err, filepath.Base(files[1])+" is damaged")
}

// A claim is refused by a later one, and by one of the same sequence for another target. The same claim holds as often as it
// is made.
func TestClaims(t *testing.T) {
	s, _ := opened(t)
	claim := func(epoch, sequence int64, target string) *protocol.Claim {
		by, err := s.Claim(t.Context(), "shop", "web", "prod/main", protocol.Claim{Epoch: epoch, Sequence: sequence, Target: target, FullVersion: target})
		require.NoError(t, err)
		return by
	}
	require.Nil(t, claim(1, 9, "v1"))
	require.Nil(t, claim(1, 9, "v1"))
	require.Equal(t, "v1", claim(1, 9, "v2").FullVersion)
	require.Nil(t, claim(1, 10, "v2"))
	require.Equal(t, "v2", claim(1, 9, "v1").FullVersion)
	require.Equal(t, "v2", claim(1, 3, "v0").FullVersion)
	require.Nil(t, claim(2, 1, "v1"), "another epoch")
	require.EqualValues(t, 2, claim(1, 11, "v3").Epoch)
	for n := range int64(20) {
		require.Nil(t, claim(2, n+2, "v"))
	}
	highest, err := s.HighestClaim(t.Context(), "shop", "web", 2)
	require.NoError(t, err)
	require.EqualValues(t, 21, highest)
}

// Of many who claim at once for different targets, one at most is granted each sequence, and the same one when all ask
// again: a listing that meets a file which goes away just then may fail.
func TestConcurrentClaims(t *testing.T) {
	s, _ := opened(t)
	var all sync.WaitGroup
	for n := range int64(20) {
		var granted atomic.Int64
		claim := func(who int) {
			c := protocol.Claim{Epoch: 1, Sequence: n + 1, Target: string(rune('a' + who)), FullVersion: "v"}
			if by, err := s.Claim(t.Context(), "shop", "web", "prod/main", c); err == nil && by == nil {
				granted.Add(1)
			}
		}
		for who := range 4 {
			all.Go(func() { claim(who) })
		}
		all.Wait()
		at := granted.Swap(0)
		require.LessOrEqual(t, at, int64(1), "sequence %d", n+1)
		for who := range 4 {
			claim(who)
		}
		require.EqualValues(t, 1, granted.Load(), "sequence %d, second request", n+1)
	}
}

// A lease goes to one of those who take it under the same number.
func TestLease(t *testing.T) {
	s, _ := opened(t)
	n, holder, err := s.Lease(t.Context(), "supervision-1")
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, holder)
	var won atomic.Int64
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			if taken, err := s.TakeLease(t.Context(), "supervision-1", 1, string(rune('a'+who))); err == nil && taken {
				won.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, won.Load())
	n, holder, err = s.Lease(t.Context(), "supervision-1")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	taken, err := s.TakeLease(t.Context(), "supervision-1", 2, holder)
	require.NoError(t, err)
	require.True(t, taken)
}
