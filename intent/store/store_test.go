package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// eachStore runs a test on every kind of store that needs no network.
func eachStore(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, kind := range []string{"directory", "mem"} {
		t.Run(kind, func(t *testing.T) {
			location := memoryURL
			if kind == "directory" {
				location = filepath.Join(t.TempDir(), "a", "store")
			}
			s, err := Open(t.Context(), location)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			test(t, s)
		})
	}
}

func TestStoreRoundTrips_D5(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		compiled := intenttest.Dir(t, "../compile/testdata/shop")
		hash, err := s.PutIncarnation(ctx, compiled.Incarnation)
		require.NoError(t, err)
		require.Equal(t, compiled.Incarnation.Hash(), hash)
		s.cache = newCache()
		inc, err := s.Incarnation(ctx, hash)
		require.NoError(t, err)
		require.Equal(t, compiled.Incarnation, inc)

		specs, err := compiled.Specs()
		require.NoError(t, err)
		digest, err := s.PutSpec(ctx, specs["web"])
		require.NoError(t, err)
		require.Equal(t, incarnation.ManifestOf(specs)["web"], digest)
		s.cache = newCache()
		spec, err := s.Spec(ctx, digest)
		require.NoError(t, err)
		require.Equal(t, specs["web"], spec)

		digest, err = s.PutManifest(ctx, incarnation.ManifestOf(specs))
		require.NoError(t, err)
		require.Equal(t, incarnation.ManifestOf(specs).Digest(), digest)
		manifest, err := s.Manifest(ctx, digest)
		require.NoError(t, err)
		require.Equal(t, incarnation.ManifestOf(specs), manifest)

		payloads, err := incarnation.Render(inc, "routes", incarnation.RenderInput{Version: "r1"})
		require.NoError(t, err)
		digest, err = s.PutPayload(ctx, payloads["staging"])
		require.NoError(t, err)
		require.Equal(t, entities.DigestOf(payloads["staging"]), digest)
		s.cache = newCache()
		payload, err := s.Payload(ctx, digest)
		require.NoError(t, err)
		require.Equal(t, payloads["staging"], payload)

		digest, err = s.PutState(ctx, []byte("state"))
		require.NoError(t, err)
		state, err := s.State(ctx, digest)
		require.NoError(t, err)
		require.Equal(t, "state", string(state))
	})
}

func TestStoreReportsMissingContent(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		_, err := s.Incarnation(t.Context(), "0123456789abcdef")
		require.True(t, IsNotFound(err), "%v", err)
		require.EqualError(t, err, "the store has no incarnations/0123456789abcdef [not-found]")
		_, err = s.Spec(t.Context(), "../../etc/passwd")
		require.True(t, IsNotFound(err), "%v", err)
		_, err = s.Version(t.Context(), "shop", "web", "..")
		require.True(t, IsNotFound(err), "%v", err)
		_, err = s.Number(t.Context(), "shop", 1)
		require.True(t, IsNotFound(err), "%v", err)
		logs, err := s.Logs(t.Context(), "shop", "web", "staging")
		require.NoError(t, err)
		require.Empty(t, logs)
	})
}

func TestStoreDetectsAndRepairsDamage_D5(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir)
	require.NoError(t, err)
	digest, err := s.PutPayload(t.Context(), entities.Payload{Service: "web"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "payloads", digest), []byte("{}"), 0o600))

	s, err = Open(t.Context(), dir)
	require.NoError(t, err)
	_, err = s.Payload(t.Context(), digest)
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, "payloads/"+digest, corrupt.Key)
	_, err = s.PutPayload(t.Context(), entities.Payload{Service: "web"})
	require.NoError(t, err)
	_, err = s.Payload(t.Context(), digest)
	require.NoError(t, err)
}

// Of many writers at once, in several processes even, one decides what a version means.
func TestStoreVersionIsDecidedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		var wrote atomic.Int64
		stored := make([]VersionRecord, 20)
		var group sync.WaitGroup
		for i := range stored {
			group.Go(func() {
				other := *s
				other.cache = newCache()
				record, created, err := other.CreateVersion(context.Background(), "shop", "web",
					VersionRecord{Version: "v1", FullVersion: "v1", Incarnation: int64(i + 1), Hash: "h"})
				if created {
					wrote.Add(1)
				}
				if err == nil {
					stored[i] = record
				}
			})
		}
		group.Wait()
		require.EqualValues(t, 1, wrote.Load())
		for _, record := range stored {
			require.Equal(t, stored[0], record)
		}
		_, created, err := s.CreateVersion(t.Context(), "shop", "web", VersionRecord{Version: "V1", FullVersion: "V1"})
		require.NoError(t, err)
		require.True(t, created, "versions that differ in case only are two")
	})
}

