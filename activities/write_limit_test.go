package activities

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// A slow answer lowers the limit by a quarter of what runs, once in an interval. Quick answers raise it while it is used. It has a floor and
// a ceiling, and an urgent write has a place in any case.
func TestWriteLimitFollowsHeartbeats(t *testing.T) {
	l, now := &writeLimit{}, time.Now()
	tick := func(took time.Duration) int {
		now = now.Add(heartbeatInterval)
		l.answered(took, now)
		return cmp.Or(l.limit, initialWrites)
	}
	var ends []func()
	fill := func() int {
		for end := l.begin(false); end != nil; end = l.begin(false) {
			ends = append(ends, end)
		}
		return len(ends)
	}
	require.Equal(t, initialWrites, tick(quickAnswer), "it is not used")
	require.Equal(t, 64, fill())
	require.Equal(t, 70, tick(quickAnswer))
	l.answered(quickAnswer, now.Add(heartbeatInterval/2))
	require.Equal(t, 70, l.limit, "once in an interval")
	require.Equal(t, 70, fill())
	urgent := l.begin(true)
	require.NotNil(t, urgent)
	urgent()
	require.Equal(t, 70, tick(quickAnswer+1), "neither slow nor quick")
	require.Equal(t, 52, tick(slowAnswer))
	require.Equal(t, 39, tick(slowAnswer))
	require.Nil(t, l.begin(false))
	for _, end := range ends[20:] {
		end()
		end() // does nothing more
	}
	running, answer := l.state()
	require.Equal(t, 20, running)
	require.Equal(t, slowAnswer, answer)
	require.Equal(t, 15, tick(slowAnswer))
	require.Equal(t, 11, tick(slowAnswer))
	require.Equal(t, minWrites, tick(slowAnswer))
	require.Equal(t, minWrites, tick(slowAnswer))
	ends = ends[:20]
	for range 100 {
		fill()
		tick(0)
	}
	require.Equal(t, maxWrites, l.limit)
	require.Equal(t, maxWrites, fill())
}

// Writes that are put off are tried again in their order, some in a second.
func TestPutOffWritesAreTriedAgainInOrder(t *testing.T) {
	l, now := &writeLimit{}, time.Now()
	require.Equal(t, minPutOff, l.putOff(now))
	for n := range 10 {
		require.Equal(t, minPutOff+time.Duration(n+1)*time.Second/putOffRate, l.putOff(now))
	}
	require.Equal(t, minPutOff, l.putOff(now.Add(time.Hour)))
	l.next = now.Add(time.Hour)
	require.Equal(t, maxPutOff, l.putOff(now))
}

// heartbeats is a client that keeps the last heartbeat.
type heartbeats struct {
	client.Client
	last protocol.Progress
}

func (h *heartbeats) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	h.last = details[0].(protocol.Progress)
	return nil
}

// A worker that runs as many changes as the server keeps up with begins a rollback in spite of that.
func TestUrgentApplyIsNotPutOff(t *testing.T) {
	s, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	h := &heartbeats{}
	a := &Activities{Client: h, Store: s, writes: writeLimit{limit: 1, running: 1}}
	request := protocol.ApplyRequest{Application: "shop", Service: "web", Sequence: 1, Urgent: true}
	request.Instance.ID.Channel, request.Instance.ID.Name = "production", "production"
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(a.Apply)
	_, err = env.ExecuteActivity(a.Apply, request)
	require.NotContains(t, fmt.Sprint(err), "put off")
	require.Zero(t, h.last.PutOff)
	running, _ := a.writes.state()
	require.Equal(t, 1, running, "its place is free again")
}

// An apply without a place is put off: nothing of it begins, and the server tries it again.
func TestApplyIsPutOff(t *testing.T) {
	h := &heartbeats{}
	a := &Activities{Client: h, writes: writeLimit{limit: 1, running: 1, answer: 4200 * time.Millisecond}}
	request := protocol.ApplyRequest{Instance: protocol.InstanceRef{FullVersion: "v2"}}
	request.Instance.ID.Channel, request.Instance.ID.Name = "production", "production"
	for n, delay := range []time.Duration{minPutOff, minPutOff + time.Second/putOffRate, minPutOff + 2*time.Second/putOffRate} {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.RegisterActivity(a.Apply)
		if n > 0 {
			env.SetHeartbeatDetails(h.last)
		}
		before := h.last.Since
		_, err := env.ExecuteActivity(a.Apply, request)
		var put *temporal.ApplicationError
		require.ErrorAs(t, err, &put)
		require.Equal(t, protocol.ErrPutOff, put.Type())
		require.Equal(t, "put off: this worker runs 1 other change, as many as the Temporal server keeps up with; its last slow answer took 4.2s", put.Message())
		require.LessOrEqual(t, put.NextRetryDelay(), delay)
		require.Positive(t, put.NextRetryDelay())
		require.Equal(t, n+1, h.last.PutOff)
		require.Equal(t, "apply of v2", h.last.Description)
		require.Equal(t, "production", h.last.Channel)
		require.True(t, h.last.IsPutOff())
		if n > 0 {
			require.Equal(t, before, h.last.Since)
		}
	}
}
