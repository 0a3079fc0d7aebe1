package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A remote worker writes its claims and its logs, and nothing else: what is there it reads, and nothing of it is changed or removed.
func TestRemoteWorkerWritesClaimsAndLogsOnly_G1(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	whole, err := Open(ctx, dir)
	require.NoError(t, err)
	digest, err := whole.PutPayload(ctx, entities.Payload{})
	require.NoError(t, err)
	remote, err := Open(ctx, dir)
	require.NoError(t, err)
	remote.RestrictToRemote("edge")
	_, err = remote.Payload(ctx, digest)
	require.NoError(t, err)

	for folder := range folders {
		key := folder + "x"
		require.NoError(t, whole.blobs.write(ctx, key, []byte("ours")))
		err := remote.blobs.write(ctx, key, []byte("theirs"))
		_, made := remote.blobs.create(ctx, folder+"y", []byte("theirs"))
		removed := remote.blobs.remove(ctx, key)
		if folder == "fence/" || folder == "logs/" {
			require.NoError(t, err, folder)
			require.NoError(t, made, folder)
			require.NoError(t, removed, folder)
			continue
		}
		require.True(t, IsReadOnly(err) && IsReadOnly(made) && IsReadOnly(removed), "%s: %v, %v, %v", folder, err, made, removed)
		data, err := remote.blobs.read(ctx, key)
		require.NoError(t, err)
		require.Equal(t, "ours", string(data))
	}
	require.ErrorContains(t, remote.blobs.write(ctx, "fence/../rules/9", nil), "a remote worker does not write fence/../rules/9: fence/, logs/, watched/runtime/edge/, rounds/runtime/edge/ only")
	require.NoError(t, remote.PutWatched(t.Context(), protocol.RuntimeTaskQueue("edge"), "shop/web/prod/main", protocol.WatchedInstance{}))
	require.NoError(t, remote.PutHeartbeat(t.Context(), protocol.RuntimeTaskQueue("edge"), "me", Heartbeat{}))
	for _, others := range []string{protocol.TaskQueue, protocol.RuntimeTaskQueue("edge2"), protocol.RuntimeTaskQueue("")} {
		require.True(t, IsReadOnly(remote.PutHeartbeat(t.Context(), others, "forged", Heartbeat{})), others)
		require.True(t, IsReadOnly(remote.PutWatched(t.Context(), others, "shop/web/prod/main", protocol.WatchedInstance{})), others)
	}
	_, err = remote.PutSpec(ctx, entities.Spec{Application: "shop", Service: "web"})
	require.True(t, IsReadOnly(err))
	_, err = remote.PutState(ctx, []byte("forged"))
	require.True(t, IsReadOnly(err))
	require.NoError(t, remote.PutLog(ctx, "shop", "web", "production/main", LogEntry{Kind: "apply"}))
}
