package activities

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/store"
)

// changes makes checkpoints of a workflow, each with a change.
type changes struct {
	n    int64
	mark state.Checkpoint
}

func (c *changes) next(at time.Time) protocol.Checkpoint {
	c.n++
	c.mark.Changed(at)
	last := len(c.mark.Changes) - 1
	return protocol.Checkpoint{
		ID: "service/shop/web", N: c.n, Event: c.n, Run: "r", At: at, Change: c.mark.Changes[last],
		Earlier: append([]int64{}, c.mark.Changes[:last]...),
	}
}

// The checkpoints of a workflow that changes faster than the store writes follow each other: no history is read.
func TestCheckpointsOfABusyWorkflowFollowEachOther_F1(t *testing.T) {
	s, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c := NewCheckpoints(s, &Tasks{})
	c.IsBehind = func(_ context.Context, newest protocol.Checkpoint, _ string) (bool, error) {
		return false, fmt.Errorf("checkpoint %d is not followed", newest.N)
	}
	var web changes
	at := time.Now()
	for n := range 1000 {
		c.Take(web.next(at.Add(time.Duration(n)*time.Millisecond)), []byte("{}"))
		c.held.ended(workflowTask{run: "r"}, TaskEnd{Complete: true})
	}
	require.True(t, c.Close())
	newest, err := s.Checkpoint(t.Context(), "service/shop/web")
	require.NoError(t, err)
	require.EqualValues(t, 1000, newest.N)
}

// A checkpoint of a workflow that went back is not written, though its number is higher, and the worker learns of it. If Temporal does not
// answer, the checkpoint is tried again, and the store is not reported as unavailable.
func TestCheckpointOfAWorkflowThatWentBack_F1(t *testing.T) {
	for name, temporalErr := range map[string]error{"behind": nil, "undecided": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			s, err := store.Open(t.Context(), t.TempDir())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			c := NewCheckpoints(s, &Tasks{})
			compared := make(chan string, 10)
			c.IsBehind = func(_ context.Context, newest protocol.Checkpoint, run string) (bool, error) {
				compared <- fmt.Sprint(newest.N, " ", run)
				return temporalErr == nil, temporalErr
			}
			var web changes
			at := time.Now()
			first := web.next(at)
			backup := web
			require.NoError(t, s.PutCheckpoint(t.Context(), first, nil))
			require.NoError(t, s.PutCheckpoint(t.Context(), web.next(at.Add(time.Minute)), nil))
			backup.n = 70
			c.Take(backup.next(at.Add(time.Hour)), []byte("{}"))
			c.held.ended(workflowTask{run: "r"}, TaskEnd{Complete: true})
			require.Equal(t, "2 r", <-compared)
			if temporalErr == nil {
				<-c.Behind()
				require.Equal(t, map[string]string{"service/shop/web": "r"}, c.TakeBehind())
				require.Empty(t, c.TakeBehind())
				require.True(t, c.Close())
			} else {
				require.False(t, c.StoreUnavailable())
				require.False(t, c.Close())
			}
			newest, err := s.Checkpoint(t.Context(), "service/shop/web")
			require.NoError(t, err)
			require.EqualValues(t, 2, newest.N)
		})
	}
}
