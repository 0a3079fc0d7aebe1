package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// What is known of watched instances is found by the workers of their queue, and by nobody else.
func TestWatchedOfAQueue_H9(t *testing.T) {
	t.Parallel()
	for name, location := range map[string]string{"directory": t.TempDir(), "bucket": memoryURL} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s, err := Open(ctx, location)
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			known := protocol.WatchedInstance{
				Request: protocol.ObserveRequest{Application: "shop", Service: "web", Instances: []protocol.InstanceRef{{ID: entities.Only("prod"), FullVersion: "v1"}}},
				Summary: protocol.ReadingSummary{Version: "v1", Known: true, Stable: true},
			}
			_, err = s.Watched(ctx, "converge", "shop/web/prod/main")
			require.True(t, IsNotFound(err))
			require.NoError(t, s.PutWatched(ctx, "converge", "shop/web/prod/main", known))
			require.NoError(t, s.PutWatched(ctx, "runtime/edge", "shop/web/edge/main", known))
			found, err := s.Watched(ctx, "converge", "shop/web/prod/main")
			require.NoError(t, err)
			require.Equal(t, known, found)
			for queue, want := range map[string][]string{"converge": {"shop/web/prod/main"}, "runtime/edge": {"shop/web/edge/main"}, "runtime/other": nil} {
				all, err := s.WatchedInstances(ctx, queue)
				require.NoError(t, err)
				require.Equal(t, want, all, queue)
			}
			require.NoError(t, s.blobs.write(ctx, "watched/converge/shop/web~prod~main", []byte("{")))
			_, err = s.Watched(ctx, "converge", "shop/web/prod/main")
			require.True(t, IsNotFound(err), "a damaged record makes the workflow observe")
			require.NoError(t, s.RemoveWatched(ctx, "converge", "shop/web/prod/main"))
			all, err := s.WatchedInstances(ctx, "converge")
			require.NoError(t, err)
			require.Empty(t, all)
		})
	}
}

// Workers of a queue find what each of them says of itself.
func TestHeartbeatsOfAQueue_F9(t *testing.T) {
	t.Parallel()
	for name, location := range map[string]string{"directory": t.TempDir(), "bucket": memoryURL} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s, err := Open(ctx, location)
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			require.NoError(t, s.PutHeartbeat(ctx, "converge", "a1", Heartbeat{Number: 1}))
			require.NoError(t, s.PutHeartbeat(ctx, "converge", "a1", Heartbeat{Number: 2, Recorded: [][]string{{"shop/web/prod/main"}}}))
			require.NoError(t, s.PutHeartbeat(ctx, "runtime/edge", "b2", Heartbeat{Number: 7}))
			require.NoError(t, s.blobs.write(ctx, "rounds/converge/c3", []byte("{")))
			heartbeats, err := s.Heartbeats(ctx, "converge")
			require.NoError(t, err)
			require.Equal(t, map[string]Heartbeat{"a1": {Number: 2, Recorded: [][]string{{"shop/web/prod/main"}}}}, heartbeats)
			require.NoError(t, s.RemoveHeartbeat(ctx, "converge", "a1"))
			heartbeats, err = s.Heartbeats(ctx, "converge")
			require.NoError(t, err)
			require.Empty(t, heartbeats)
		})
	}
}