func TestStoreNumbers_D5(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for _, n := range []int64{10, 9, 1} {
			require.NoError(t, s.PutNumber(t.Context(), "shop", protocol.Incarnation{Number: n, Hash: fmt.Sprint("hash", n), Manifest: "m"}))
		}
		require.NoError(t, s.PutNumber(t.Context(), "shop", protocol.Incarnation{Number: 9, Hash: "hash9", Manifest: "m"}))
		require.EqualError(t, s.PutNumber(t.Context(), "shop", protocol.Incarnation{Number: 9, Hash: "other", Manifest: "m"}),
			"incarnation 9 of shop is already hash9 and cannot become other [number-taken]")
		numbers, err := s.ListNumbers(t.Context(), "shop")
		require.NoError(t, err)
		require.Equal(t, []int64{1, 9, 10}, numbers)
		record, err := s.Number(t.Context(), "shop", 9)
		require.NoError(t, err)
		require.Equal(t, "hash9", record.Hash)
	})
}

func TestStoreRuntimeHasOneOwner_D11(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		mine := entities.RuntimeDefinition{Name: "edge", Kind: entities.RuntimeCustom, Owner: "shop"}
		digest, err := s.PublishRuntime(t.Context(), mine)
		require.NoError(t, err)
		mine.Remote = true
		second, err := s.PublishRuntime(t.Context(), mine)
		require.NoError(t, err)
		require.NotEqual(t, digest, second)

		_, err = s.PublishRuntime(t.Context(), entities.RuntimeDefinition{Name: "edge", Owner: "blog"})
		var owned *OwnedError
		require.ErrorAs(t, err, &owned)
		require.Equal(t, &OwnedError{"edge", "shop"}, owned)

		first, err := s.Runtime(t.Context(), "edge", digest)
		require.NoError(t, err)
		require.False(t, first.Remote)
		all, err := s.Runtimes(t.Context())
		require.NoError(t, err)
		require.Equal(t, []entities.RuntimeDefinition{mine}, all)
	})
}

func TestStoreLogsKeepTheLastOfEachKind(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		put := func(kind LogKind, i int) {
			require.NoError(t, s.PutLog(t.Context(), "shop", "web", "staging", LogEntry{Kind: kind, At: start.Add(time.Duration(i) * time.Second), Attempt: i}))
		}
		put(LogApply, 0)
		put(LogApply, 0)
		for i := range 25 {
			put(LogFetch, i+1)
		}
		entries, err := s.Logs(t.Context(), "shop", "web", "staging")
		require.NoError(t, err)
		require.Len(t, entries, 12)
		require.Equal(t, LogApply, entries[1].Kind)
		require.Equal(t, 16, entries[2].Attempt)
		require.Equal(t, 25, entries[11].Attempt)
	})
}

func TestOpenStoreErrorsAreReadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for location, want := range map[string]string{
		"":                            "open store: no location given; expected a directory or a URL",
		"gs://bucket":                 "open store: gs:// is not supported; expected a directory, file://, mem:// or s3://",
		"s3:///x":                     "open store s3:///x: no bucket named; expected s3://bucket",
		"s3://b?region=eu;endpoint=x": "open store s3://b?region=eu;endpoint=x: invalid parameters; expected NAME=VALUE&NAME=VALUE after the ?",
		"file:///srv/x?y=1":           "open store file:///srv/x?y=1: a directory has no parameters",
		file:                          "open store " + file + ": not a directory",
		"file://" + file:              "open store " + file + ": not a directory",
	} {
		_, err := Open(t.Context(), location)
		require.EqualError(t, err, want)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	for i := range 100 {
		c.put(fmt.Sprint(i), i, maxCached/10)
	}
	require.LessOrEqual(t, c.size, maxCached)
	_, oldest := c.get("0")
	_, newest := c.get("99")
	require.Equal(t, []bool{false, true}, []bool{oldest, newest})
	c.put("huge", 1, maxCached)
	_, huge := c.get("huge")
	require.False(t, huge)
}

func TestStoreThatARemoteWorkerCannotReach(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "store"))
	require.NoError(t, err)
	require.NoError(t, s.CheckReachable([]entities.RuntimeDefinition{{Name: "near"}}))
	require.ErrorContains(t, s.CheckReachable([]entities.RuntimeDefinition{{Name: "far", Remote: true}}),
		"runtime far has its own worker (worker: remote), which cannot reach the store "+s.URL()+"; expected a store that both reach, such as s3://bucket [store-out-of-reach]")
}
