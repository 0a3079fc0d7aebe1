package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

func archiveOf(t *testing.T, s *Store) (all map[string]string, damaged map[string]error) {
	t.Helper()
	all = map[string]string{}
	damaged, err := s.Each(t.Context(), func(key string, data []byte) error {
		require.NotContains(t, all, key)
		all[key] = string(data)
		return nil
	})
	require.NoError(t, err)
	return all, damaged
}

// Of each workflow the newest checkpoint goes into an archive, with all that it may name, and nothing that belongs to
// where the store is.
func TestArchiveOfAStore_F4(t *testing.T) {
	ctx := context.Background()
	from, err := Open(ctx, t.TempDir())
	require.NoError(t, err)
	for n := range int64(3) {
		require.NoError(t, from.PutCheckpoint(ctx, protocol.Checkpoint{ID: "service/shop/web", N: n + 1, Run: "r", At: time.Unix(n, 0).UTC(), State: protocol.Packed("x")}, nil))
	}
	payload, err := from.PutPayload(ctx, entities.Payload{})
	require.NoError(t, err)
	_, _, err = from.CreateVersion(ctx, "shop", "web", VersionRecord{Version: "v1", FullVersion: "v1"})
	require.NoError(t, err)
	_, err = from.CreateInstallation(ctx, protocol.Installation{ID: "I", Epoch: 1})
	require.NoError(t, err)
	_, err = from.TakeLease(ctx, "supervision-1", 1, "me")
	require.NoError(t, err)

	all, damaged := archiveOf(t, from)
	require.Empty(t, damaged)
	require.Len(t, all, 3)
	to, err := Open(ctx, t.TempDir())
	require.NoError(t, err)
	empty, err := to.Empty(ctx)
	require.NoError(t, err)
	require.True(t, empty)
	for key, data := range all {
		require.NoError(t, to.Restore(ctx, key, []byte(data)))
		require.NoError(t, to.Restore(ctx, key, []byte(data)), "again")
	}
	again, _ := archiveOf(t, to)
	require.Equal(t, all, again)
	c, err := to.Checkpoint(ctx, "service/shop/web")
	require.NoError(t, err)
	require.EqualValues(t, 3, c.N)
	_, err = to.Payload(ctx, payload)
	require.NoError(t, err)
	_, err = to.Version(ctx, "shop", "web", "v1")
	require.NoError(t, err)
	empty, err = to.Empty(ctx)
	require.NoError(t, err)
	require.False(t, empty)
}

// What nobody can read is left out by name, and keeps nothing else from coming along.
func TestArchiveOmitsDamagedContent_F4(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, t.TempDir())
	require.NoError(t, err)
	require.NoError(t, s.PutCheckpoint(ctx, protocol.Checkpoint{ID: "service/shop/web", N: 1}, nil))
	require.NoError(t, s.blobs.write(ctx, checkpointKey(protocol.Checkpoint{ID: "service/shop/api", N: 1}), []byte("{")))
	all, damaged := archiveOf(t, s)
	require.Len(t, all, 1)
	require.ErrorContains(t, damaged["service/shop/api"], "is damaged")
}

// An archive may come from anywhere: it writes only what a store would, where a store would, and over nothing.
func TestHostileArchive_F4(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, t.TempDir())
	require.NoError(t, err)
	of := protocol.Checkpoint{ID: "service/shop/web", N: 1}
	require.NoError(t, s.PutCheckpoint(ctx, of, nil))
	whole, err := s.blobs.read(ctx, checkpointKey(of))
	require.NoError(t, err)
	of.ID = "service/shop/api"
	for key, data := range map[string]string{
		"":                                 "x",
		"/etc/passwd":                      "x",
		"../outside":                       "x",
		"logs/../../outside":               "x",
		"logs/./a":                         "x",
		`logs\a`:                           "x",
		"logs/.new-1.tmp":                  "x",
		"elsewhere/a":                      "x",
		"specs/0123456789abcdef":           "x",
		"specs/":                           "x",
		"bundles/a":                        "x",
		"installation/000000009":           `{"id":"I","epoch":9}`,
		"installation/importing":           "x",
		"leases/supervision-1/1":           "x",
		"checkpoints/service/shop/web":     "{}",
		checkpointKey(of):                  string(whole),
		"checkpoints/" + "x/00000-0000-00": strings.Repeat("[", 100000),
	} {
		require.Error(t, s.Restore(ctx, key, []byte(data)), key)
	}
	all, _ := archiveOf(t, s)
	require.Len(t, all, 1)

	require.NoError(t, s.Restore(ctx, "logs/a", []byte("mine")))
	require.NoError(t, s.Restore(ctx, "logs/a", []byte("yours")))
	data, err := s.blobs.read(ctx, "logs/a")
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
}
